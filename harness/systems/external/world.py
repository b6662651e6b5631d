"""How faults act on an external system: signals, disks, links."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from harness.runs.clock import now_us
from harness.systems.adapter import Node
from harness.systems.disks import UserDisks, damage_files
from harness.systems.external.links import Links
from harness.systems.external.processes import ExternalProcesses, starter
from harness.systems.external.unsynced import UnsyncedFiles
from nemesis.links.rule import Counts, LinkRule
from nemesis.strace import Tracers
from nemesis.wall_clocks import WallClocks
from nemesis.world import CallFails, DiskDamage, DiskFails, UnableWorld, refuse_shuffle
from node.formats.errors import FloodmarkError


class ExternalWorld(UnableWorld):
    """Implements what of `nemesis.world.World` can be done to any system."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        processes: ExternalProcesses,
        disks: UserDisks | UnsyncedFiles,
        links: Links | None,
        operate: Callable[[int], None],
        tracers: Tracers,
        clocks: WallClocks | None,
    ) -> None:
        """`disks` are those in user space, or the files that are declared as unsynced. `links` None
        means a run with direct links; `operate` reaches the clients."""
        self._nodes = nodes
        self._processes = processes
        self._disks = disks
        self._links = links
        self._operate = operate
        self._tracers = tracers
        self._clocks = clocks
        self._failing: set[tuple[str, int]] = set()
        self.power_cut_assumption = "" if isinstance(disks, UserDisks) else disks.assumption
        self.reorders_writes = isinstance(disks, UserDisks)

    def kill(self, node: str) -> None:
        """SIGKILL; returns when the processes are gone."""
        self._processes.kill(node)

    def power_cut(self, node: str, keep: float, shuffle: int | None = None) -> tuple[int, int]:
        """SIGKILL, then the disk in user space loses what was not synced, or the declared files
        are cut."""
        if isinstance(self._disks, UserDisks):
            self._processes.kill(node)
            return self._disks.power_cut(node, keep, shuffle)
        refuse_shuffle(shuffle)
        self._processes.kill(node)
        return self._disks.cut(node, self._nodes[node].folder, keep)

    def start(self, node: str) -> None:
        """Start a new process of a node that is down; returns long before it is ready."""
        if isinstance(self._disks, UnsyncedFiles):
            self._disks.synced(node, self._nodes[node].folder)
        self._processes.start(node)

    def add_disk_fault(self, node: str, fault: DiskFails) -> int:
        """Let the disk in user space misbehave. A node may end because of it; what a disk that
        lied does not have is missing for good."""
        number = self._in_user_space().add_fault(node, fault)
        if fault.what == "lying":
            self._processes.excuse(node, now=True)
        elif fault.what != "slow":
            self._processes.excuses.begin(node, self._processes.incarnation(node))
            self._failing.add((node, number))
        return number

    def remove_disk_fault(self, node: str, number: int) -> int:
        """End that; how many requests it affected."""
        self._processes.reap()
        if (node, number) in self._failing:
            self._failing.remove((node, number))
            self._processes.excuses.end(node)
        return self._in_user_space().remove_fault(node, number)

    def damage_disk(self, node: str, damage: DiskDamage) -> str:
        """Change the files of a node that is down, which is excused if that was possible."""
        if isinstance(self._disks, UserDisks):
            done = self._disks.damage(node, damage)
        else:
            done = damage_files(self._nodes[node].folder, damage)
        self._processes.excuse(node)
        return done

    def copy_disk(self, node: str) -> int:
        """Keep a copy of the disk in user space."""
        return self._in_user_space().copy(node)

    def restore_disk(self, node: str, number: int) -> int:
        """Give a node that is down that copy."""
        changed = self._in_user_space().restore(node, number)
        self._processes.excuse(node)
        return changed

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

    def add_call_fault(self, node: str, fault: CallFails) -> int:
        """Attach strace to the node's processes."""
        number = self._tracers.add(node, starter(), self._processes.pids(node), fault)
        if fault.action == "lie":
            self._processes.excuse(node, now=True)
        elif fault.action != "delay":
            # The next process is not traced.
            self._processes.excuses.process(node, self._processes.incarnation(node))
        return number

    def remove_call_fault(self, node: str, number: int) -> int:
        """Detach strace; how many calls were affected."""
        affected = self._tracers.remove(number)
        self._processes.reap()
        return affected

    def shift_clock(self, node: str, by_ms: int) -> None:
        """Move the wall clock of a node, by libfaketime. Raises FloodmarkError where the node was
        started without it."""
        if self._clocks is None:
            raise FloodmarkError("the wall clocks of this run cannot be moved")
        self._clocks.shift(node, by_ms)

    def _in_user_space(self) -> UserDisks:
        if isinstance(self._disks, UserDisks):
            return self._disks
        raise FloodmarkError("the disks of this run are not in user space (--disk user-space)")

    def _control(self) -> Links:
        if self._links is None:
            raise FloodmarkError("the nodes of this run are connected directly (--links none)")
        return self._links
