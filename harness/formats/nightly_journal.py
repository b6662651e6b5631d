"""The journal of a nightly run, `store/nightly/NNNN.jsonl`: one line for each job of work that is
done.

The journal is all a nightly run remembers of itself. A job is done when its line is there: a
nightly run that was killed goes on with the jobs that have none, and counts nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, cast

import msgspec

from harness.formats.host_errors import reason
from harness.formats.nightly_run import FOLDER, Bucket
from nemesis.formats.schedule import Expectation, Schedule
from node.formats.bounds import LargeCount, Number, Seconds
from node.formats.errors import StorageError
from node.formats.files import AppendOnlyFile
from node.formats.json_input import JsonReader, Unreadable

_encoder: Final = msgspec.json.Encoder()


class JournalRow(msgspec.Struct, kw_only=True, tag_field="what"):
    """The fields of all lines: the `key` of the job, its wall-clock seconds, and how many seconds
    the nightly run had worked when it was done."""

    key: str = ""
    seconds: Seconds = 0.0
    worked_s: Seconds = 0.0


class Began(JournalRow, tag="began"):
    """The first line of each session of a nightly run: what was asked for, and where. `systems` are
    the third-party systems, as they were named."""

    number: LargeCount
    seed: int
    budget_s: Seconds
    cores: LargeCount
    started: str
    machine: str
    real: bool = True
    systems_share: LargeCount = 0
    systems: tuple[str, ...] = ()


class Searched(JournalRow, tag="search"):
    """A stretch of simulated search on a protocol that is expected to hold. What it found was saved
    before the line is written; `kept` says where."""

    protocol: str
    seed: int
    schedules: LargeCount = 0
    virtual_us: LargeCount = 0
    events: LargeCount = 0
    failures: LargeCount = 0
    buckets: dict[str, LargeCount] = {}
    fault_coverage: dict[str, LargeCount] = {}
    kept: list[Bucket] = []
    problems: list[str] = []


class KnownBugSearched(JournalRow, tag="known-bug"):
    """A search for one known bug."""

    code: str
    name: str
    protocol: str
    breaks: str
    found: bool
    schedules: LargeCount
    core_s: Seconds


class DeterminismChecked(JournalRow, tag="determinism"):
    """Schedules run once more in another process. `differing` are those that came out otherwise."""

    protocol: str
    seed: int
    runs: LargeCount = 0
    differing: list[Schedule] = []


class Replayed(JournalRow, tag="replay"):
    """A saved schedule in the simulated world. `found` is the class of failure that a search saved
    it for, "" for other schedules."""

    file: str
    protocol: str
    expectation: Expectation
    met: bool
    verdict: str
    sentence: str
    bugs: tuple[str, ...] = ()
    faults: Number = -1
    found: str = ""


class Ran(JournalRow, tag="ran"):
    """A run of real processes, not judged yet: its folder, and why it was made ("storm", "replay",
    "canary", "system"). `kinds` are the fault kinds of a storm, `file` is the schedule of a replay.

    Of another system (`system`) `protocol` is its name with version and settings (`given`),
    `holds` says that this is a configuration in which it should lose nothing, and `options` are
    the words by which `floodmark run` runs a schedule on it."""

    why: str
    folder: str
    protocol: str
    bugs: tuple[str, ...] = ()
    kinds: str = ""
    file: str = ""
    expectation: Expectation = Expectation()
    system: str = ""
    version: str = ""
    given: str = ""
    holds: bool = False
    options: tuple[str, ...] = ()


class Judged(JournalRow, tag="judged"):
    """The verdict on a real run; `key` is that of its `Ran`.

    `broken` names, for each property that is broken, the class of its first anomaly. `kept` is
    the run's folder as long as that is kept.
    """

    verdict: str
    sentence: str
    broken: dict[str, str] = {}
    faults: LargeCount = 0
    kept: str = ""
    fault_coverage: dict[str, LargeCount] = {}


class Lost(JournalRow, tag="lost"):
    """A job that was begun and will not be done: its process died, or its run was cut off."""

    sentence: str


class Skipped(JournalRow, tag="skipped"):
    """Work that cannot be done on this machine, or that was given up: `key` names the kind of work,
    and the sentence says why. It is not tried again in this nightly run."""

    sentence: str


class Ended(JournalRow, tag="ended"):
    """The end of a session: finished, stopped, disk-full, or failed (of the harness itself)."""

    state: str


AnyRow = (
    Began
    | Searched
    | KnownBugSearched
    | DeterminismChecked
    | Replayed
    | Ran
    | Judged
    | Lost
    | Skipped
    | Ended
)
_decoder: Final = JsonReader(cast("type[AnyRow]", AnyRow))


def journal_of(store: Path, number: int) -> Path:
    """Return the path of the journal of a nightly run."""
    return store / FOLDER / f"{number:04d}.jsonl"


def numbers(store: Path) -> list[int]:
    """Return the nightly runs that have a journal, in order."""
    return sorted(int(f.stem) for f in (store / FOLDER).glob("*.jsonl") if f.stem.isdigit())


def read(path: Path) -> list[AnyRow]:
    """Return the lines of a journal; none if there is none. A half line at the end is left out.

    Raises StorageError for a line in between that is damaged.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {reason(error)}") from None
    found: list[AnyRow] = []
    # What follows the last newline was cut off by the end of the process that wrote it.
    for number, line in enumerate(lines[:-1], 1):
        try:
            found.append(_decoder.decode(line))
        except Unreadable as error:
            if number == len(lines) - 1:
                break
            raise StorageError(f"{path}:{number}: not a line of a journal: {error}") from None
    return found


class NightlyJournal:
    """The journal of the present nightly run: everything so far, and a way to add to it."""

    def __init__(self, path: Path) -> None:
        """Read what is there and go on after it. Raises StorageError."""
        self.rows: list[AnyRow] = read(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.read_bytes().endswith(b"\n"):
                # Half a line, of a write that was cut off, must not swallow the next one.
                whole = path.read_bytes().rpartition(b"\n")
                path.write_bytes(whole[0] + whole[1])
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {reason(error)}") from None
        self._file = AppendOnlyFile(path)

    def add(self, row: AnyRow) -> None:
        """Write a line. Raises StorageError, for instance on a full disk."""
        self._file.write(_encoder.encode(row) + b"\n")
        self.rows.append(row)

    def done(self) -> set[str]:
        """Return the keys of the jobs that are done, or lost for good."""
        return {row.key for row in self.rows if row.key and not isinstance(row, Judged)}

    def worked_s(self) -> float:
        """Return how long the nightly run has worked so far, over all its sessions."""
        return max((row.worked_s for row in self.rows), default=0.0)

    def unjudged(self) -> list[Ran]:
        """Real runs without a verdict."""
        judged = {row.key for row in self.rows if isinstance(row, Judged)}
        return [r for r in self.rows if isinstance(r, Ran) and r.key not in judged]

    def close(self) -> None:
        """Nothing more is added."""
        self._file.close()


def state_of(rows: Iterable[AnyRow]) -> str:
    """Return the state of the last session of a nightly run, "running" if that has no end."""
    state = "running"
    for row in rows:
        if isinstance(row, Began):
            state = "running"
        elif isinstance(row, Ended):
            state = row.state
    return state
