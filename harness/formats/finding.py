"""A finding: the record and the folder that a search keeps for each class of failure.

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
"""The folder of findings in a store; each finding has a folder in it."""
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
    """The number of runs of one schedule (`of`), and how many of them `failed` in the same way as
    the finding."""

    failed: LargeCount = 0
    of: LargeCount = 0

    def __str__(self) -> str:
        return f"{self.failed} of {self.of}"


class WithoutFault(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of the smallest schedule with one of its faults left out: the fault's index, its
    description, and how many runs failed."""

    fault: Number
    words: str
    counts: RunCounts


class SafeRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the smallest schedule on the configuration that the system declares safe."""

    verdict: str
    sentence: str = ""
    folder: str = ""


class FoundOn(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `finding.json` that say on what its schedules fail, and which run shows it."""

    world: World = "simulated"
    subject: str = ""
    settings: dict[str, str] = {}
    links: str = ""
    disk: str = ""
    run: str = ""

    def folder_of_run(self, finding: Path) -> Path | None:
        """Return the run folder that shows a finding in its store; None if it is not there."""
        if not self.run:
            return None
        # The store may have been moved, or the command begun in another folder.
        parts = Path(self.run).parts[-2:]
        places = (finding.resolve().parent.parent.joinpath(*parts), Path(self.run))
        return next((place for place in places if place.is_dir()), None)


class Finding(FoundOn, frozen=True, kw_only=True):
    """`finding.json`: a failure of a protocol in simulated worlds, or of a system of real
    processes, and the smallest known schedule that shows it.

    `subject` is the protocol or system, `bucket` the class of the failure, `anomaly` the first
    anomaly of the broken property. The failure was first shown by the schedule `number` of `seed`,
    after `schedules_before` others and `seconds_before` seconds of the search; `family` is the kind
    of schedule.

    `faults` describes the faults of the smallest schedule. `counts` are runs of the smallest
    schedule, `drawn_counts` of the one that was drawn. `shrunk`: shrinking was finished, not ended
    by a limit. `form_failures` is in how many simulated runs with real latency the schedule for
    real processes fails, 0 if there is none.

    For real processes only: `settings`, `links` and `disk` are those of the system in the failing
    run, as in run.json; `disks` is how many disks lost data, `on_links` whether there were
    faults on links, `run` the folder of a failing run of the smallest schedule. `safe_settings` is
    None if the system declares no safe configuration.
    """

    subject: str
    version: str = ""
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
    form_failures: LargeCount = msgspec.field(name="failing_worlds", default=0)
    disks: LargeCount = 0
    on_links: bool = False
    safe_settings: dict[str, str] | None = None
    safe_runs: tuple[SafeRun, ...] = ()
    format: Number = FORMAT


def is_undelivered(about: str, anomaly: str) -> bool:
    """Return whether a failure is about acknowledged writes that no read returned but that some
    replica's log has: the cluster does not serve them, but they may not be lost."""
    return about == LOST_WRITES and anomaly == UNSEEN


class Counterfactual(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a schedule with one fault or message left out, and whether it still fails in the
    same way. `kind`: "fault" (its index is `fault`), "message" (the one that a fault affected at
    `t_us`), or "messages" (all of one kind on one link). `without` describes what is left out.
    `instead` is the class of the failure if the run fails in another way, "" otherwise."""

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
    """`explain.json`: why a schedule fails in the simulated world. `schedule` is the digest of the
    schedule, `bucket` the class of the failure. `sentences` tell what happened to the record at
    `offset` in `partition` ("" and -1 if the failure is about no record). Times are virtual; the
    storm began at `storm_us`. `counterfactuals` are runs with one fault or message left out;
    `untried` is the number of further messages that faults affected, which were not left out one by
    one."""

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
    return (path / RECORD).is_file() or (path / EXPLANATION).is_file()
