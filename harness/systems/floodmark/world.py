"""The real world as the nemesis drives it: signals for processes, the link hub for links, and for
disks what the processes do themselves, or disks in user space."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from harness.runs.clock import now_us
from harness.systems.disks import UserDisks, damage_files
from harness.systems.external.processes import starter
from harness.systems.floodmark.nodes import Nodes
from nemesis.links.hub_control import HubControl
from nemesis.links.rule import Counts, LinkRule
from nemesis.strace import Tracers
from nemesis.wall_clocks import WallClocks
from nemesis.world import BreakAt, CallFails, Command, DiskDamage, DiskFails, refuse_shuffle
from node.formats.errors import FloodmarkError
from node.runtime import datadir, disk_damage
from node.runtime.breakpoints import Breakpoint
from node.runtime.damage import BitPlace
from node.runtime.failing_disk import DiskFault


class RealWorld:
    """Implements `nemesis.world.World`; `hub` None means a run without link hub."""

    power_cut_assumption = ""

    def __init__(
        self,
        nodes: Nodes,
        hub: HubControl | None,
        data: Callable[[str], Path],
        operate: Callable[[int], None],
        command: Callable[[Command], None],
        upgraded: dict[str, str],
        disks: UserDisks | None,
        tracers: Tracers,
        clocks: WallClocks | None,
    ) -> None:
        """`data(node)` is the folder of a node's disk; `operate` reaches the clients, `command`
        the controller; `upgraded` takes the protocol of nodes that change theirs. `disks` None
        means that the brokers' journals say what is not synced."""
        self._nodes = nodes
        self._hub = hub
        self._data = data
        self._operate = operate
        self._command = command
        self._upgraded = upgraded
        self._disks = disks
        self._tracers = tracers
        self._clocks = clocks
        self.reorders_writes = disks is not None
        self._copies: dict[int, Path] = {}
        self._copies_of_lies: dict[int, int] = {}
        self._lies: dict[str, dict[int, int]] = {}
        self._of_disks: dict[int, int] = {}

    def kill(self, node: str) -> None:
        """SIGKILL; returns when the process is gone."""
        self._nodes.kill(node)

    def power_cut(self, node: str, keep: float, shuffle: int | None = None) -> tuple[int, int]:
        """SIGKILL, then the journal of unsynced writes is cut to its first `keep`; where syncs were
        lies, all that was written since is gone before. Or else the disk in user space loses what
        was not synced, and the node finds another boot of the host."""
        if self._disks is not None:
            self._nodes.kill(node)
            self._nodes.boot_again(node)
            return self._disks.power_cut(node, keep, shuffle)
        refuse_shuffle(shuffle)
        self._nodes.kill(node)
        for number in self._lies.get(node, {}):
            self._lies[node][number] += self.restore_disk(node, self._copies_of_lies[number])
        return datadir.power_cut(self._data(node), keep)

    def start(self, node: str) -> None:
        """Start a new process of a node that is down; returns long before it is ready."""
        self._nodes.start(node)

    def stop(self, node: str) -> None:
        """SIGTERM; returns when the process is gone."""
        self._nodes.ask_to_stop(node)
        self._nodes.await_stop(node)

    def pause(self, node: str) -> None:
        """SIGSTOP."""
        self._nodes.pause(node)

    def resume(self, node: str) -> None:
        """SIGCONT."""
        self._nodes.resume(node)

    def is_up(self, node: str) -> bool:
        """Whether the node has a process, paused or not."""
        return self._nodes.is_up(node)

    def is_paused(self, node: str) -> bool:
        """Whether that process is paused."""
        return self._nodes.is_paused(node)

    def add_rule(self, rule: LinkRule) -> int:
        """Put a link rule in force. Raises FloodmarkError without a hub."""
        return self._control().add(rule)

    def remove_rule(self, number: int) -> Counts:
        """End a link rule and tell what it did."""
        return self._control().remove(number)

    def add_breakpoint(self, node: str, point: BreakAt) -> int:
        """Arm `point`, through the process's pipe and for the processes after it."""
        return self._nodes.arm(node, lambda number: Breakpoint(number=number, **point._asdict()))

    def remove_breakpoint(self, node: str, number: int) -> None:
        """Disarm a breakpoint; a process that stands at it goes on."""
        self._nodes.disarm(node, number)

    def add_disk_fault(self, node: str, fault: DiskFails) -> int:
        """Through the process's pipe, and for the processes after it. Of a disk that lies a copy is
        kept: what it really has. Or by the disk in user space, but for the map of the store."""
        if self._disks is not None and fault.what != "full-map":
            number = self._nodes.next_number()
            self._of_disks[number] = self._disks.add_fault(node, fault)
            if fault.what != "slow":
                reads = fault.what in ("unreadable", "lying")
                self._nodes.blame_disk(node, now=True, reads=reads)
            return number
        if fault.what == "unreadable":
            raise FloodmarkError("the disks of this run are not in user space")
        if fault.what == "lying":
            copied = self.copy_disk(node)
            number = self._nodes.next_number()
            self._copies_of_lies[number] = copied
            self._lies.setdefault(node, {})[number] = 0
            return number
        what, delay_ms, written = fault.what, fault.delay_ms, fault.written
        return self._nodes.add_disk_fault(
            node,
            lambda number: DiskFault(number=number, what=what, delay_ms=delay_ms, written=written),
        )

    def remove_disk_fault(self, node: str, number: int) -> int:
        """In the process that runs, and for those after it; or by the disk in user space."""
        if self._disks is not None and number in self._of_disks:
            self._nodes.notice_end(node)
            return self._disks.remove_fault(node, self._of_disks.pop(number))
        if number in self._copies_of_lies:
            shutil.rmtree(self._copies[self._copies_of_lies.pop(number)], ignore_errors=True)
            return self._lies[node].pop(number)
        return self._nodes.remove_disk_fault(node, number)

    def damage_disk(self, node: str, damage: DiskDamage) -> str:
        """Change the files of a node that is down; its disk is blamed if that was possible."""
        done = self._damage(node, damage)
        self._nodes.blame_disk(node)
        return done

    def _damage(self, node: str, damage: DiskDamage) -> str:
        path = self._data(node)
        if self._disks is not None:
            self._disks.rest(node)
        if damage.files:
            return damage_files(path, damage)
        if damage.what == "empty":
            return f"{disk_damage.empty(path)} batches are gone"
        if damage.what == "tear":
            return disk_damage.tear(path, damage.which, damage.bit)
        place = BitPlace(damage.part, damage.which, damage.bit, damage.key)
        return disk_damage.flip_bit(path, place)

    def copy_disk(self, node: str) -> int:
        """The process copies its store between two turns; without one the files are copied."""
        number = self._nodes.next_number()
        to = self._data(node).with_name(f"{node}.copy-{number}")
        if self._nodes.is_paused(node):
            raise FloodmarkError(f"{node} is paused: its disk cannot be copied now")
        if not self._nodes.is_up(node) or not self._nodes.copy_disk(node, to):
            disk_damage.copy(self._data(node), to)
        self._copies[number] = to
        return number

    def restore_disk(self, node: str, number: int) -> int:
        """Put the files of the copy in place."""
        if self._disks is not None:
            self._disks.rest(node)
        changed = disk_damage.restore(self._data(node), self._copies[number])
        self._nodes.blame_disk(node)
        return changed

    def add_call_fault(self, node: str, fault: CallFails) -> int:
        """Attach strace to the node's process."""
        pid = self._nodes.pid(node)
        number = self._tracers.add(node, starter(), [] if pid is None else [pid], fault)
        if fault.action != "delay":
            self._nodes.blame_disk(node, now=True, reads=False)
            self._nodes.may_be_killed(node)
        return number

    def remove_call_fault(self, node: str, number: int) -> int:
        """Detach strace; how many calls were affected."""
        affected = self._tracers.remove(number)
        self._nodes.notice_end(node)
        return affected

    def shift_clock(self, node: str, by_ms: int) -> None:
        """By libfaketime. Our brokers decide by the monotonic clock alone."""
        if self._clocks is None:
            raise FloodmarkError("the wall clocks of this run cannot be moved")
        self._clocks.shift(node, by_ms)

    def set_clock_rate(self, node: str, percent: int) -> None:
        """By order to its process, which measures its timeouts with a clock of its own."""
        self._nodes.set_clock_rate(node, percent)

    def operate(self, operation: int) -> None:
        """Tell the client process."""
        self._operate(operation)

    def command(self, command: Command) -> None:
        """Ask the controller, and wait for its answer."""
        self._command(command)

    def set_protocol(self, node: str, protocol: str) -> None:
        """For the processes after this one."""
        self._upgraded[node] = protocol

    def now_us(self) -> int:
        """The host's monotonic clock."""
        return now_us()

    def _control(self) -> HubControl:
        if self._hub is None:
            raise FloodmarkError("this run has no link hub, so faults on links cannot be made")
        return self._hub
