"""The processes of a world as faults act on them, with a record that lets faults overlap.

The record has the fault that brought each node down, or paused it, last: a heal undoes only what
its own fault did. If a killed node was restarted and then killed again by another fault, the heal
of the first fault leaves it to the second."""

from __future__ import annotations

from collections.abc import Callable

from nemesis.view import ClusterView
from nemesis.world import World
from node.formats.errors import FloodmarkError


class CannotAct(FloodmarkError):
    """An action is impossible in the present state of a node; the message says why."""


def refuse_client(node: str) -> None:
    """Refuse a client, of which only the links can fail. Raises CannotAct."""
    if node.startswith("c"):
        raise CannotAct(f"{node} is a client: only its links can fail")


class Processes:
    """The processes of the nodes of one world: kills, starts, pauses and resumes them, and keeps
    the view up to date. `fault` is the number of the fault that acts. Each method raises
    FloodmarkError if its node is not in a state for it."""

    def __init__(self, world: World, view: ClusterView) -> None:
        self._world = world
        self._view = view
        self._downed_by: dict[str, int] = {}
        self._paused_by: dict[str, int] = {}

    def kill(self, fault: int, node: str) -> None:
        """End the node's process without warning."""
        self._require_up(node)
        self._world.kill(node)
        self._down(fault, node)

    def power_cut(
        self, fault: int, node: str, keep: Callable[[], float], shuffle: int | None = None
    ) -> tuple[int, int]:
        """Kill the node and keep only the share `keep()` (0 to 1) of its unsynced bytes: the first
        written or, with a seed to `shuffle`, drawn ones. Return how many unsynced bytes there were
        and how many remain. If the cut raises FloodmarkError, the node is started again."""
        self._require_up(node)
        try:
            before, after = self._world.power_cut(node, keep(), shuffle)
        except FloodmarkError:
            if not self._world.is_up(node):  # killed before the cut failed
                self._down(fault, node)
                self._start(node)
            raise
        self._down(fault, node)
        return before, after

    def stop(self, fault: int, node: str) -> None:
        """End the node's process cleanly."""
        self._require_up(node)
        self._end_cleanly(node)
        self._down(fault, node)

    def restart(self, node: str) -> None:
        """Start a new process of the node; one that runs is ended cleanly first."""
        if self._world.is_up(node):
            self._end_cleanly(node)
        self._start(node)

    def pause(self, fault: int, node: str) -> None:
        """Suspend the node's process."""
        if not self._world.is_up(node):
            raise CannotAct(f"{node} is down")
        if self._world.is_paused(node):
            raise CannotAct(f"{node} is paused already")
        self._world.pause(node)
        self._paused_by[node] = fault

    def resume(self, node: str) -> None:
        """Let the node's suspended process go on."""
        if not self._world.is_up(node) or not self._world.is_paused(node):
            raise CannotAct(f"{node} is not paused")
        self._world.resume(node)
        self._paused_by.pop(node, None)

    def start_again(self, fault: int, node: str) -> None:
        """Start the node if it is down because of this fault."""
        by = self._downed_by.get(node)
        if by is not None and by != fault:
            raise CannotAct(f"{node} is left to fault {by}, which brought it down again")
        if self._world.is_up(node):
            raise CannotAct(f"{node} is up again already")
        self._start(node)

    def resume_again(self, fault: int, node: str) -> None:
        """Resume the node if it is paused because of this fault."""
        if not self._world.is_up(node):
            raise CannotAct(f"{node} is down")
        by = self._paused_by.get(node)
        if by is not None and by != fault:
            raise CannotAct(f"{node} is left to fault {by}, which paused it again")
        if not self._world.is_paused(node):
            raise CannotAct(f"{node} runs again already")
        self.resume(node)

    def needs_repair(self, node: str) -> bool:
        """Return whether the node is down or paused."""
        return not self._world.is_up(node) or self._world.is_paused(node)

    def repair(self, node: str) -> None:
        """Start or resume the node, whichever fault acted on it."""
        if self._world.is_up(node):
            self._world.resume(node)
            self._paused_by.pop(node, None)
        else:
            self._start(node)

    def _require_up(self, node: str) -> None:
        if not self._world.is_up(node):
            raise CannotAct(f"{node} is down already")

    def _down(self, fault: int, node: str) -> None:
        self._view.lost(node)
        self._paused_by.pop(node, None)
        self._downed_by[node] = fault

    def _end_cleanly(self, node: str) -> None:
        if self._world.is_paused(node):
            # A suspended process would not hear the request to end.
            self._world.resume(node)
        self._world.stop(node)
        self._view.lost(node)

    def _start(self, node: str) -> None:
        self._world.start(node)
        self._downed_by.pop(node, None)
        self._paused_by.pop(node, None)
