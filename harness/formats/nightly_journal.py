"""The journal of a nightly run, `store/nightly/NNNN.jsonl`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.formats.journal import BeganRow, Ended, Finished, JournalRow, Lost, Searched, read_rows
from harness.formats.nightly_run import FOLDER
from nemesis.formats.schedule import Expectation, Schedule
from node.formats.bounds import LargeCount, Number, Seconds


class Began(BeganRow, kw_only=True, tag="began"):
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


class DeterminismChecked(JournalRow, kw_only=True, tag="determinism"):
    """Schedules that were run once more in another process. `differing` are those with another
    digest."""

    protocol: str
    seed: int
    runs: LargeCount = 0
    differing: list[Schedule] = msgspec.field(default_factory=list)


class Replayed(JournalRow, kw_only=True, tag="replay"):
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


class Ran(JournalRow, kw_only=True, tag="ran"):
    """A run of real processes and its verdict, and why it was made ("storm", "replay", "canary",
    "system"). `kinds` are the fault kinds of a storm, `file` is the schedule of a replay.

    `broken` names, for each property that is broken, the class of its first anomaly. `kept` is the
    run's folder if that is kept.

    Of another system (`system`) `protocol` is its name with version and settings (`given`),
    `holds` says that this is a configuration in which it should lose nothing, and `options` are
    the words by which `floodmark run` runs a schedule on it."""

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


class Skipped(JournalRow, kw_only=True, tag="skipped"):
    """Work that cannot be done on this machine, or that was given up: `key` names the kind of work,
    and the sentence says why. It is not tried again in this nightly run."""

    sentence: str


AnyRow = Began | Searched | Finished | DeterminismChecked | Replayed | Ran | Lost | Skipped | Ended


def journal_of(store: Path, number: int) -> Path:
    """Return where the journal of a nightly run is kept."""
    return store / FOLDER / f"{number:04d}.jsonl"


def numbers(store: Path) -> list[int]:
    """Return the nightly runs that have a journal, in order."""
    return sorted(int(f.stem) for f in (store / FOLDER).glob("*.jsonl") if f.stem.isdigit())


def read(path: Path) -> list[AnyRow]:
    """Return the lines of a journal. Raises StorageError for one that is damaged."""
    return read_rows(path, AnyRow)
