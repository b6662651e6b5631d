"""Faults on processes: their base, which acts node by node, and kill, pause and resume."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from nemesis.faults.kind import ONE_NODE, Consequence, Drawing, FaultKind, Healed, Injected, Site
from nemesis.processes import CannotAct, refuse_client
from nemesis.world import World
from node.formats.errors import FloodmarkError


class _Done(NamedTuple):
    """The nodes that were acted on, the reasons for each of the others, and notes."""

    nodes: tuple[str, ...]
    refused: tuple[str, ...]
    notes: tuple[str, ...] = ()


class ProcessFault(FaultKind, frozen=True, kw_only=True):
    """A fault on the processes of the nodes `on`. Without an `undo` of its own the heal starts
    again the nodes that it brought down."""

    on: str

    on_processes = True
    consequences = frozenset({Consequence.ELECTION, Consequence.ISR_CHANGE, Consequence.RESTART})

    def act(self, site: Site, node: str) -> str | None:
        """Carry the fault out on one node; return a note or None. Raises FloodmarkError."""
        raise NotImplementedError

    def undo(self, site: Site, node: str) -> None:
        """Undo the fault on one node. Raises FloodmarkError."""
        site.processes.start_again(site.number, node)

    def inject(self, site: Site) -> Injected:
        """Act on each node. Raises FloodmarkError if it failed on all of them."""
        return self.on_each(site, lambda node: self.act(site, node))

    def on_each(self, site: Site, act: Callable[[str], str | None]) -> Injected:
        """Do `act`, which returns a note or None, on each node. Raises FloodmarkError if it failed
        on all of them."""
        done = _each(site.nodes, act)
        if not done.nodes:
            raise CannotAct("; ".join(done.refused))
        return Injected(nodes=done.nodes, detail="; ".join((*done.notes, *done.refused)))

    def heal(self, injected: Injected, site: Site) -> Healed:
        """Undo the fault on each node, as far as it is still in force."""
        done = _each(injected.nodes, lambda node: self.undo(site, node))
        return Healed(nodes=done.nodes, detail="; ".join(done.refused), effect=injected.effect)


def _each(nodes: Iterable[str], act: Callable[[str], str | None]) -> _Done:
    """Act on every node; an error of one does not keep the others from it."""
    done, refused, notes = [], [], []
    for node in nodes:
        try:
            refuse_client(node)
            note = act(node)
        except FloodmarkError as error:
            refused.append(str(error))
        else:
            done.append(node)
            if note:
                notes.append(note)
    return _Done(tuple(done), tuple(refused), tuple(notes))


class Kill(ProcessFault, frozen=True, kw_only=True, tag="kill"):
    """The node gets a SIGKILL; it starts again after `for_ms`, by a `restart`, or at the end."""

    letter = "K"
    colour = "var(--bad)"
    ends_process = True
    drawing = Drawing(
        targets=(
            *ONE_NODE,
            *(("minority", 1), ("majority", 0.7), ("all", 0.7), ("controller", 1), ("voters", 1)),
        ),
        delays_follower=(6,),
        fails_leader=(0,),
        restarts=(0,),
    )

    def act(self, site: Site, node: str) -> None:
        site.processes.kill(site.number, node)


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
        return tuple(node for node in nodes if world.is_paused(node))

    def act(self, site: Site, node: str) -> None:
        site.processes.resume(node)
