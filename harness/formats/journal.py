"""The journal of a long command (a search, a nightly run): one line for each job that is done.

The journal is all that the command remembers of its work. A job is done when its line is written. A
command that was killed continues with the jobs that have no line, and counts no job twice.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from harness.formats.finding import Finding
from node.formats.bounds import LargeCount, Number, Seconds
from node.formats.errors import StorageError, UsageError
from node.formats.files import AppendOnlyFile, make_folder
from node.formats.host_errors import reason
from node.formats.json_input import JsonReader, Unreadable, read_bytes

FORMAT: Final = 1
_MOST_BYTES: Final = 1 << 30
FINISHED: Final = "finished"
STOPPED: Final = "stopped"
RUNNING: Final = "running"
MOST_PROBLEMS: Final = 20
"""The largest number of problems that a row has."""
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


class SearchedRow(JournalRow, tag="search"):
    """A part of a search that was done as one job: schedules of `seed` from number `first` on.
    `subject` is the protocol, the code of the known bug, or the system.
    `runs` also counts the reruns with a worse ending. `core_s` are seconds of one core, `generator`
    is the version of the generator of schedules. `findings` has the first failure of each bucket
    (class of failure) that was new, `unknown_runs` the folders of the first runs that could not be
    judged."""

    subject: str = msgspec.field(name="protocol")
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

    def add(self, row: SearchedRow) -> None:
        """Add the counts of another part."""
        self.schedules += row.schedules
        self.runs += row.runs
        self.virtual_us += row.virtual_us
        self.events += row.events
        self.failures += row.failures
        self.core_s += row.core_s
        self.run_seconds += row.run_seconds
        self.unknown_runs += row.unknown_runs
        for mine, others in (
            (self.verdicts, row.verdicts),
            (self.buckets, row.buckets),
            (self.fault_coverage, row.fault_coverage),
        ):
            for name, number in others.items():
                add_to(mine, name, number)
        for problem in row.problems:
            self.add_problem(problem)

    def add_problem(self, problem: str) -> None:
        """Add a problem, unless it is known or there are many."""
        if len(self.problems) < MOST_PROBLEMS and problem not in self.problems:
            self.problems.append(problem)


def add_to(counts: dict[str, int], name: str, number: int = 1) -> None:
    """Count something under its name, unless the number is 0."""
    if number:
        counts[name] = counts.get(name, 0) + number


class FinishedRow(JournalRow, tag="finding"):
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


SearchRow = SearchBegan | SearchedRow | FinishedRow | Lost | Ended
Row = TypeVar("Row", bound=JournalRow)


def read_rows(path: Path, rows: Any) -> list[Any]:
    """Return the lines of a journal, without an incomplete last line; an empty list if there is no
    journal. `rows` is the union of the types of its lines. Raises StorageError for a damaged line.
    """
    lines = _content(path).split(b"\n")
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
        make_folder(path.parent, path.parent.parent)
        self._file = AppendOnlyFile(path, path.parent.parent)
        try:
            fcntl.flock(self._file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        content = _content(self.path)
        whole = content.rfind(b"\n") + 1
        if len(self.rows) < content.count(b"\n"):
            whole = content.rfind(b"\n", 0, whole - 1) + 1
        if whole < len(content):
            self._file.truncate(whole)

    def add(self, row: Row) -> None:
        """Write a line. Raises StorageError, for instance on a full disk."""
        self._file.write(_encoder.encode(row) + b"\n")
        self.rows.append(row)

    def clear(self) -> None:
        """Remove all lines. Raises StorageError."""
        self._file.truncate()
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


def _content(path: Path) -> bytes:
    """Return what a journal contains, nothing if there is none. Raises StorageError."""
    try:
        return read_bytes(path, _MOST_BYTES)
    except FileNotFoundError:
        return b""
    except (OSError, Unreadable) as error:
        raise StorageError(f"{path}: cannot be read: {reason(error)}") from None


def state_of(rows: Iterable[JournalRow]) -> str:
    """Return the state of a journal's last session: how it ended; "running" if it has no end."""
    state = RUNNING
    for row in rows:
        if isinstance(row, BeganRow):
            state = RUNNING
        elif isinstance(row, Ended):
            state = row.state
    return state
