"""Pause and resume: the process of a node is suspended, its connections stay up."""

from __future__ import annotations

from collections.abc import Sequence

from nemesis.faults.kill import Kill
from nemesis.faults.kind import Consequence, Drawing, Site
from nemesis.faults.process_fault import ProcessFault
from nemesis.world import World


class Pause(ProcessFault, frozen=True, kw_only=True, tag="pause"):
    """The node gets a SIGSTOP; it goes on after `for_ms`, by a `resume`, or at the final heal."""

    letter = "P"
    colour = "var(--info)"
    pattern = "bars"
    consequences = frozenset({Consequence.ELECTION, Consequence.ISR_CHANGE})
    drawing = Drawing(
        targets=Kill.drawing.targets, delays_follower=(1,), fails_leader=(2,), restarts=(1,)
    )

    def candidates(self, world: World, nodes: Sequence[str]) -> tuple[str, ...]:
        """Return the nodes that run and are not paused."""
        return tuple(n for n in nodes if world.is_up(n) and not world.is_paused(n))

    def act(self, site: Site, node: str) -> None:
        site.processes.pause(site.number, node)

    def undo(self, site: Site, node: str) -> None:
        """Continue the process, unless another fault has paused it again."""
        site.processes.resume_again(site.number, node)


class Resume(ProcessFault, frozen=True, kw_only=True, tag="resume"):
    """A paused node is continued (SIGCONT)."""

    letter = "U"
    colour = "var(--good)"
    lasts = False
    drawing = "a drawn pause ends by itself"

    def candidates(self, world: World, nodes: Sequence[str]) -> tuple[str, ...]:
        """Return the nodes that are paused."""
        return tuple(node for node in nodes if world.is_paused(node))

    def act(self, site: Site, node: str) -> None:
        site.processes.resume(node)
