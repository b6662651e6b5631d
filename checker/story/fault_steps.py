"""The steps of a story that are about faults, and their sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from checker.checks.findings import listing
from checker.formats.story import StoryStep
from checker.story.evidence import ActiveFault


class ToldSteps(NamedTuple):
    """All steps of a story by time, each with whether a shortened story leaves it out. `cause` is
    the step that caused the failure, `loss` the one that lost the record; None if there is none."""

    steps: list[tuple[StoryStep, bool]]
    cause: StoryStep | None
    loss: StoryStep | None


def fault_name(fault: ActiveFault, *, role: bool = True) -> str:
    """Name a fault and its nodes, as in "kill n1 and n2"; with `role`, also the role by which the
    schedule chose the node, as in "kill n1, the leader of p0"."""
    if not fault.nodes:
        return f"{fault.what} {fault.on}".rstrip()
    chosen, _, partition = fault.on.partition(":")
    one = role and partition and len(fault.nodes) == 1
    what = f", the {chosen.removeprefix('another-')} of {partition}" if one else ""
    return f"{fault.what} {listing(list(fault.nodes))}{what}"


def fault_step(fault: ActiveFault) -> StoryStep:
    """Return the step of a story at which a fault begins."""
    node = fault.nodes[0] if fault.nodes else ""
    return StoryStep(
        t_us=fault.from_us, text=f"Fault: {fault_name(fault)}.", kind="fault", node=node
    )


def active_faults(
    faults: Iterable[ActiveFault], first_us: int, last_us: int
) -> list[tuple[ActiveFault, StoryStep]]:
    """Return the faults in force at any time in first_us..last_us, with their first steps."""
    return [(f, fault_step(f)) for f in faults if f.from_us <= last_us and f.until_us >= first_us]


def with_faults(
    steps: Iterable[tuple[StoryStep, bool]],
    faults: Iterable[tuple[ActiveFault, StoryStep]],
    last_us: int,
) -> list[tuple[StoryStep, bool]]:
    """Return the steps by time, with those at which faults begin and, until `last_us`, end."""
    made = list(steps)
    for fault, begins in faults:
        made.append((begins, False))
        if fault.lasts and fault.ended and fault.until_us <= last_us:
            text = f"Fault ends: {fault_name(fault, role=False)}."
            made.append((StoryStep(t_us=fault.until_us, text=text, kind="fault-end"), True))
    return sorted(made, key=lambda pair: (pair[0].t_us, pair[0].kind != "fault"))
