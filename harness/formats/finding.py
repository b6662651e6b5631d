"""A finding: the folder that a search keeps of each class of failure (docs/file-formats.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec

from checker.formats.story import StoryStep
from node.formats.bounds import LargeCount, Number, Offset, OptionalTime, Time

FOLDER: Final = "finding"
"""The copy of a finding in the folder of a run that replays it."""
SCHEDULE: Final = "schedule.json"
"""The shrunk schedule, for the simulated world."""
DRAWN: Final = "drawn.json"
"""The schedule as it was drawn, before shrinking."""
REAL: Final = "real.json"
"""The schedule for real processes, if there is one."""
SIMULATED: Final = "simulated"
"""The folder, in that of a finding, of its run in the simulated world."""
EXPLANATION: Final = "explain.json"


class Counterfactual(msgspec.Struct, frozen=True, kw_only=True):
    """One thing left out, in words, and whether the schedule still fails in the same way.

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
