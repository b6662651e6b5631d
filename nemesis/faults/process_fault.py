"""The base of faults on processes: they act node by node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from nemesis.faults.kind import Consequence, FaultKind, Healed, Injected, Site
from nemesis.processes import CannotAct
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
            if node[0] == "c":
                raise CannotAct(f"{node} is a client: only its links can fail")
            note = act(node)
        except FloodmarkError as error:
            refused.append(str(error))
        else:
            done.append(node)
            if note:
                notes.append(note)
    return _Done(tuple(done), tuple(refused), tuple(notes))
