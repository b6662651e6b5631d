"""The journal of a long command (a search, a nightly run): one line for each job that is done.

The journal is all that the command remembers of its work. A job is done when its line is written. A
command that was killed continues with the jobs that have no line, and counts no job twice.
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
    """The fields of every line: the `key` of the job, how many `seconds` (wall clock) the job took,
    and for how many seconds the command had worked when the job was done."""

    key: str = ""
    seconds: Seconds = 0.0
    worked_s: Seconds = 0.0


class BeganRow(JournalRow):
    """The first line of each session of a command."""

    format: Number = FORMAT


class SearchBegan(BeganRow, tag="began"):
    """The first line of each session of a search: its subject as a text, its seed, and its budget
    in seconds (0: none)."""

    subject: str = ""
    seed: int = 0
    budget_s: Seconds = 0.0
    version: str = ""


class Searched(JournalRow, tag="search"):
    """A part of a search that was done as one job: schedules of `seed` from number `first` on.
    `runs` also counts the reruns with a worse ending. `core_s` are seconds of one core, `generator`
    is the version of the generator of schedules. `findings` has the first failure of each bucket
    (class of failure) that was new, `unknown_runs` the folders of the first runs that could not be
    judged."""

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
    """A finding after shrinking and explaining, as far as time allowed. `folder` is its folder in
    the store, `page` the file of its page, "" if it has none."""

    finding: Finding
    folder: str = ""
    page: str = ""


class Lost(JournalRow, tag="lost"):
    """A job that was begun and is given up: its process died, or its run took too long."""

    sentence: str


class Ended(JournalRow, tag="ended"):
    """The end of a session. `state`: finished, stopped (by Ctrl-C or a signal), disk-full, or
    failed (an error of the harness itself)."""

    state: str


SearchRow = SearchBegan | Searched | Finished | Lost | Ended
Row = TypeVar("Row", bound=JournalRow)


def read_rows(path: Path, rows: Any) -> list[Any]:
    """Return the lines of a journal, without an incomplete last line; an empty list if there is no
    journal. `rows` is the union of the types of its lines. Raises StorageError for a damaged line.
    """
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
    """The open journal of a running command: its lines so far, and a way to add others. Only one
    process can have it open."""

    def __init__(self, path: Path, rows: Any) -> None:
        """Open a journal and read it; `rows` is the union of the types of its lines. Raises
        StorageError, and UsageError while another process has it open."""
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
        """Remove all lines. Raises StorageError."""
        try:
            os.truncate(self.path, 0)
        except OSError as error:
            raise StorageError(cannot_write(self.path, error)) from None
        self.rows.clear()

    def done(self) -> set[str]:
        """Return the keys of the jobs that are done or given up."""
        return {row.key for row in self.rows if row.key}

    def worked_s(self) -> float:
        """Return for how many seconds the command has worked so far, over all its sessions."""
        return max((row.worked_s for row in self.rows), default=0.0)

    def close(self) -> None:
        """Close the journal, so that another process can open it."""
        self._file.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def state_of(rows: Iterable[JournalRow]) -> str:
    """Return the state of a journal's last session: how it ended; "running" if it has no end."""
    state = RUNNING
    for row in rows:
        if isinstance(row, BeganRow):
            state = RUNNING
        elif isinstance(row, Ended):
            state = row.state
    return state
