"""Unsynced contents of a file: for each change after its last sync, the bytes before the change.

The file itself always has the data that was written last. A power cut undoes changes from the last
one back, and makes some of them again: so it can keep a prefix of the unsynced writes, tear one of
them, or keep some and not others."""

from __future__ import annotations

import os
from bisect import bisect
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from nemesis.disk.extents import Extent, ExtentMap, ExtentStore, Zeros

DROPPED: Final = -1
"""Of a change: nothing of it is kept, not even the size that it gave the file."""


class Change(NamedTuple):
    """One write, truncation or growth of a file that is not synced. `number` is its place among all
    changes of the disk, `length` the number of bytes written at `offset` (0 for a truncation),
    `before` the bytes that were there, and the sizes are those of the file. `merged`: it stands for
    several changes, from number `first` on, which can only be undone together."""

    number: int
    offset: int
    length: int
    before: tuple[Extent, ...]
    old_size: int
    new_size: int
    merged: bool = False
    first: int = 0


class FileChanges:
    """The unsynced changes of one file in order, and the bytes that failed syncs have lost."""

    def __init__(self, store: ExtentStore) -> None:
        self._store = store
        self._changes: list[Change] = []
        self._lost = ExtentMap(store)
        self._lost_size: int | None = None
        self.last_synced = (0, 0)
        """The write that was synced last: its offset and length."""
        self._carried: list[int] = []

    def __iter__(self) -> Iterator[Change]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def dirty(self) -> bool:
        """Return whether a power cut may change the file."""
        return bool(self._changes or self._lost) or self._lost_size is not None

    def add(self, change: Change) -> None:
        """Note a change that was made to the file."""
        self._changes.append(change)

    @property
    def oldest(self) -> int:
        """The number of the first change that is not synced; there must be one."""
        return self._changes[0].first or self._changes[0].number

    def carry(self, number: int) -> None:
        """Keep the changes so far apart from later ones: they are synced with name change
        `number`."""
        self._carried.append(number)

    def merge_older(self) -> None:
        """Merge the older half of the changes, which can then only be undone together; or into as
        many groups as names carry changes."""
        half = len(self._changes) // 2
        groups = groupby(self._changes[:half], lambda each: bisect(self._carried, each.number))
        merged = [list(group) for _, group in groups]
        self._changes[:half] = [self._merge(one) if len(one) > 1 else one[0] for one in merged]

    def sync(self, until: int | None = None) -> None:
        """Note that all changes, or those up to number `until`, are on the disk. Bytes that a
        failed sync has lost stay lost unless they were written again."""
        known = len(self._changes)
        end = known if until is None else bisect(self._changes, until, key=lambda c: c.number)
        for change in self._changes[:end]:
            if change.length and not change.merged:
                self.last_synced = change.offset, change.length
            if change.new_size < sum(self.last_synced):
                self.last_synced = 0, 0  # cut off since
            if self._lost:
                self._find_again(change)
            if change.before:
                self._store.release(change.before)
        if end:
            self._lost_size = None
            del self._changes[:end]
        del self._carried[: None if until is None else bisect(self._carried, until)]

    def fail(self) -> None:
        """Fail a sync: as under Linux its bytes count as clean and never reach the disk, unless
        they are written once more."""
        if not self._changes:
            return
        merged = self._merge(self._changes)
        self._changes.clear()
        for extent in merged.before:
            self._lost.add(extent)
        if merged.new_size > merged.old_size:
            self._lost.add(Extent(merged.old_size, Zeros(merged.new_size - merged.old_size)))
        if self._lost_size is None:
            self._lost_size = merged.old_size

    def roll_back(self, file: int, kept_of: Callable[[Change], int]) -> int:
        """Bring the file with the descriptor `file` into its state after a power cut; return how
        many changes were lost, at least in part. `kept_of` returns how many bytes of a change
        remain, or DROPPED if not even its file size does."""
        kept = [kept_of(change) for change in self._changes]
        whole = [length == change.length for length, change in zip(kept, self, strict=True)]
        first = whole.index(False) if False in whole else len(whole)
        for place in range(first, len(whole)):
            if self._changes[place].merged:
                kept[place], whole[place] = DROPPED, False
        again: list[tuple[Change, tuple[Extent, ...]]] = []
        for place in range(len(kept) - 1, first - 1, -1):
            change, length = self._changes[place], kept[place]
            if length != DROPPED:
                saved = self._store.save(file, change.offset, length) if length else ()
                again.append((change, saved))
            os.ftruncate(file, change.old_size)
            self._store.write_back(change.before, file)
        for change, saved in reversed(again):
            if not change.length:
                os.ftruncate(file, change.new_size)
            self._store.write_back(saved, file)
            self._store.release(saved)
        lost = whole.count(False) + len(self._lost)
        self._restore_lost(file)
        for change in self._changes:
            self._store.release(change.before)
        self._changes.clear()
        return lost

    def forget(self) -> None:
        """Drop all changes of a removed file, because none of them will be undone."""
        self.sync()
        self._lost.remove(0, 1 << 63)
        self._lost_size = None

    def _find_again(self, change: Change) -> None:
        """Count the bytes of a change as safe."""
        self._lost.remove(change.offset, change.offset + change.length * (not change.merged))
        for extent in change.before:
            self._lost.remove(extent.offset, extent.end)
        self._lost.remove(change.old_size, max(change.old_size, change.new_size))

    def _restore_lost(self, file: int) -> None:
        """Write back the bytes from before the changes that failed syncs have lost."""
        if self._lost_size is not None:
            os.ftruncate(file, self._lost_size)
        size = os.fstat(file).st_size
        self._store.write_back((e.part(0, size) for e in self._lost if e.offset < size), file)
        self._lost.remove(0, 1 << 63)
        self._lost_size = None

    def _merge(self, changes: list[Change]) -> Change:
        """Merge several changes into one, with the contents before the first of them."""
        first, last = changes[0], changes[-1]
        before = ExtentMap(self._store)
        for change in changes:
            for extent in change.before:
                if extent.end <= first.old_size:
                    before.add(extent)
                    continue
                if extent.offset < first.old_size:
                    before.add(extent.part(0, first.old_size))
                beyond = max(extent.offset, first.old_size)
                self._store.release((extent.part(beyond, extent.end),))
        return Change(
            last.number,
            first.offset,
            sum(change.length for change in changes),
            tuple(before),
            first.old_size,
            last.new_size,
            merged=True,
            first=first.first or first.number,
        )
