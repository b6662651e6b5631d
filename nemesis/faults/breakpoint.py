"""Breakpoint: a process stops at an exact place of a turn. And release, which undoes a fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

import msgspec

from nemesis.faults.kind import Effect, FaultKind, Healed, Injected, Site
from nemesis.faults.words import conditions, nth, target
from nemesis.formats.cluster_spec import AtLeastOne, Cluster, Workload, wrong_event
from nemesis.world import BreakAt
from node.formats.errors import FloodmarkError


class Break(FaultKind, frozen=True, kw_only=True, tag="break"):
    """A breakpoint: the process stops in the turn that emits the `nth` event that matches.

    Armed when the fault is injected, in the processes of `on` and in those that are started later;
    it counts from then on, in each process apart, and stops one process of a node once. `before`
    says where in the turn: "send", everything is on disk and in the trace, and no message of the
    turn has left; "commit", nothing of the turn has been written, and only what does not wait for
    the disk has left. `for_ms` counts from the stop.
    """

    on: str
    event: str
    match: dict[str, Any] = msgspec.field(default_factory=dict)
    nth: AtLeastOne = 1
    before: Literal["send", "commit"] = "send"

    letter = "T"
    colour = "var(--info)"
    pattern = "bars"
    drawing = "a breakpoint at an event takes a scenario in which the event comes"

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        """Yield the problems any fault can have, and an event that can never match."""
        yield from super().problems(cluster, workload)
        yield from wrong_event(self.event, self.match)

    def inject(self, site: Site) -> Injected:
        """Arm it on every node, or on none. Raises FloodmarkError then."""
        point = BreakAt(self.event, self.match, self.nth, self.before)
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
        """Disarm it; the processes that stand at it go on."""
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
    """Undo the fault called `of` now: its held messages go on, its processes and links too."""

    of: str

    letter = "E"
    colour = "var(--good)"
    lasts = False
    drawing = "a drawn fault ends by itself"
    sentence = "Undo '{of}'"

    @property
    def undoes(self) -> str:
        """The name of that fault."""
        return self.of

    def inject(self, site: Site) -> Injected:
        """Heal that self. Raises FloodmarkError when it is not in force."""
        return Injected(nodes=site.undo(self.of))
