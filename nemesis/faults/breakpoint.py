"""Breakpoint: a process stops at an exact place of a turn; and release, which undoes a fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

import msgspec

from nemesis.faults.kind import Effect, FaultKind, Healed, Injected, Site
from nemesis.faults.words import conditions, nth, target
from nemesis.formats.cluster_spec import AtLeastOne, Cluster, Workload, wrong_event
from nemesis.world import BreakAt
from node.core.turn import TurnStep
from node.formats.errors import FloodmarkError


class Break(FaultKind, frozen=True, kw_only=True, tag="break"):
    """A breakpoint: a process stops in the turn that emits the `nth` matching trace event, and goes
    on `for_ms` after that.

    It is armed when the fault is injected, in the processes of the nodes `on` and in those that
    start later. Each process counts events from then on, in turns that have the step, and one
    process of each node is stopped. `before` names a step of the turn. "send": all is on disk and
    in the trace, and no message has left but those that do not wait for the disk. "commit": nothing
    is on disk, and only such messages have left, with the trace before them. "trace": on disk
    alone; nothing at all in a turn with such messages, before which "send-early" stands."""

    on: str
    event: str
    match: dict[str, Any] = msgspec.field(default_factory=dict)
    nth: AtLeastOne = 1
    before: Literal["trace", "send-early", "commit", "send"] = "send"

    letter = "T"
    colour = "var(--info)"
    pattern = "bars"
    drawing = "a breakpoint at an event takes a scenario in which the event comes"

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        """Yield the problems that any fault can have, and an event that can never match."""
        yield from super().problems(cluster, workload)
        yield from wrong_event(self.event, self.match)

    def inject(self, site: Site) -> Injected:
        """Arm the breakpoint on every node, or, if that raises FloodmarkError, on none."""
        point = BreakAt(self.event, self.match, self.nth, TurnStep(self.before))
        armed: dict[int, str] = {}
        try:
            for node in site.nodes:
                armed[site.world.add_breakpoint(node, point)] = node
        except FloodmarkError:
            for number, node in armed.items():
                with suppress(FloodmarkError):
                    site.world.remove_breakpoint(node, number)
            raise
        return Injected(nodes=site.nodes, breakpoints=armed)

    def heal(self, injected: Injected, site: Site) -> Healed:
        """Disarm the breakpoint; processes that have stopped at it go on."""
        failed = []
        for number, node in injected.breakpoints.items():
            try:
                site.world.remove_breakpoint(node, number)
            except FloodmarkError as error:
                failed.append(f"{node}: {error}")
        stopped = tuple(injected.stopped)
        return Healed(
            nodes=injected.nodes,
            detail="; ".join(failed),
            failed=tuple(failed),
            effect=Effect(nodes=stopped, counts={"stopped": len(stopped)}),
        )

    def words(self) -> str:
        """Return the fault as a sentence."""
        fields = conditions(self.match)
        return (
            f"Stop {target(self.on)} before the {self.before} of the turn with the "
            f"{nth(self.nth)} '{self.event}' event{f' with {fields}' if fields else ''}"
        )


class Release(FaultKind, frozen=True, kw_only=True, tag="release"):
    """Undo the fault with the name `of` before its time: messages that it held go on, and so do its
    processes and links."""

    of: str

    letter = "E"
    colour = "var(--good)"
    lasts = False
    drawing = "a drawn fault ends by itself"
    sentence = "Undo '{of}'"

    @property
    def undoes(self) -> str:
        """The name of the fault that this one undoes."""
        return self.of

    def inject(self, site: Site) -> Injected:
        """Heal the named fault. Raises FloodmarkError if it is not in force."""
        return Injected(nodes=site.undo(self.of))
