"""Unsynced names in a disk's folders: the operations on names, in their order.

As with ext4 they are one journal, of which a power cut loses the end. A file that was removed or
replaced is moved to a folder of the disk's own ("aside") until that operation is synced."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from nemesis.disk.undo import FileChanges

MOST_OPERATIONS: Final = 10_000
"""A journal that is full is committed in part, as under Linux."""


class NameChange(NamedTuple):
    """One operation on names. `number` is its place among all changes of the disk; `path` is the
    name that was made, removed or renamed, `to` its new name, `aside` the place of the file that
    had the name before, and `mode` that of a folder. The data that is in `carries` so far reaches
    the disk with the name, as with ext4 (auto_da_alloc) if a file replaces another."""

    number: int
    what: Literal["make", "make-folder", "remove", "remove-folder", "rename"]
    path: str
    to: str = ""
    aside: str = ""
    mode: int = 0
    carries: FileChanges | None = None


class NameChanges:
    """The unsynced operations on the names of one disk. `root` and `aside` are descriptors of the
    folder with the files, and of the folder for removed files."""

    def __init__(self, root: int, aside: int) -> None:
        self._root = root
        self._aside = aside
        self._changes: list[NameChange] = []
        self._last_aside = 0

    def __iter__(self) -> Iterator[NameChange]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)

    def add(self, change: NameChange) -> None:
        """Note an operation that was carried out."""
        self._changes.append(change)
        if len(self._changes) > MOST_OPERATIONS:
            self._drop(self._changes[: MOST_OPERATIONS // 2])

    def put_aside(self, path: str) -> str:
        """Move the file with that name to the folder for removed files; return its name there."""
        self._last_aside += 1
        name = str(self._last_aside)
        os.rename(path, name, src_dir_fd=self._root, dst_dir_fd=self._aside)
        return name

    def sync(self) -> bool:
        """Note that all operations are on the disk; return whether there was any."""
        done = self._changes
        self._drop(done)
        return bool(done)

    def roll_back(self, kept: Callable[[NameChange], bool]) -> int:
        """Undo the operations that a power cut loses, those that `kept` is false for; return how
        many. The others are on the disk then."""
        lost = [change for change in self._changes if not kept(change)]
        for change in reversed(lost):
            self._undo(change)
            self._changes.remove(change)
        self.sync()
        return len(lost)

    def _drop(self, changes: list[NameChange]) -> None:
        """Forget changes that are on the disk."""
        for change in changes:
            if change.carries is not None:
                change.carries.sync(change.number)
            if change.aside:
                os.unlink(change.aside, dir_fd=self._aside)
        dropped = {change.number for change in changes}
        self._changes = [each for each in self._changes if each.number not in dropped]

    def _undo(self, change: NameChange) -> None:
        root = self._root
        match change.what:
            case "make":
                os.unlink(change.path, dir_fd=root)
            case "make-folder":
                os.rmdir(change.path, dir_fd=root)
            case "remove-folder":
                os.mkdir(change.path, change.mode, dir_fd=root)
            case "rename":
                os.rename(change.to, change.path, src_dir_fd=root, dst_dir_fd=root)
        if change.aside:
            path = change.to or change.path
            os.rename(change.aside, path, src_dir_fd=self._aside, dst_dir_fd=root)
