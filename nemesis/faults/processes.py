"""Faults on processes, node by node, with the memory that lets them overlap.

The memory is who brought a node down, or paused it, last: a heal undoes only what its own fault
did. A kill whose victim was restarted and killed again by another fault leaves the healing to
that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from nemesis.view import ClusterView
from nemesis.world import World
from node.formats.errors import FloodmarkError


class Done(NamedTuple):
    """The nodes that were acted on, for each of the others why not, and what there is to tell."""

    nodes: tuple[str, ...]
    refused: tuple[str, ...]
    notes: tuple[str, ...] = ()


class _Refused(FloodmarkError):
    """This node cannot be acted on as it is."""


class ProcessFaults:
    """Kills, starts, pauses and resumes the nodes of one world, and keeps the view informed."""

    def __init__(self, world: World, view: ClusterView) -> None:
        self._world = world
        self._view = view
        self._killed_by: dict[str, int] = {}
        self._paused_by: dict[str, int] = {}

    def inject(self, what: str, fault: int, nodes: Iterable[str]) -> Done:
        """Carry out `what` for fault number `fault`."""
        acts: dict[str, Callable[[int, str], None]] = {
            "kill": self._kill,
            "stop": self._stop,
            "restart": self._restart,
            "pause": self._pause,
            "resume": self._resume,
        }
        return _each(nodes, lambda node: acts[what](fault, node))

    def power_cut(self, fault: int, nodes: Iterable[str], keep: Callable[[], float]) -> Done:
        """Cut the power of these nodes; `keep` says the share of unsynced bytes one keeps."""

        def cut(node: str) -> str:
            self._require_up(node)
            before, after = self._world.power_cut(node, keep())
            self._down(fault, node)
            return f"{node} kept {after} of {before} unsynced bytes"

        return _each(nodes, cut)

    def upgrade(self, fault: int, nodes: Iterable[str], protocol: str) -> Done:
        """Restart these nodes with another protocol."""

        def upgrade(node: str) -> None:
            self._world.set_protocol(node, protocol)
            self._restart(fault, node)

        return _each(nodes, upgrade)

    def heal(self, what: str, fault: int, nodes: Iterable[str]) -> Done:
        """Undo what `fault` did to these nodes, as far as it still lasts."""
        acts = {
            "kill": self._undo_kill,
            "power-cut": self._undo_kill,
            "stop": self._undo_kill,
            "pause": self._undo_pause,
        }
        return _each(nodes, lambda node: acts[what](fault, node))

    def heal_all(self, nodes: Iterable[str]) -> Done:
        """Resume whoever is paused and start whoever is down; tells whom that concerned."""
        hurt = [n for n in nodes if not self._world.is_up(n) or self._world.is_paused(n)]
        return _each(hurt, self._mend)

    def _kill(self, fault: int, node: str) -> None:
        self._require_up(node)
        self._world.kill(node)
        self._down(fault, node)

    def _require_up(self, node: str) -> None:
        if not self._world.is_up(node):
            raise _Refused(f"{node} is down already")

    def _down(self, fault: int, node: str) -> None:
        self._view.lost(node)
        self._paused_by.pop(node, None)
        self._killed_by[node] = fault

    def _stop(self, fault: int, node: str) -> None:
        self._require_up(node)
        self._end_cleanly(node)
        self._down(fault, node)

    def _end_cleanly(self, node: str) -> None:
        if self._world.is_paused(node):
            # A stopped process would not hear the request to end.
            self._world.resume(node)
        self._world.stop(node)
        self._view.lost(node)

    def _restart(self, fault: int, node: str) -> None:
        if self._world.is_up(node):
            self._end_cleanly(node)
        self._start(node)

    def _pause(self, fault: int, node: str) -> None:
        if not self._world.is_up(node):
            raise _Refused(f"{node} is down")
        if self._world.is_paused(node):
            raise _Refused(f"{node} is paused already")
        self._world.pause(node)
        self._paused_by[node] = fault

    def _resume(self, fault: int, node: str) -> None:
        if not self._world.is_up(node) or not self._world.is_paused(node):
            raise _Refused(f"{node} is not paused")
        self._world.resume(node)
        self._paused_by.pop(node, None)

    def _undo_kill(self, fault: int, node: str) -> None:
        by = self._killed_by.get(node)
        if by is not None and by != fault:
            raise _Refused(f"{node} is left to fault {by}, which brought it down again")
        if self._world.is_up(node):
            raise _Refused(f"{node} is up again already")
        self._start(node)

    def _undo_pause(self, fault: int, node: str) -> None:
        if not self._world.is_up(node):
            raise _Refused(f"{node} is down")
        by = self._paused_by.get(node)
        if by is not None and by != fault:
            raise _Refused(f"{node} is left to fault {by}, which paused it again")
        if not self._world.is_paused(node):
            raise _Refused(f"{node} runs again already")
        self._resume(fault, node)

    def _mend(self, node: str) -> None:
        if self._world.is_up(node):
            self._world.resume(node)
            self._paused_by.pop(node, None)
        else:
            self._start(node)

    def _start(self, node: str) -> None:
        self._world.start(node)
        self._killed_by.pop(node, None)
        self._paused_by.pop(node, None)


def _each(nodes: Iterable[str], act: Callable[[str], str | None]) -> Done:
    """Act on every node, whatever becomes of the others; what `act` returns is a note."""
    done, refused, notes = [], [], []
    for node in nodes:
        try:
            if node[0] == "c":
                raise _Refused(f"{node} is a client: only its links can fail")
            note = act(node)
        except FloodmarkError as error:
            refused.append(str(error))
        else:
            done.append(node)
            if note:
                notes.append(note)
    return Done(tuple(done), tuple(refused), tuple(notes))
