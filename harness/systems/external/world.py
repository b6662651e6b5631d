"""How faults act on an external system: signals, shortened files, links."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from harness.runs.clock import now_us
from harness.systems.adapter import Node
from harness.systems.external.links import Links
from harness.systems.external.processes import ExternalProcesses
from harness.systems.external.unsynced import UnsyncedFiles
from nemesis.links.rule import Counts, LinkRule
from nemesis.world import UnableWorld
from node.formats.errors import FloodmarkError


class ExternalWorld(UnableWorld):
    """Implements what of `nemesis.world.World` can be done to any system."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        processes: ExternalProcesses,
        unsynced: UnsyncedFiles,
        links: Links | None,
        operate: Callable[[int], None],
    ) -> None:
        """`links` None means a run with direct links; `operate` reaches the clients."""
        self._nodes = nodes
        self._processes = processes
        self._unsynced = unsynced
        self._links = links
        self._operate = operate
        self.power_cut_assumption = unsynced.assumption

    def kill(self, node: str) -> None:
        """SIGKILL; returns when the processes are gone."""
        self._processes.kill(node)

    def power_cut(self, node: str, keep: float) -> tuple[int, int]:
        """SIGKILL, then the declared files are cut."""
        self._processes.kill(node)
        return self._unsynced.cut(node, self._nodes[node].folder, keep)

    def start(self, node: str) -> None:
        """Start a new process of a node that is down; returns long before it is ready."""
        self._unsynced.synced(node, self._nodes[node].folder)
        self._processes.start(node)

    def stop(self, node: str) -> None:
        """SIGTERM; returns when the process is gone."""
        self._processes.ask_to_stop(node)
        self._processes.await_stop(node)

    def pause(self, node: str) -> None:
        """SIGSTOP."""
        self._processes.pause(node)

    def resume(self, node: str) -> None:
        """SIGCONT."""
        self._processes.resume(node)

    def is_up(self, node: str) -> bool:
        """Whether the node has a process, paused or not."""
        return self._processes.is_up(node)

    def is_paused(self, node: str) -> bool:
        """Whether that process is paused."""
        return self._processes.is_paused(node)

    def add_rule(self, rule: LinkRule) -> int:
        """Put a link rule in force. Raises FloodmarkError with direct links."""
        return self._control().add(rule)

    def remove_rule(self, number: int) -> Counts:
        """End a link rule and tell what it did."""
        return self._control().remove(number)

    def operate(self, operation: int) -> None:
        """Tell the client process."""
        self._operate(operation)

    def now_us(self) -> int:
        """The host's monotonic clock."""
        return now_us()

    def _control(self) -> Links:
        if self._links is None:
            raise FloodmarkError("the nodes of this run are connected directly (--links none)")
        return self._links
