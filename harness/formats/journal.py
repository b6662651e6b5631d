"""The journal of a command that works for long: one line for each job that is done.

A journal is all that such a command remembers of its own work. A job is done when its line is
there: a command that was killed goes on with the jobs that have none, and counts nothing twice.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from harness.formats.finding import Finding
from node.formats.bounds import LargeCount, Number, Seconds
from node.formats.errors import StorageError, UsageError
from node.formats.files import AppendOnlyFile, cannot_write
from node.formats.host_errors import reason
from node.formats.json_input import JsonReader, Unreadable

FORMAT: Final = 1
FINISHED: Final = "finished"
STOPPED: Final = "stopped"
RUNNING: Final = "running"
_encoder: Final = msgspec.json.Encoder()


class JournalRow(msgspec.Struct, kw_only=True, tag_field="what"):
    """The fields of every line: the `key` of the job, its wall-clock seconds, and how many seconds
    the command had worked when the job was done."""

    key: str = ""
    seconds: Seconds = 0.0
    worked_s: Seconds = 0.0


class BeganRow(JournalRow):
    """The first line of each session of a command."""

    format: Number = FORMAT


class SearchBegan(BeganRow, tag="began"):
    """The first line of each session of a search: its subject as a text, its seed, its time."""

    subject: str = ""
    seed: int = 0
    budget_s: Seconds = 0.0
    version: str = ""


class Searched(JournalRow, tag="search"):
    """A stretch of a search: the schedules of `seed` from number `first` on. `runs` counts reruns
    with a worse ending too. `core_s` are seconds of one core, `generator` is the version that drew
    the schedules. `findings` has the failures of buckets that were not known before,
    `unknown_runs` the folders of the first runs that could not be judged."""

    protocol: str
    seed: int
    first: LargeCount = 0
    schedules: LargeCount = 0
    runs: LargeCount = 0
    virtual_us: LargeCount = 0
    events: LargeCount = 0
    failures: LargeCount = 0
    core_s: Seconds = 0.0
    run_seconds: Seconds = 0.0
    generator: LargeCount = 0
    verdicts: dict[str, LargeCount] = {}
    buckets: dict[str, LargeCount] = {}
    fault_coverage: dict[str, LargeCount] = {}
    problems: list[str] = []
    unknown_runs: list[str] = []
    findings: list[Finding] = []


class Finished(JournalRow, tag="finding"):
    """A finding that was shrunk and explained, as far as there was time; `folder` is its place in
    the store, `page` that of its page, "" if it has none."""

    finding: Finding
    folder: str = ""
    page: str = ""


class Lost(JournalRow, tag="lost"):
    """A job that was begun and will not be done: its process died, or its run was cut off."""

    sentence: str


class Ended(JournalRow, tag="ended"):
    """The end of a session: finished, stopped, disk-full, or failed (of the harness itself)."""

    state: str


SearchRow = SearchBegan | Searched | Finished | Lost | Ended
Row = TypeVar("Row", bound=JournalRow)


def read_rows(path: Path, rows: Any) -> list[Any]:
    """Return the lines of a journal; none if there is no journal, and without a half line at its
    end. `rows` is the union of its rows. Raises StorageError for a damaged line."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {reason(error)}") from None
    reader = JsonReader(rows)
    found: list[Any] = []
    # What follows the last newline was cut off by the end of the process that wrote it.
    for number, line in enumerate(lines[:-1], 1):
        try:
            row = reader.decode(line)
        except Unreadable as error:
            if number == len(lines) - 1:
                break
            raise StorageError(
                f"{path}:{number}: not a line of a journal: {error}; "
                "move the file away to begin again"
            ) from None
        if isinstance(row, BeganRow) and row.format != FORMAT:
            raise StorageError(
                f"{path}: has format {row.format}, and this floodmark reads {FORMAT}: "
                "choose another --store"
            )
        found.append(row)
    return found


class JobJournal(Generic[Row]):
    """The journal of a command that works now: everything so far, and a way to add to it. One
    process has it at a time."""

    def __init__(self, path: Path, rows: Any) -> None:
        """Read the journal and go on after it; `rows` is the union of its rows. Raises
        StorageError, and UsageError while another process has it."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = AppendOnlyFile(path)
            self._lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError(cannot_write(path, error)) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.rows: list[Row] = read_rows(path, rows)
            self._drop_half_line()
        except BlockingIOError:
            self.close()
            raise UsageError(
                f"{path}: another command works on it; wait for its end, or choose another --store"
            ) from None
        except BaseException:
            self.close()
            raise

    def _drop_half_line(self) -> None:
        """Remove the half line of a write that was cut off: it would swallow the next line."""
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if len(self.rows) < content.count(b"\n"):
            whole = content.rfind(b"\n", 0, whole - 1) + 1
        if whole < len(content):
            try:
                os.truncate(self.path, whole)
            except OSError as error:
                raise StorageError(cannot_write(self.path, error)) from None

    def add(self, row: Row) -> None:
        """Write a line. Raises StorageError, for instance on a full disk."""
        self._file.write(_encoder.encode(row) + b"\n")
        self.rows.append(row)

    def clear(self) -> None:
        """Begin again from nothing. Raises StorageError."""
        try:
            os.truncate(self.path, 0)
        except OSError as error:
            raise StorageError(cannot_write(self.path, error)) from None
        self.rows.clear()

    def done(self) -> set[str]:
        """Return the keys of the jobs that are done, or lost for good."""
        return {row.key for row in self.rows if row.key}

    def worked_s(self) -> float:
        """Return how long the command has worked so far, over all its sessions."""
        return max((row.worked_s for row in self.rows), default=0.0)

    def close(self) -> None:
        """Let another process have the journal."""
        self._file.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def state_of(rows: Iterable[JournalRow]) -> str:
    """Return how the work of a journal stands: the state of its last session, "running" if that
    has no end."""
    state = RUNNING
    for row in rows:
        if isinstance(row, BeganRow):
            state = RUNNING
        elif isinstance(row, Ended):
            state = row.state
    return state
