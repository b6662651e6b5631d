"""Faults on our own brokers: those of `ProcessWorld`, and those that the processes carry out
themselves."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.formats.problem import ended_from_outside
from harness.systems.disks import damage_files
from harness.systems.floodmark.nodes import Nodes
from harness.systems.process_world import ProcessWorld
from nemesis.world import CallFails, Command, DiskCopy, Lasting
from node.formats.errors import FloodmarkError
from node.runtime import datadir, disk_damage
from node.runtime.breakpoints import Breakpoint
from node.runtime.damage import DiskDamage
from node.runtime.failing_disk import DiskFails

_KILLED: Final = tuple(code for code in range(-signal.NSIG, 0) if ended_from_outside(code))


@dataclass
class RealWorld(ProcessWorld):
    """Faults on our own brokers. Without disks in user space, the journal of a node knows its
    unsynced data. `_data(node)` is the folder of a node's disk, `_command` sends a command to the
    controller, `_upgraded` gets the new protocol of a node that is upgraded."""

    _processes: Nodes
    _data: Callable[[str], Path]
    _command: Callable[[Command], None]
    _upgraded: dict[str, str]
    _copies: dict[int, Path] = field(default_factory=dict)
    _copies_of_lies: dict[int, int] = field(default_factory=dict)
    _lies: dict[str, dict[int, int]] = field(default_factory=dict)
    _of_disks: dict[int, int] = field(default_factory=dict)

    def _cut_files(self, node: str, keep: float) -> tuple[int, int]:
        """Cut the unsynced journal to the share `keep`. If the disk confirmed syncs falsely, first
        restore its copy from before. Returns the bytes before and after."""
        for number in reversed(self._lies.get(node, {})):  # to the first lie at last
            self._lies[node][number] += self._restore_disk(node, self._copies_of_lies[number])
        return datadir.power_cut(self._data(node), keep)

    def add(self, node: str, what: Lasting) -> int:
        match what:
            case Breakpoint():
                return self._processes.arm(node, what)
            case DiskFails():
                return self._add_disk_fault(node, what)
            case DiskCopy():
                return self._copy_disk(node)
        number = super().add(node, what)
        if isinstance(what, CallFails):
            self._processes.note_slow(node, ("call", number), what.delay_ms)
        return number

    def remove(self, node: str, what: Lasting, number: int) -> Any:
        match what:
            case Breakpoint():
                return self._processes.disarm(node, number)
            case DiskFails():
                return self._remove_disk_fault(node, number)
            case DiskCopy():
                return self._restore_disk(node, number)
        affected = super().remove(node, what, number)
        if isinstance(what, CallFails):
            self._processes.note_slow(node, ("call", number), 0)
        return affected

    def _add_disk_fault(self, node: str, fault: DiskFails) -> int:
        """Add a disk fault; return its number. The disk in user space has the fault, if there is
        one, or else the node's process; a full map is always the process's. Of a lying disk without
        user space a copy is kept, with which it loses its data."""
        if self._disks is not None and fault.what != "full-map":
            number = self._processes.next_number()
            if fault.what != "slow":  # before the disk can end the process
                reads = fault.what in ("unreadable", "lying")
                self._processes.blame_disk(node, now=True, reads=reads)
            self._of_disks[number] = self._disks.add_fault(node, fault)
            self._processes.note_slow(node, number, fault.delay_ms)
            return number
        if fault.what == "unreadable":
            raise FloodmarkError("this fault needs disks in user space: --disk user-space")
        if fault.what == "lying":
            copied = self._copy_disk(node)
            number = self._processes.next_number()
            self._copies_of_lies[number] = copied
            self._lies.setdefault(node, {})[number] = 0
            return number
        return self._processes.add_disk_fault(node, fault)

    def _remove_disk_fault(self, node: str, number: int) -> int:
        if self._disks is not None and number in self._of_disks:
            self._processes.notice_end(node)
            affected = self._disks.remove_fault(node, self._of_disks[number])
            del self._of_disks[number]
            self._processes.note_slow(node, number, 0)
            return affected
        if number in self._copies_of_lies:
            shutil.rmtree(self._copies[self._copies_of_lies.pop(number)], ignore_errors=True)
            return self._lies[node].pop(number)
        return self._processes.remove_disk_fault(node, number)

    def damage_disk(self, node: str, damage: DiskDamage) -> str:
        done = self._damage(node, damage)
        self._processes.blame_disk(node)
        return done

    def _damage(self, node: str, damage: DiskDamage) -> str:
        path = self._data(node)
        if self._disks is not None:
            self._disks.rest(node)
        if damage.files:
            return damage_files(path, damage)
        return disk_damage.damage(path, damage)

    def _copy_disk(self, node: str) -> int:
        """Copy the disk of a node: its process copies the store between two turns; if it is down,
        the files are copied. Return the number of the copy."""
        number = self._processes.next_number()
        to = self._data(node).with_name(f"{node}.copy-{number}")
        if self._processes.is_paused(node):
            raise FloodmarkError(f"{node} is paused: its disk cannot be copied now")
        if not self._processes.is_up(node) or not self._processes.copy_disk(node, to):
            disk_damage.copy(self._data(node), to)
        self._copies[number] = to
        return number

    def _restore_disk(self, node: str, number: int) -> int:
        if self._disks is not None:
            self._disks.rest(node)
        changed = disk_damage.restore(self._data(node), self._copies[number])
        self._processes.blame_disk(node)
        return changed

    def _expect_exit(self, node: str, fault: CallFails) -> None:
        if fault.action != "delay":
            self._processes.blame_disk(node, now=True, reads=False)
            # With an error libzmq aborts: an eventfd cannot fail.
            codes = None if fault.action == "error" else _KILLED
            self._processes.expected.process(node, self._processes.incarnation(node), codes)

    def set_clock_rate(self, node: str, percent: int) -> None:
        self._processes.set_clock_rate(node, percent)

    def command(self, command: Command) -> None:
        self._command(command)

    def set_protocol(self, node: str, protocol: str) -> None:
        self._upgraded[node] = protocol
