"""The sentences and steps of a story about faults."""

from __future__ import annotations

from checker.checks.findings import listing
from checker.formats.story import StoryStep
from checker.story.evidence import ActiveFault


def fault_name(fault: ActiveFault, *, role: bool = True) -> str:
    """Name a fault and its nodes: "kill n1 and n2", with the `role` by which a node was chosen."""
    if not fault.nodes:
        return f"{fault.what} {fault.on}".rstrip()
    chosen, _, partition = fault.on.partition(":")
    one = role and partition and len(fault.nodes) == 1
    what = f", the {chosen} of {partition}" if one else ""
    return f"{fault.what} {listing(list(fault.nodes))}{what}"


def fault_end_step(fault: ActiveFault) -> StoryStep:
    """Return the step at which a fault ends."""
    text = f"Fault ends: {fault_name(fault, role=False)}."
    return StoryStep(t_us=fault.until_us, text=text, kind="fault-end")


def fault_step(fault: ActiveFault) -> StoryStep:
    """Return the step at which a fault begins."""
    node = fault.nodes[0] if fault.nodes else ""
    return StoryStep(
        t_us=fault.from_us, text=f"Fault: {fault_name(fault)}.", kind="fault", node=node
    )
