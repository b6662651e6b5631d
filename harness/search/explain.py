"""Why a shrunk schedule fails: what happens when each of its faults is left out in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from nemesis.schedule import Link, Schedule


class Counterfactual(msgspec.Struct, frozen=True, kw_only=True):
    """One change to the schedule, in words, and whether it still fails in the same way."""

    without: str
    fails: bool


def counterfactuals(
    schedule: Schedule, fails_alike: Callable[[Schedule], bool]
) -> list[Counterfactual]:
    """Each fault left out, and each link rule with one message less to act on."""
    return [
        Counterfactual(without=words, fails=fails_alike(changed))
        for words, changed in _changes(schedule)
    ]


def _changes(schedule: Schedule) -> Iterator[tuple[str, Schedule]]:
    for index, fault in enumerate(schedule.faults):
        what = f"fault {index} ({fault.__struct_config__.tag})"
        rest = (*schedule.faults[:index], *schedule.faults[index + 1 :])
        yield what, replace(schedule, faults=rest)
        if isinstance(fault, Link) and fault.limit is not None and fault.limit > 1:
            weaker = replace(fault, limit=fault.limit - 1)
            faults = (*schedule.faults[:index], weaker, *schedule.faults[index + 1 :])
            yield f"the last message of {what}", replace(schedule, faults=faults)
