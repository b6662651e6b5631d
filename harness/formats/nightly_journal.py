"""The journal of a nightly run, `store/nightly/NNNN.jsonl`: one row for each finished job."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.formats.journal import (
    BeganRow,
    Ended,
    FinishedRow,
    JournalRow,
    Lost,
    SearchedRow,
    read_rows,
)
from harness.formats.nightly_run import FOLDER
from nemesis.formats.schedule import Expectation, Schedule
from node.formats.bounds import LargeCount, Number, Seconds


class Began(BeganRow, kw_only=True, tag="began"):
    """The first line of each session of a nightly run: what was requested, and on which machine.
    `systems` are the third-party systems, each with its settings as the command line names it."""

    number: LargeCount
    seed: int
    budget_s: Seconds
    cores: LargeCount
    started: str
    machine: str
    real: bool = True
    systems_share: LargeCount = 0
    systems: tuple[str, ...] = ()
    rows_share: LargeCount = 0


class DeterminismChecked(JournalRow, kw_only=True, tag="determinism"):
    """A check of determinism: some schedules of a protocol were run in two processes. `differing`
    are the schedules whose two digests differ."""

    protocol: str
    seed: int
    runs: LargeCount = 0
    differing: list[Schedule] = msgspec.field(default_factory=list)


class Replayed(JournalRow, kw_only=True, tag="replay"):
    """The replay of a saved schedule in the simulated world. `met`: whether it did what the
    schedule expects. `found` is the class of failure for which a search saved it, "" for another
    schedule."""

    file: str
    protocol: str
    expectation: Expectation
    met: bool
    verdict: str
    sentence: str
    bugs: tuple[str, ...] = ()
    faults: Number = -1
    found: str = ""


class Ran(JournalRow, kw_only=True, tag="ran"):
    """A run of real processes and its verdict. `why` it was made: "storm", "replay", "canary",
    "system" (a storm on a third-party system), or "row" (of `harness/systems/rows.json`). `lost`
    counts lost records. `kinds` are the fault kinds of a storm, `file` is
    the schedule of a replay. `broken` maps each broken property to the class of its first anomaly.
    `kept` is the run's folder, "" if it was removed. For a third-party `system`, `protocol` is its
    name with version and settings (`given`), `holds` says that this configuration should lose no
    data, and `options` are the options of `floodmark run` that select it."""

    why: str
    protocol: str
    verdict: str
    sentence: str
    bugs: tuple[str, ...] = ()
    kinds: str = ""
    file: str = ""
    expectation: Expectation = Expectation()
    broken: dict[str, str] = msgspec.field(default_factory=dict)
    faults: LargeCount = 0
    kept: str = ""
    fault_coverage: dict[str, LargeCount] = msgspec.field(default_factory=dict)
    system: str = ""
    version: str = ""
    given: str = ""
    holds: bool = False
    options: tuple[str, ...] = ()
    lost: LargeCount = 0


class Skipped(JournalRow, kw_only=True, tag="skipped"):
    """Work that cannot be done on this machine, or that was given up. `key` names the kind of work,
    the sentence says why. This nightly run does not try it again."""

    sentence: str


AnyRow = (
    Began | SearchedRow | FinishedRow | DeterminismChecked | Replayed | Ran | Lost | Skipped | Ended
)


def journal_of(store: Path, number: int) -> Path:
    """Return the path of the journal of the nightly run with this number."""
    return store / FOLDER / f"{number:04d}.jsonl"


def numbers(store: Path) -> list[int]:
    """Return the numbers of the nightly runs that have a journal, in rising order."""
    return sorted(int(f.stem) for f in (store / FOLDER).glob("*.jsonl") if f.stem.isdigit())


def read(path: Path) -> list[AnyRow]:
    """Return the lines of a nightly run's journal. Raises StorageError if it is damaged."""
    return read_rows(path, AnyRow)
