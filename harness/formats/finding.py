"""A finding: the record and the folder that a search keeps of each class of failure.

docs/file-formats.md has the files of the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec

from checker.formats.anomalies import LOST_WRITES
from checker.formats.story import StoryStep
from nemesis.formats.schedule import Schedule
from node.formats.bounds import LargeCount, Number, Offset, OptionalTime, Seconds, Time

STORE_FOLDER: Final = "findings"
"""In the store; each finding has a folder of its own in it."""
FOLDER: Final = "finding"
"""The copy of a finding in the folder of a run that replays it."""
RECORD: Final = "finding.json"
README: Final = "README.md"
SCHEDULE: Final = "schedule.json"
"""The smallest schedule known."""
DRAWN: Final = "drawn.json"
"""The schedule as it was drawn, before shrinking."""
REAL: Final = "real.json"
"""The schedule for real processes, if there is one."""
SIMULATED: Final = "simulated"
"""The folder, in that of a finding, of its run in the simulated world."""
EXPLANATION: Final = "explain.json"
FORMAT: Final = 2
UNSEEN: Final = "unseen"
World = Literal["simulated", "real"]


class RunCounts(msgspec.Struct, frozen=True, kw_only=True):
    """In how many of how many runs of one schedule the subject failed in the same way."""

    failed: LargeCount = 0
    of: LargeCount = 0

    def __str__(self) -> str:
        return f"{self.failed} of {self.of}"


class WithoutFault(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the smallest schedule without one of its faults."""

    fault: Number
    words: str
    counts: RunCounts


class SafeRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the smallest schedule on the configuration that is called safe."""

    verdict: str
    sentence: str = ""
    folder: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`finding.json`: a failure of a protocol in simulated worlds, or of a system of real
    processes, and the smallest schedule known that shows it.

    `subject` is the protocol or system. `bucket` is the class of the failure, `anomaly` the first
    one of its property. The schedule `number` of `seed` showed it first, after `schedules_before`
    others and `seconds_before` seconds of the search; `family` is the kind of schedule.

    `faults` describes the smallest schedule. `counts` are of the smallest schedule, `drawn_counts`
    of the drawn one. `shrunk`: no smaller one was found, and the time sufficed to look. `stability`
    is in how many of 20 jittered worlds the smallest schedule fails, -1 if that was not measured;
    `failing_worlds` the same of the schedule for real processes, 0 if there is none.

    Of real processes only: how many `disks` lost something, and whether faults were `on_links`.
    `run` is the folder of a failing run of the smallest schedule. `safe_settings` is None if the
    system declares no safe configuration.
    """

    world: World = "simulated"
    subject: str
    version: str = ""
    settings: dict[str, str] = {}
    bucket: str
    property: str
    anomaly: str = ""
    sentence: str
    seed: int = 0
    number: LargeCount = 0
    family: str = ""
    schedules_before: LargeCount = 0
    seconds_before: Seconds = 0.0
    drawn: Schedule
    smallest: Schedule
    faults: tuple[str, ...] = ()
    shrunk: bool = False
    shrink_runs: LargeCount = 0
    counts: RunCounts = RunCounts()
    drawn_counts: RunCounts = RunCounts()
    without: tuple[WithoutFault, ...] = ()
    stability: Number = -1
    failing_worlds: LargeCount = 0
    disks: LargeCount = 0
    on_links: bool = False
    run: str = ""
    safe_settings: dict[str, str] | None = None
    safe_runs: tuple[SafeRun, ...] = ()
    format: Number = FORMAT


def is_undelivered(about: str, anomaly: str) -> bool:
    """Return whether acknowledged writes are missing from the reads, and still in some log: then a
    cluster does not serve them, and nothing says that they are gone."""
    return about == LOST_WRITES and anomaly == UNSEEN


class Counterfactual(msgspec.Struct, frozen=True, kw_only=True):
    """One thing left out, with its description, and whether the schedule still fails in the same
    way.

    `kind`: a "fault" (its index is `fault`), a "message" (affected at `t_us`), or all "messages" of
    one kind on one link. `instead` is the class of another failure that came instead, "" if none.
    """

    kind: Literal["fault", "message", "messages"]
    without: str
    fails: bool
    instead: str = ""
    fault: Number = -1
    t_us: OptionalTime = -1
    sender: str = ""
    receiver: str = ""
    message: str = ""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`explain.json`: why a schedule fails in the simulated world.

    `schedule` is its digest, `bucket` the class of the failure. `sentences` tell what happened to
    `offset` in `partition` (both absent when no record is concerned); times are virtual, the storm
    began at `storm_us`. Faults affected `untried` more messages that were not left out one by one.
    """

    schedule: str = ""
    bucket: str = ""
    property: str = ""
    sentence: str = ""
    storm_us: Time = 0
    partition: str = ""
    offset: Offset = -1
    sentences: tuple[StoryStep, ...] = ()
    counterfactuals: tuple[Counterfactual, ...] = ()
    untried: LargeCount = 0
    format: Number = 1


def is_finding(path: Path) -> bool:
    """Return whether a folder is what a search kept of a failure."""
    return (path / EXPLANATION).is_file()
