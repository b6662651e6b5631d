"""Faults on a third-party system: those of `ProcessWorld`, and those on its disks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from harness.systems.adapter import Node
from harness.systems.disks import UserDisks, damage_files
from harness.systems.external.membership import MemberChanges
from harness.systems.external.processes import ExternalProcesses
from harness.systems.external.unsynced import UnsyncedFiles
from harness.systems.process_world import ProcessWorld
from nemesis.world import CallFails, ChangeOutcome, ClusterChange, Command, DiskCopy, Lasting
from node.formats.errors import FloodmarkError
from node.runtime.damage import DiskDamage
from node.runtime.failing_disk import DiskFails


@dataclass
class ExternalWorld(ProcessWorld):
    """Faults on a third-party system. `_unsynced` has the files that a power cut shortens if there
    is no disk in user space."""

    _processes: ExternalProcesses
    _nodes: Mapping[str, Node]
    _unsynced: UnsyncedFiles
    _changes: MemberChanges

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._disks is None:
            self.power_cut_assumption = self._unsynced.assumption
            self.declares_unsynced = bool(self._unsynced.globs)

    def _cut_files(self, node: str, keep: float) -> tuple[int, int]:
        return self._unsynced.cut(node, self._nodes[node].folder, keep)

    def is_member(self, node: str) -> bool:
        return node.startswith("v") or self._changes.is_member(node)

    def has_left(self, node: str) -> bool:
        return self._changes.has_left(node)

    def can_move(self, node: str, direction: Literal["upgrade", "downgrade"]) -> bool:
        return self._changes.next_server(node, "", direction) is not None

    def begin_change(self, change: ClusterChange) -> int:
        return self._changes.begin(change)

    def outcome(self, number: int) -> ChangeOutcome | None:
        return self._changes.outcome(number)

    def command(self, command: Command) -> int:
        move = ClusterChange("reassign", partition=command.partition, replicas=command.replicas)
        return self._changes.begin(move)

    def start(self, node: str) -> None:
        if not (node.startswith("v") or self._changes.may_run(node)):
            raise FloodmarkError(f"{node} is no member of the cluster")
        if self._disks is None:
            self._unsynced.synced(node, self._nodes[node].folder)
        super().start(node)

    def add(self, node: str, what: Lasting) -> int:
        if isinstance(what, DiskFails):
            return self._add_disk_fault(node, what)
        if isinstance(what, DiskCopy):
            return self._in_user_space().copy(node)
        return super().add(node, what)

    def remove(self, node: str, what: Lasting, number: int) -> Any:
        if isinstance(what, DiskFails):
            return self._remove_disk_fault(node, what, number)
        if isinstance(what, DiskCopy):
            changed = self._in_user_space().restore(node, number)
            self._processes.blame_disk(node)
            return changed
        return super().remove(node, what, number)

    def _add_disk_fault(self, node: str, fault: DiskFails) -> int:
        """Add a fault to the disk in user space; return its number. The end of the node is
        expected, since it may give up. Data that a lying disk discards stays lost."""
        if fault.what == "lying":
            self._processes.blame_disk(node, now=True)
        elif fault.what != "slow":  # before the disk can end the process
            self._processes.expected.begin(node, self._processes.incarnation(node))
        return self._in_user_space().add_fault(node, fault)

    def _remove_disk_fault(self, node: str, fault: DiskFails, number: int) -> int:
        self._processes.notice_end(node)
        affected = self._in_user_space().remove_fault(node, number)
        if fault.what not in ("lying", "slow"):
            self._processes.expected.end(node)
        return affected

    def damage_disk(self, node: str, damage: DiskDamage) -> str:
        if self._disks is not None:
            done = self._disks.damage(node, damage)
        else:
            done = damage_files(self._nodes[node].folder, damage)
        self._processes.blame_disk(node)
        return done

    def _expect_exit(self, node: str, fault: CallFails) -> None:
        if fault.action == "lie":
            self._processes.blame_disk(node, now=True)
        elif fault.action != "delay":
            self._processes.expected.process(node, self._processes.incarnation(node))

    def _in_user_space(self) -> UserDisks:
        if self._disks is None:
            raise FloodmarkError("this fault needs disks in user space: --disk user-space")
        return self._disks
