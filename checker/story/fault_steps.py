"""The steps of a story that are about faults, and their sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from checker.checks.findings import listing
from checker.formats.story import StoryStep
from checker.story.evidence import ActiveFault
from nemesis.faults.words import place
from node.formats.trace import STARTED

BEGINS: Final = "fault"
ENDS: Final = "fault-end"


class ToldSteps(NamedTuple):
    """All steps of a story by time, each with whether a shortened story leaves it out. `cause` is
    the step that caused the failure, `loss` the one that lost the record, `led_by` the begin or end
    of the fault that made a leader without it lead; None if there is none. `active` are numbers of
    faults, as in `checker.formats.story.Story`."""

    steps: list[tuple[StoryStep, bool]]
    cause: StoryStep | None
    loss: StoryStep | None
    led_by: StoryStep | None = None
    active: tuple[int, ...] = ()


def fault_name(fault: ActiveFault, *, role: bool = True) -> str:
    """Name a fault and its nodes, as in "kill n1 and n2"; with `role`, also the role by which the
    schedule chose the node, as in "kill n1, the leader of p0"."""
    if not fault.nodes:
        return f"{fault.what} {fault.on}".rstrip()
    chosen, _, partition = fault.on.partition(":")
    one = role and partition and len(fault.nodes) == 1
    what = f", the {chosen.removeprefix('another-')} of {place(partition)}" if one else ""
    return f"{fault.what} {listing(list(fault.nodes))}{what}"


def in_force(faults: Iterable[ActiveFault], first_us: int, last_us: int) -> list[ActiveFault]:
    """Return the faults in force at any time in first_us..last_us."""
    return [f for f in faults if f.from_us <= last_us and f.until_us >= first_us]


def fault_steps(fault: ActiveFault) -> list[StoryStep]:
    """Return the steps of a story at which a fault begins and, if it lasted and ended, ends."""
    name = fault_name(fault)
    begins = StoryStep(
        t_us=fault.from_us,
        text=f"Fault: {name}.",
        kind=BEGINS,
        node=fault.nodes[0] if fault.nodes else "",
        fault=fault.number,
        name=name,
    )
    if not fault.lasts or not fault.ended:
        return [begins]
    name = fault_name(fault, role=False)
    text = f"Fault ends: {name}."
    return [begins, replace(begins, t_us=fault.until_us, text=text, kind=ENDS, name=name)]


def with_faults(
    steps: Iterable[tuple[StoryStep, bool]], faults: Iterable[ActiveFault], last_us: int
) -> list[tuple[StoryStep, bool]]:
    """Return the steps by time, with those at which faults begin and, until `last_us`, end. A fault
    may wait for an event, and none has its effect before it begins: what nodes did in the same
    microsecond comes first, except what a node does from its start on. A step of the kind "log"
    says what holds from then on."""
    made = list[tuple[tuple[int, int], StoryStep, bool]]()
    start_us = -1
    for step, minor in sorted(steps, key=lambda pair: pair[0].t_us):
        start_us = step.t_us if step.kind == STARTED else start_us
        late = step.t_us == start_us or step.kind == "log"
        made.append(((step.t_us, 3 if late else 0), step, minor))
    for fault in faults:
        begins, *ends = fault_steps(fault)
        made.append(((begins.t_us, 1), begins, False))
        made += [((step.t_us, 2), step, True) for step in ends if step.t_us <= last_us]
    return [(step, minor) for _, step, minor in sorted(made, key=lambda each: each[0])]
