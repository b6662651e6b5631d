"""The files of one disk: a folder that always has the data written last, and what it takes to undo
all that is not synced.

Data and size of a file are on the disk after the file was synced or written back. Names are on the
disk after any file or folder was, as with ext4, and with the name of a file that replaced another
the data that it had then. Closing a file syncs nothing. A power cut does not change modes and
times.

All changes of files and names are numbered in one order, that in which they were made."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from nemesis.disk.extents import MEMORY_BYTES, Extent, ExtentStore
from nemesis.disk.names import NameChange, NameChanges
from nemesis.disk.undo import DROPPED, Change, FileChanges

ROOT: Final = "."
MOST_CHANGES: Final = 50_000
"""How many unsynced changes are told apart; where there are more, the older ones of a file count as
one, which a power cut keeps or loses as a whole."""
_ANY_MODE: Final = 0o600


class Inode:
    """A file or folder that the kernel knows, or that has unsynced changes. `number` is the
    kernel's number of it, `key` its number in the file system under this one. `parent` and `name`
    say where it is; a removed file has no parent. `lookups` and `opens` count the kernel's
    references and open files; `file` is an open descriptor of it, -1 if there is none."""

    __slots__ = (
        *("changes", "file", "is_folder", "key", "lookups", "name", "number", "opens", "parent"),
    )

    def __init__(self, number: int, key: int, is_folder: bool) -> None:
        self.number = number
        self.key = key
        self.is_folder = is_folder
        self.parent: Inode | None = None
        self.name = ""
        self.lookups = 0
        self.opens = 0
        self.file = -1
        self.changes: FileChanges | None = None

    @property
    def path(self) -> str:
        """The path below the root of the disk. Raises FileNotFoundError for a removed file."""
        if self.parent is None:
            if self.number == 1:
                return ROOT
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        above = self.parent.path
        return self.name if above == ROOT else f"{above}/{self.name}"


class CutResult(NamedTuple):
    """The result of a power cut: the number of unsynced bytes before and after, and how many
    changes of files and names lost something."""

    before: int
    after: int
    lost: int


class Volume:
    """The files of one disk. Its methods raise OSError as the system calls do."""

    def __init__(
        self,
        folder: Path,
        aside: Path,
        *,
        memory_bytes: int = MEMORY_BYTES,
        most_changes: int = MOST_CHANGES,
    ) -> None:
        """Open a disk over `folder`, whose contents count as synced. `aside` is a folder on the
        same file system for the disk's own files; up to `memory_bytes` of undone data are in
        memory, and up to `most_changes` changes can be undone one by one."""
        aside.mkdir(parents=True, exist_ok=True)
        self.root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._aside = os.open(aside, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in os.listdir(self._aside):
            os.unlink(name, dir_fd=self._aside)
        self._store = ExtentStore(aside, memory_bytes)
        self._most = self._merge_at = most_changes
        self.told_apart = 0
        self._names = NameChanges(self.root, self._aside)
        self._last_change = 0
        self._last_number = 1
        self._changed: dict[int, Inode] = {}
        top = Inode(1, os.fstat(self.root).st_ino, is_folder=True)
        top.lookups = 1
        self.inodes: dict[int, Inode] = {1: top}
        self._by_key: dict[int, Inode] = {top.key: top}
        self.lies_since: int | None = None
        """From which change on syncs are confirmed and not done; None: they are done."""

    # -- names

    def find(self, parent: Inode, name: str) -> tuple[Inode, os.stat_result]:
        """Return the inode of a name in a folder, and its status; the kernel has one more reference
        to it then."""
        path = _below(parent, name)
        status = os.stat(path, dir_fd=self.root, follow_symlinks=False)
        inode = self._known(status)
        inode.parent, inode.name = parent, name
        inode.lookups += 1
        return inode, status

    def forget(self, number: int, lookups: int) -> None:
        """Note that the kernel gives up `lookups` references to an inode."""
        inode = self.inodes.get(number)
        if inode is None or number == 1:
            return
        inode.lookups -= lookups
        if inode.lookups <= 0:
            inode.lookups = 0
            del self.inodes[number]
            self._tidy(inode)

    def forget_closed(self) -> list[tuple[int, str]]:
        """Drop the inodes of closed files without unsynced changes, because they may have been
        changed from outside. Return the folder's inode number and the name of each."""
        found = []
        for inode in list(self.inodes.values()):
            dirty = inode.changes is not None and inode.changes.dirty
            if inode.is_folder or inode.opens or dirty or inode.parent is None:
                continue
            found.append((inode.parent.number, inode.name))
            if self._by_key.get(inode.key) is inode:
                del self._by_key[inode.key]
        return found

    def create(self, parent: Inode, name: str, mode: int) -> None:
        """Make an empty file."""
        path = _below(parent, name)
        made = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _ANY_MODE, dir_fd=self.root
        )
        os.fchmod(made, stat.S_IMODE(mode))
        inode = self._known(os.fstat(made))
        inode.file = made
        self._named("make", path)

    def make_folder(self, parent: Inode, name: str, mode: int) -> None:
        """Make a folder."""
        path = _below(parent, name)
        os.mkdir(path, stat.S_IMODE(mode) | stat.S_IRWXU, dir_fd=self.root)
        self._named("make-folder", path)

    def make_socket(self, parent: Inode, name: str, mode: int) -> None:
        """Make the name of a socket, which the kernel serves."""
        path = _below(parent, name)
        os.mknod(path, stat.S_IFSOCK | stat.S_IMODE(mode), dir_fd=self.root)
        self._named("make", path)

    def make_symlink(self, parent: Inode, name: str, target: str) -> None:
        """Make a symbolic link."""
        path = _below(parent, name)
        os.symlink(target, path, dir_fd=self.root)
        self._named("make", path)

    def link(self, inode: Inode, parent: Inode, name: str) -> None:
        """Give a file one more name."""
        path = _below(parent, name)
        # The name by which the file was found last may be gone, and it may have others.
        gone, root = inode.parent is None, self.root
        old = f"/proc/self/fd/{inode.file}" if gone else inode.path
        os.link(old, path, src_dir_fd=root, dst_dir_fd=root, follow_symlinks=gone)
        self._named("make", path)

    def remove(self, parent: Inode, name: str) -> None:
        """Remove the name of a file."""
        path = _below(parent, name)
        status = os.stat(path, dir_fd=self.root, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        self._named("remove", path, aside=self._put_aside(path, status))

    def remove_folder(self, parent: Inode, name: str) -> None:
        """Remove an empty folder."""
        path = _below(parent, name)
        status = os.stat(path, dir_fd=self.root, follow_symlinks=False)
        os.rmdir(path, dir_fd=self.root)
        self._gone(status)
        self._named("remove-folder", path, mode=stat.S_IMODE(status.st_mode))

    def rename(self, parent: Inode, name: str, to: Inode, new: str, *, replace: bool) -> None:
        """Move `name` in `parent` to the name `new` in `to`. With `replace` a file of that name is
        replaced; without, FileExistsError is raised."""
        old_path, new_path = _below(parent, name), _below(to, new)
        status = os.stat(old_path, dir_fd=self.root, follow_symlinks=False)
        there = None
        with contextlib.suppress(FileNotFoundError):
            there = os.stat(new_path, dir_fd=self.root, follow_symlinks=False)
        if there is not None and not replace:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if there is not None and there.st_ino == status.st_ino:
            return
        aside = ""
        if there is not None and stat.S_ISDIR(there.st_mode):
            if not stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self.remove_folder(to, new)
        elif there is not None:
            if stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            aside = self._put_aside(new_path, there)
        os.rename(old_path, new_path, src_dir_fd=self.root, dst_dir_fd=self.root)
        moved = self._known(status)
        moved.parent, moved.name = to, new
        carries = moved.changes if aside else None
        self._named("rename", old_path, to=new_path, aside=aside, carries=carries)
        if carries is not None:
            carries.carry(self._last_change)

    # -- files

    def status(self, inode: Inode) -> os.stat_result:
        """Return the status of an inode, as stat() returns it."""
        if inode.file >= 0:
            return os.fstat(inode.file)
        return os.stat(inode.path, dir_fd=self.root, follow_symlinks=False)

    def set_mode(self, inode: Inode, mode: int) -> None:
        """Change the mode at once; no power cut undoes that."""
        if inode.file >= 0:
            os.fchmod(inode.file, mode)
        else:
            os.chmod(inode.path, mode, dir_fd=self.root)

    def set_times(self, inode: Inode, accessed_ns: int, modified_ns: int) -> None:
        """Change the times at once; no power cut undoes that."""
        ns = (accessed_ns, modified_ns)
        if inode.file >= 0:
            os.utime(inode.file, ns=ns)
        else:
            os.utime(inode.path, ns=ns, dir_fd=self.root, follow_symlinks=False)

    def open(self, inode: Inode) -> None:
        """Note that the kernel has opened the inode once more."""
        if not inode.is_folder:
            self._descriptor(inode)
        inode.opens += 1

    def close(self, inode: Inode) -> None:
        """Note that the kernel has closed the inode once."""
        inode.opens -= 1
        self._tidy(inode)

    def list(self, folder: Inode) -> list[tuple[int, str, int]]:
        """Return key, name and type of each entry of a folder."""
        found = [(folder.key, ".", stat.S_IFDIR), (folder.key, "..", stat.S_IFDIR)]
        file = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self.root)
        try:
            with os.scandir(file) as entries:
                for entry in entries:
                    kind = stat.S_IFLNK if entry.is_symlink() else stat.S_IFREG
                    kind = stat.S_IFDIR if entry.is_dir(follow_symlinks=False) else kind
                    found.append((entry.inode(), entry.name, kind))
        finally:
            os.close(file)
        return found

    def read(self, inode: Inode, size: int, offset: int) -> bytes:
        """Return up to `size` bytes at `offset` as they were written last, synced or not."""
        return os.pread(self._descriptor(inode), size, offset)

    def write(self, inode: Inode, data: bytes | memoryview, offset: int, block: int = 0) -> None:
        """Write all of `data` at `offset`, as one change. With `block` it becomes several changes,
        which end at multiples of `block`; bytes that the page cache writes again unchanged before
        the old end of the file are left out."""
        if block and offset // block != (offset + len(data) - 1) // block:
            first = block - offset % block
            self.write(inode, data[:first], offset, block)
            for at in range(first, len(data), block):
                self.write(inode, data[at : at + block], offset + at, block)
            return
        file = self._descriptor(inode)
        old_size = os.fstat(file).st_size
        if block and offset < old_size < offset + len(data):
            there = os.pread(file, old_size - offset, offset)
            if data[: len(there)] == there:
                data, offset = data[len(there) :], old_size
        length = len(data)
        before: tuple[Extent, ...] = ()
        if offset < old_size:
            before = self._store.save(file, offset, min(length, old_size - offset))
        done = os.pwrite(file, data, offset)
        while done < length:
            done += os.pwrite(file, data[done:], offset + done)
        new_size = max(old_size, offset + length)
        self._change(inode, offset, length, before, old_size, new_size)

    def resize(self, inode: Inode, size: int) -> None:
        """Truncate a file, or let it grow by zeros."""
        file = self._descriptor(inode)
        old_size = os.fstat(file).st_size
        if size == old_size:
            return
        before = self._store.save(file, size, old_size - size) if size < old_size else ()
        os.ftruncate(file, size)
        self._change(inode, size, 0, before, old_size, size)

    def sync(self, inode: Inode) -> None:
        """Sync a file's data and all names; for a folder, the names only."""
        if self.lies_since is not None:
            return
        self._sync_names()
        if inode.changes is not None:
            inode.changes.sync()
            self._tidy(inode)

    def write_back(self, until: int) -> None:
        """Write back old changes as the kernel does: the whole of each file that has a change up to
        number `until`, and all names. While syncs are lies, write nothing back."""
        files = [i for i in self._changed.values() if i.changes and i.changes.oldest <= until]
        if self.lies_since is None and (files or any(name.number <= until for name in self._names)):
            self._sync_names()
            for inode in files:
                self.sync(inode)

    def fail_sync(self, inode: Inode) -> None:
        """Fail the sync of a file: its bytes never reach the disk."""
        if inode.changes is not None:
            inode.changes.fail()

    # -- the end

    @property
    def last_change(self) -> int:
        """The number of the change that was made last."""
        return self._last_change

    def cut(self, keep: float, rng: random.Random | None = None) -> CutResult:
        """Cut the power: keep only the share `keep` (0 to 1) of the unsynced bytes. Without `rng`
        these are the bytes written first, so that one write may be kept in part; with it those of
        drawn writes, in any order. Data that was written while syncs were lies is lost in any
        case."""
        honest = self._last_change if self.lies_since is None else self.lies_since
        changes = sorted((c for _, c in self._unsynced()), key=lambda change: change.number)
        before = sum(change.length for change in changes)
        mine = [change for change in changes if change.number <= honest]
        keeps = _drawn(mine, keep, rng) if rng else _prefix(mine, keep)
        names = [change.number for change in self._names if change.number <= honest]
        if mine and not rng and keep < 1:
            last_name = max(keeps, default=0)
        else:
            last_name = names[count - 1] if (count := round(len(names) * keep)) else 0
        for name in self._names:
            if name.carries is not None and name.number <= last_name:
                keeps |= {c.number: c.length for c in name.carries if c.number <= name.number}
        lost = 0
        for inode in list(self._changed.values()):
            if inode.changes is not None:
                lost += inode.changes.roll_back(
                    inode.file, lambda change: keeps.get(change.number, DROPPED)
                )
        lost += self._names.roll_back(lambda change: change.number <= last_name)
        return CutResult(before, sum(n for n in keeps.values() if n > 0), lost)

    def last_synced(self) -> dict[str, tuple[int, int, int]]:
        """Return of each file that can be torn the write that was synced last: by path, its
        descriptor, its offset and its length."""
        found = {}
        for inode in self._by_key.values():
            if inode.changes is not None and inode.changes.last_synced[1]:
                with contextlib.suppress(FileNotFoundError):
                    found[inode.path] = self._descriptor(inode), *inode.changes.last_synced
        return found

    def tear(self, which: float, kept: float) -> str:
        """Cut the power, keep no unsynced byte, and only the first share `kept` of a write of
        `last_synced` (there must be one), drawn by `which` (0 to 1). Return which, as a phrase."""
        written = sorted(self.last_synced().items())
        path, (file, offset, length) = written[min(len(written) - 1, int(which * len(written)))]
        self.cut(0)
        first = offset + round(length * kept)
        os.pwrite(file, bytes(offset + length - first), first)
        return f"{path} is torn at byte {first} of {offset}..{offset + length}"

    # -- inside

    def _sync_names(self) -> None:
        if not self._names.sync():
            return
        for inode in list(self._changed.values()):
            if inode.parent is None or not (inode.changes and inode.changes.dirty):
                self._tidy(inode)

    def _known(self, status: os.stat_result) -> Inode:
        """Return the inode of a file or folder, made if it is not known."""
        inode = self._by_key.get(status.st_ino)
        if inode is None:
            self._last_number += 1
            is_folder = stat.S_ISDIR(status.st_mode)
            inode = self._by_key[status.st_ino] = Inode(self._last_number, status.st_ino, is_folder)
        self.inodes[inode.number] = inode
        return inode

    def _descriptor(self, inode: Inode) -> int:
        if inode.file < 0:
            flags = os.O_CLOEXEC | os.O_NOFOLLOW
            try:
                inode.file = os.open(inode.path, os.O_RDWR | flags, dir_fd=self.root)
            except PermissionError:
                inode.file = os.open(inode.path, os.O_RDONLY | flags, dir_fd=self.root)
        return inode.file

    def _put_aside(self, path: str, status: os.stat_result) -> str:
        """Take away the name of a file, which may be open."""
        inode = self._by_key.get(status.st_ino)
        if inode is not None and inode.file < 0 and stat.S_ISREG(status.st_mode):
            self._descriptor(inode)
        aside = self._names.put_aside(path)
        self._gone(status)
        return aside

    def _gone(self, status: os.stat_result) -> None:
        inode = self._by_key.get(status.st_ino)
        if inode is None:
            return
        inode.parent = None
        if inode.file >= 0:
            self._changed[inode.number] = inode
        else:
            # Nothing keeps its key from being given to another file.
            del self._by_key[inode.key]

    def _named(self, what: Any, path: str, **details: Any) -> None:
        self._last_change += 1
        self._names.add(NameChange(self._last_change, what, path, **details))

    def _change(
        self,
        inode: Inode,
        offset: int,
        length: int,
        before: tuple[Extent, ...],
        old_size: int,
        new_size: int,
    ) -> None:
        self._last_change += 1
        if inode.changes is None:
            inode.changes = FileChanges(self._store)
        self._changed[inode.number] = inode
        inode.changes.add(Change(self._last_change, offset, length, before, old_size, new_size))
        self.told_apart += 1
        if self.told_apart > self._merge_at:
            self._merge()

    def _merge(self) -> None:
        """Tell fewer changes apart: of files with many of them the older half becomes one."""
        counts = {inode: len(inode.changes or ()) for inode in self._changed.values()}
        for inode, count in counts.items():
            if inode.changes is not None and count * len(counts) * 2 >= self._most:
                inode.changes.merge_older()
        self.told_apart = sum(len(inode.changes or ()) for inode in self._changed.values())
        # Each file keeps one change at least: with very many files there is little to merge.
        few = self.told_apart <= self._most
        self._merge_at = self._most if few else 2 * self.told_apart

    def _unsynced(self) -> Iterator[tuple[Inode, Change]]:
        for inode in self._changed.values():
            for change in inode.changes or ():
                yield inode, change

    def _tidy(self, inode: Inode) -> None:
        """Let go of what an inode needs no more. A file without a name is kept open while the
        kernel knows it."""
        if inode.opens or inode.number == 1:
            return
        changes, removed = inode.changes, inode.parent is None
        is_gone = removed and inode.file >= 0 and not os.fstat(inode.file).st_nlink
        if changes is not None and is_gone:
            changes.forget()
        if (changes is not None and changes.dirty) or (removed and inode.lookups):
            return
        self._changed.pop(inode.number, None)
        if inode.file >= 0:
            os.close(inode.file)
            inode.file = -1
        if not inode.lookups and self._by_key.get(inode.key) is inode:
            del self._by_key[inode.key]


def _below(parent: Inode, name: str) -> str:
    path = parent.path
    return name if path == ROOT else f"{path}/{name}"


def _prefix(changes: list[Change], keep: float) -> dict[int, int]:
    """Return how many bytes remain of each change, by its number, if the first ones remain."""
    room = round(sum(change.length for change in changes) * keep)
    found: dict[int, int] = {}
    for change in changes:
        if change.length > room:
            if room and not change.merged:
                found[change.number] = room
            break
        room -= change.length
        if not room and not change.length and keep < 1:
            break
        found[change.number] = change.length
    return found


def _drawn(changes: list[Change], keep: float, rng: random.Random) -> dict[int, int]:
    """Return how many bytes remain of each change, by its number, if drawn ones remain, and one of
    them in part."""
    found = {each.number: each.length for each in changes if rng.random() < keep}
    torn = [each for each in changes if each.length > 1 and not each.merged]
    if torn and 0 < keep < 1:
        change = rng.choice(torn)
        found[change.number] = rng.randrange(1, change.length)
    return found
