"""The disks of a run: the forms that they can have, and the faults that each form can take.

The form says how the data of nodes is kept: in plain folders, in our brokers' journal, in files
that an adapter declares as unsynced, or on a file system in user space."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from harness.formats.problem import Problem
from nemesis.disk import control, damage
from nemesis.disk.control import DiskTooSlow, UserDisk
from nemesis.faults import KINDS, kind_of
from nemesis.faults.power_cut import PowerCut
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError, UsageError
from node.runtime.damage import DiskDamage
from node.runtime.failing_disk import DiskFails

AUTO: Final = "auto"
USER_SPACE: Final = "user-space"
"""A disk in user space for each node: it loses exactly what was not synced."""
DECLARED: Final = "declared"
"""Folders of the host; a power cut shortens files that the adapter declares."""
PLAIN: Final = "plain"
"""Folders of the host."""
JOURNAL: Final = "journal"
"""Our own brokers know what they have not synced: their journal."""
_POWER_CUT: Final = "power-cut"
_ON_FILES: Final = frozenset({"bit-flip", "disk-emptied"})
_OF_DISKS: Final = frozenset({_POWER_CUT, *(k for k, kind in KINDS.items() if kind.on_disks)})
KINDS_ON: Final[Mapping[str, frozenset[str]]] = {
    USER_SPACE: _OF_DISKS,
    DECLARED: _ON_FILES | {_POWER_CUT},
    PLAIN: _ON_FILES,
    JOURNAL: _OF_DISKS - {"read-error"},
}
"""The kinds of faults of disks that each form of disks can take."""


def kinds_on_disks(form: str) -> frozenset[str]:
    """Return the kinds of faults that a run with disks of this form can take."""
    return frozenset(KINDS) - (_OF_DISKS - KINDS_ON[form])


def choose(asked: str | None, forms: Collection[str], kinds: Collection[str]) -> str:
    """Return the form of disks for these kinds of faults: the one that is `asked` for, or for
    "auto" the simplest of `forms` that can take them all. A disk in user space is preferred to
    declared files. Raises UsageError."""
    wanted = _OF_DISKS.intersection(kinds)
    if asked is not None and asked != AUTO:
        if asked not in forms:
            raise UsageError(
                f"--disk is '{asked}', but here it can only be {', '.join((AUTO, *forms))}"
            )
        if asked == USER_SPACE and (why := control.why_impossible()):
            raise UsageError(f"--disk {USER_SPACE}: {why}")
        return asked
    why = ""
    for form in (JOURNAL, PLAIN, USER_SPACE, DECLARED):
        if form not in forms or not wanted <= KINDS_ON[form]:
            continue
        if form == USER_SPACE and (why := control.why_impossible()):
            continue
        return form
    if why:
        raise UsageError(f"{', '.join(sorted(wanted))}: {why}")
    return next(iter(forms))


def check_disks(schedule: Schedule, form: str) -> None:
    """Refuse a fault that disks of this form cannot carry out. Raises UsageError."""
    for index, fault in enumerate(schedule.faults):
        if fault.what not in kinds_on_disks(form):
            raise UsageError(
                f"--disk {form}: fault {index} ({fault.what}) needs --disk {USER_SPACE}"
            )
        kind = kind_of(fault)
        if isinstance(kind, PowerCut) and kind.reordered and form != USER_SPACE:
            raise UsageError(
                f"--disk {form}: fault {index} ({fault.what}) reorders writes, which needs "
                f"--disk {USER_SPACE}"
            )


class UserDisks:
    """The disks in user space of all nodes of a run. Main thread only. Each disk is a file system
    that a process of its own serves."""

    def __init__(self, folders: Mapping[str, Path], output: Path, schedule: Schedule) -> None:
        """Prepare the disks without processes. `output` gets what these print."""
        # Only a write that is passed on at once can be refused.
        write_through = any(fault.what == "disk-full" for fault in schedule.faults)
        self._writes_back = schedule.cluster.write_back_ms > 0
        self._disks = {
            node: UserDisk(
                folder.absolute(),
                output.absolute() / f"disk-{node}.txt",
                write_through=write_through,
                write_back_ms=schedule.cluster.write_back_ms,
            )
            for node, folder in folders.items()
        }
        self._copies: dict[int, Path] = {}
        self._last_copy = 0
        self._ended: set[int] = set()
        self.problems: list[Problem] = []

    def start(self, node: str) -> int:
        """Start the disk of a node; return the process in whose namespaces it is mounted."""
        disk = self._disks[node]
        disk.start()
        return disk.pid

    def synced(self) -> None:
        """Sync all data written until now; does nothing for disks without write-back."""
        for disk in self._disks.values() if self._writes_back else ():
            disk.sync()

    def watch(self, excuse: Callable[[str], None]) -> None:
        """Notice disks whose process ended by itself, which is a problem of the run. `excuse` is
        called with the name of each such node, whose own end is then expected."""
        for node in self._disks:
            self._notice_end(node, excuse)

    def look(self, node: str, excuse: Callable[[str], None]) -> None:
        """Notice the end of the disk of a node whose process has ended. The disk may have ended
        first and be noticed last, so it is waited for if it is about to end."""
        self._disks[node].await_end_if_dying()
        self._notice_end(node, excuse)

    def _notice_end(self, node: str, excuse: Callable[[str], None]) -> None:
        disk = self._disks[node]
        if disk.has_ended and disk.pid not in self._ended:
            self._ended.add(disk.pid)
            sentence = f"the process of the disk of {node} ended during the run"
            self.problems.append(Problem(kind="disk-ended", sentence=sentence))
            excuse(node)

    def power_cut(self, node: str, keep: float, shuffle: int | None) -> tuple[int, int]:
        """Cut the power of a node that is down; return its unsynced bytes before and after. `keep`
        is the share of its unsynced writes that survive; in order, or drawn with the seed
        `shuffle`."""
        with self._noting_slowness():
            return self._disks[node].cut(keep, -1 if shuffle is None else shuffle)

    def add_fault(self, node: str, fault: DiskFails) -> int:
        """Add a fault to the disk of a node; return its number."""
        if fault.what == "full-map":
            raise FloodmarkError(
                f"full-map needs the store of our own brokers, which {node} does not have"
            )
        return self._disks[node].add(fault)

    def remove_fault(self, node: str, number: int) -> int:
        """End a fault by its number; return how many requests it affected."""
        return self._disks[node].remove(number)

    def rest(self, node: str) -> Path:
        """Stop the disk of a node that is down, and return its folder, which may then be changed.
        All data that was written counts as synced from then on."""
        self._disks[node].end()
        return self._disks[node].folder

    def damage(self, node: str, wanted: DiskDamage) -> str:
        """Damage the disk of a node that is down; return a sentence on the damage."""
        if wanted.what == "tear":
            with self._noting_slowness():
                return self._disks[node].tear(wanted.which, wanted.bit)
        return damage_files(self.rest(node), wanted)

    def copy(self, node: str) -> int:
        """Keep a copy of the present disk of a node; return the number of the copy."""
        self._last_copy += 1
        folder = self._disks[node].folder
        to = folder.with_name(f"{folder.name}.copy-{self._last_copy}")
        self._disks[node].copy(to)
        self._copies[self._last_copy] = to
        return self._last_copy

    def restore(self, node: str, number: int) -> int:
        """Replace the disk of a node that is down by copy `number`; return how many files that
        changes."""
        changed = damage.restore(self.rest(node), self._copies[number])
        shutil.rmtree(self._copies.pop(number), ignore_errors=True)
        return changed

    @contextmanager
    def _noting_slowness(self) -> Iterator[None]:
        """Note a cut that was not over in time as a problem of the run: it was made in part."""
        try:
            yield
        except DiskTooSlow as error:
            self.problems.append(Problem(kind="disk-ended", sentence=str(error)))
            raise

    def close(self) -> None:
        """Stop all disks, and remove the copies that they made."""
        for disk in self._disks.values():
            disk.close()
        for copy in self._copies.values():
            shutil.rmtree(copy, ignore_errors=True)
        self._copies.clear()


def damage_files(folder: Path, wanted: DiskDamage) -> str:
    """Flip a bit in a file of a node that is down, or remove all its files; return a sentence on
    it. Raises FloodmarkError."""
    if wanted.what == "empty":
        return f"{damage.empty(folder)} files are gone"
    if wanted.what != "flip" or wanted.part == "value":
        raise FloodmarkError(
            f"a fault cannot damage single values in {folder.name}: only our brokers' store has any"
        )
    return damage.flip_bit(folder, wanted.files or "*", wanted.which, wanted.bit, wanted.within)
