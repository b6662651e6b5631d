"""The sentences and steps of a story about faults, and the steps that a builder hands over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from checker.checks.findings import listing
from checker.formats.story import StoryStep
from checker.story.evidence import ActiveFault


class ToldSteps(NamedTuple):
    """All steps by time, each with whether a short story leaves it out, and which of them are the
    cause and the loss."""

    steps: list[tuple[StoryStep, bool]]
    cause: StoryStep | None
    loss: StoryStep | None


def fault_name(fault: ActiveFault, *, role: bool = True) -> str:
    """Name a fault and its nodes: "kill n1 and n2", with the `role` by which a node was chosen."""
    if not fault.nodes:
        return f"{fault.what} {fault.on}".rstrip()
    chosen, _, partition = fault.on.partition(":")
    one = role and partition and len(fault.nodes) == 1
    what = f", the {chosen.removeprefix('another-')} of {partition}" if one else ""
    return f"{fault.what} {listing(list(fault.nodes))}{what}"


def fault_step(fault: ActiveFault) -> StoryStep:
    """Return the step at which a fault begins."""
    node = fault.nodes[0] if fault.nodes else ""
    return StoryStep(
        t_us=fault.from_us, text=f"Fault: {fault_name(fault)}.", kind="fault", node=node
    )


def active_faults(
    faults: Iterable[ActiveFault], first_us: int, last_us: int
) -> list[tuple[ActiveFault, StoryStep]]:
    """Return the faults active between `first_us` and `last_us`, each with its first story step."""
    return [(f, fault_step(f)) for f in faults if f.from_us <= last_us and f.until_us >= first_us]


def with_faults(
    steps: Iterable[tuple[StoryStep, bool]],
    faults: Iterable[tuple[ActiveFault, StoryStep]],
    last_us: int,
) -> list[tuple[StoryStep, bool]]:
    """Return the steps together with those of faults, with their ends up to `last_us`."""
    made = list(steps)
    for fault, begins in faults:
        made.append((begins, False))
        if fault.lasts and fault.ended and fault.until_us <= last_us:
            text = f"Fault ends: {fault_name(fault, role=False)}."
            made.append((StoryStep(t_us=fault.until_us, text=text, kind="fault-end"), True))
    return sorted(made, key=lambda pair: (pair[0].t_us, pair[0].kind != "fault"))
