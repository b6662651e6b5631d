"""Faults on the processes of any system: signals, link rules, strace, wall clocks, disks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from harness.runs.clock import now_us
from harness.systems.disks import UserDisks
from harness.systems.external import launcher
from harness.systems.node_processes import NodeProcesses
from nemesis.links.rule import Counts, LinkRule
from nemesis.strace import Tracers
from nemesis.wall_clocks import WallClocks
from nemesis.world import CallFails, Lasting, World, refuse_shuffle
from node.formats.errors import FloodmarkError


class RuledLinks(Protocol):
    """Links that rules can be put on: the link hub, the TCP proxies, or links of the kernel."""

    def add(self, rule: LinkRule) -> int:
        """Add a rule for messages on links; return its number. Raises FloodmarkError."""

    def remove(self, number: int) -> Counts:
        """Remove a rule; return the counts of messages that it affected."""


@dataclass
class ProcessWorld(World):
    """Faults on real processes. A subclass carries out the faults of disks that are not in user
    space. `_links` is None if the nodes are connected directly, `_disks` if no disk is in user
    space. `_operate` lets a client begin an operation."""

    _processes: NodeProcesses[Any]
    _links: RuledLinks | None
    _disks: UserDisks | None
    _operate: Callable[[int], None]
    _tracers: Tracers
    _clocks: WallClocks | None

    def __post_init__(self) -> None:
        self.reorders_writes = self._disks is not None

    def kill(self, node: str) -> None:
        self._processes.kill(node)

    def power_cut(self, node: str, keep: float, shuffle: int | None = None) -> tuple[int, int]:
        """Kill the node, and discard its unsynced data; return the unsynced bytes before and after.
        A disk in user space discards it, and the node sees a new boot of the host; otherwise the
        node's files are cut."""
        if self._disks is None:
            refuse_shuffle(shuffle)
        self._processes.kill(node)
        if self._disks is None:
            return self._cut_files(node, keep)
        self._processes.boot_again(node)
        return self._disks.power_cut(node, keep, shuffle)

    def _cut_files(self, node: str, keep: float) -> tuple[int, int]:
        """Cut what a node that is down has not synced; return its bytes before and after."""
        raise NotImplementedError

    def start(self, node: str) -> None:
        self._processes.start(node)

    def stop(self, node: str) -> None:
        self._processes.ask_to_stop(node)
        self._processes.await_stop(node)

    def pause(self, node: str) -> None:
        self._processes.pause(node)

    def resume(self, node: str) -> None:
        self._processes.resume(node)

    def is_up(self, node: str) -> bool:
        return self._processes.is_up(node)

    def is_paused(self, node: str) -> bool:
        return self._processes.is_paused(node)

    def add(self, node: str, what: Lasting) -> int:
        """Put something in force. By strace, a node's present processes may end."""
        if isinstance(what, LinkRule):
            return self._ruled().add(what)
        if isinstance(what, CallFails):
            self._expect_exit(node, what)
            return self._tracers.add(node, launcher.starter(), self._processes.pids(node), what)
        return super().add(node, what)

    def remove(self, node: str, what: Lasting, number: int) -> Any:
        if isinstance(what, LinkRule):
            return self._ruled().remove(number)
        if isinstance(what, CallFails):
            affected = self._tracers.remove(number)
            self._processes.notice_end(node)
            return affected
        return super().remove(node, what, number)

    def _expect_exit(self, node: str, fault: CallFails) -> None:
        """Expect that the node ends because of a fault of its system calls."""
        raise NotImplementedError

    def shift_clock(self, node: str, by_ms: int) -> None:
        """Move the wall clock of a node by libfaketime. Raises FloodmarkError without it."""
        if self._clocks is None:
            raise FloodmarkError(
                f"the wall clock of {node} cannot be moved: its run has no libfaketime"
            )
        self._clocks.shift(node, by_ms)

    def operate(self, operation: int) -> None:
        self._operate(operation)

    def now_us(self) -> int:
        return now_us()

    def _ruled(self) -> RuledLinks:
        if self._links is None:
            raise FloodmarkError(
                "a fault on links needs --links other than none: nodes are connected directly"
            )
        return self._links
