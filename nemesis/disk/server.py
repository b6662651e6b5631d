"""The server of one disk: it answers the kernel's requests, one after the other.

A sync that a fault delays is done by another thread when its time comes, so that no other request
waits for it. If its caller is killed meanwhile, it is never done."""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nemesis.disk import wire
from nemesis.disk.orders import DiskAnswer, DiskOrder
from nemesis.disk.volume import Inode, Volume
from nemesis.disk.wire import Opcode
from node.formats.host_errors import reason
from node.runtime.failing_disk import DiskFaults

_WRITE_BACK_S: Final = 1.0
_GONE: Final = (errno.ENODEV, errno.EBADF)
Body = memoryview
Answer = bytes | None


class _Refused(OSError):
    """A request that is answered with an error number."""

    def __init__(self, number: int) -> None:
        super().__init__(number, os.strerror(number))


class DiskServer:
    """The server of one volume, whose requests come from the kernel by the descriptor `device`."""

    def __init__(self, volume: Volume, device: int, folder: Path, *, write_through: bool) -> None:
        """Serve the mount at `folder`. `write_through`: the kernel passes each write on at once,
        instead of when the file is synced or closed."""
        self._volume = volume
        self._device = device
        self._folder = folder
        self._write_through = write_through
        self._lock = threading.Lock()
        self._wrong = DiskFaults()
        self._late: dict[int, threading.Timer] = {}
        self._slow: list[tuple[int, Inode]] = []
        self._listed: dict[int, list[tuple[int, str, int]]] = {}
        self._last_handle = 0
        # The method for an operation has its name.
        self._answers: dict[int, Callable[[int, Body], Answer]] = {
            operation: getattr(self, f"_{operation.name.lower()}") for operation in Opcode
        }

    def serve(self) -> None:
        """Answer requests until the mount is gone."""
        buffer = bytearray(wire.MOST_REQUEST)
        view, header = memoryview(buffer), wire.HEADER
        while True:
            try:
                length = os.readv(self._device, [buffer])
            except OSError as error:
                if error.errno in _GONE:
                    return
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue
                raise
            _, operation, unique, inode, *_ = header.unpack_from(buffer)
            with self._lock:
                self._answer(operation, unique, inode, view[header.size : length])

    def obey(self, order: DiskOrder) -> DiskAnswer:
        """Carry out an order of the harness, between two requests. After a power cut no request is
        answered any more."""
        self._prepare(order)
        self._lock.acquire()
        stays = order.what not in ("cut", "tear")
        try:
            return self._obey(order)
        except OSError as error:
            return DiskAnswer(error=f"{order.what}: {reason(error)}")
        finally:
            if stays:
                self._lock.release()

    def write_back(self, age_s: float) -> None:
        """Write back unsynced data that is `age_s` seconds old, again and again, while no fault is
        in force."""
        changes: deque[tuple[float, int]] = deque()
        while True:
            time.sleep(min(_WRITE_BACK_S, age_s / 4))
            # The age of a write is known when the kernel has passed it on.
            self._fetch_writes()
            with self._lock:
                now_s = time.monotonic()
                changes.append((now_s, self._volume.last_change))
                while changes and changes[0][0] <= now_s - age_s:
                    _, until = changes.popleft()
                    if not self._wrong.in_force:
                        self._volume.write_back(until)

    # -- orders

    def _prepare(self, order: DiskOrder) -> None:
        """Prepare the kernel for an order before requests are held up for it: the kernel writes
        back, or drops what it has in memory, and sends requests for that."""
        if order.what in ("cut", "tear", "copy", "sync"):
            self._fetch_writes()
        elif order.what == "refresh":
            with self._lock:
                entries = self._volume.forget_closed()
            for parent, name in entries:
                raw = os.fsencode(name)
                body = wire.INVALIDATE_ENTRY.pack(parent, len(raw), 0) + raw + b"\0"
                self._send(0, -wire.NOTIFY_INVAL_ENTRY, body)
        elif order.fails is not None and order.fails.what == "unreadable":
            for number in list(self._volume.inodes):
                self._send(0, -wire.NOTIFY_INVAL_INODE, wire.INVALIDATE.pack(number, 0, 0))

    def _fetch_writes(self) -> None:
        """Have the kernel pass on all that it holds back. Another process waits for it: a thread
        that waits for its own disk keeps /dev/fuse, and so itself, for ever after a SIGKILL."""
        subprocess.run(["sync", "-f", str(self._folder)], stderr=subprocess.DEVNULL, check=False)

    def _obey(self, order: DiskOrder) -> DiskAnswer:
        volume, wrong = self._volume, self._wrong
        match order.what:
            case "add":
                assert order.fails is not None
                wrong.in_force[order.number] = order.fails
                self._lie()
            case "remove" | "count":
                if order.what == "remove":
                    wrong.in_force.pop(order.number, None)
                    self._lie()
                return DiskAnswer(affected=wrong.affected.get(order.number, 0))
            case "copy":
                shutil.copytree(f"/proc/self/fd/{volume.root}", order.to, symlinks=True)
            case "sync":
                volume.write_back(volume.last_change)
            case "cut":
                rng = random.Random(order.seed) if order.seed >= 0 else None
                done = volume.cut(order.keep, rng)
                if lying := wrong.first("lying"):
                    wrong.count(lying, done.lost)
                return DiskAnswer(before=done.before, after=done.after, affected=done.lost)
            case "tearable":
                return DiskAnswer(affected=len(volume.last_synced()))
            case "tear":
                return DiskAnswer(words=volume.tear(order.which, order.kept))
        return DiskAnswer()

    def _lie(self) -> None:
        volume = self._volume
        if not self._wrong.first("lying"):
            volume.lies_since = None
        elif volume.lies_since is None:
            volume.lies_since = volume.last_change

    # -- requests

    def _answer(self, operation: int, unique: int, inode: int, body: Body) -> None:
        self._slow.clear()
        error, answer = 0, b""
        try:
            method = self._answers.get(operation)
            if method is None:
                raise _Refused(errno.ENOSYS)
            found = method(inode, body)
            if found is None:
                return
            answer = found
        except OSError as refused:
            error = refused.errno or errno.EIO
        for delay_ms, synced in self._slow:
            late = threading.Timer(delay_ms / 1000, self._sync_late, (unique, synced, answer))
            late.daemon = True
            self._late[unique] = late
            late.start()
            return
        self._send(unique, error, answer)

    def _sync_late(self, unique: int, inode: Inode, answer: bytes) -> None:
        error = 0
        with self._lock:
            if self._late.pop(unique, None) is None:
                return  # interrupted
            try:
                self._volume.sync(inode)
            except OSError as failed:
                error = failed.errno or errno.EIO
            self._send(unique, error, answer)

    def _send(self, unique: int, error: int, answer: bytes) -> None:
        head = wire.REPLY.pack(wire.REPLY.size + len(answer), -error, unique)
        try:
            os.writev(self._device, [head, answer])
        except OSError as refused:
            # ENOENT: its caller is gone.
            if unique and refused.errno not in (errno.ENOENT, *_GONE):
                raise

    def _inode(self, number: int) -> Inode:
        inode = self._volume.inodes.get(number)
        if inode is None:
            raise _Refused(errno.ESTALE)
        return inode

    def _entry(self, parent: Inode, name: str) -> bytes:
        inode, status = self._volume.find(parent, name)
        return wire.entry_out(inode.number, status)

    def _init(self, inode: int, body: Body) -> bytes:
        major, minor, ahead, offered = wire.INIT_IN.unpack_from(body)
        if (major, minor) < (wire.MAJOR, wire.MINOR):
            raise _Refused(errno.EPROTO)
        flags = offered & (wire.WANTED_FLAGS | (0 if self._write_through else wire.WRITEBACK))
        return wire.INIT_OUT.pack(
            *(wire.MAJOR, wire.MINOR, ahead, flags, wire.MOST_PENDING, wire.MANY_PENDING),
            *(wire.MOST_WRITE, wire.TIME_GRAIN_NS, wire.MOST_WRITE // wire.PAGE, 0, 0),
        )

    def _destroy(self, inode: int, body: Body) -> None:
        """Answer nothing: the mount is gone."""

    def _interrupt(self, inode: int, body: Body) -> None:
        """Answer a late sync at once, because its caller is being killed."""
        (unique,) = wire.INTERRUPT_IN.unpack_from(body)
        if late := self._late.pop(unique, None):
            late.cancel()
            self._send(unique, errno.EINTR, b"")

    def _lookup(self, inode: int, body: Body) -> bytes:
        return self._entry(self._inode(inode), wire.names(body)[0])

    def _forget(self, inode: int, body: Body) -> None:
        self._volume.forget(inode, wire.FORGET_IN.unpack_from(body)[0])

    def _batch_forget(self, inode: int, body: Body) -> None:
        count, _ = wire.BATCH_IN.unpack_from(body)
        for place in range(count):
            at = wire.BATCH_IN.size + place * wire.BATCH_ONE.size
            self._volume.forget(*wire.BATCH_ONE.unpack_from(body, at))

    def _getattr(self, number: int, body: Body) -> bytes:
        return wire.attributes_out(number, self._volume.status(self._inode(number)))

    def _setattr(self, number: int, body: Body) -> bytes:
        valid, _, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, *_ = (
            wire.SETATTR_IN.unpack_from(body)
        )
        inode = self._inode(number)
        if valid & wire.SET_SIZE:
            self._volume.resize(inode, size)
        if valid & wire.SET_MODE:
            self._volume.set_mode(inode, stat.S_IMODE(mode))
        if valid & (wire.SET_ATIME | wire.SET_MTIME):
            now, before = time.time_ns(), self._volume.status(inode)
            given = (atime * 10**9 + atime_ns, mtime * 10**9 + mtime_ns)
            times = [before.st_atime_ns, before.st_mtime_ns]
            for place, one in enumerate((wire.SET_ATIME, wire.SET_MTIME)):
                if valid & one:
                    at_once = (wire.SET_ATIME_NOW, wire.SET_MTIME_NOW)[place]
                    times[place] = now if valid & at_once else given[place]
            self._volume.set_times(inode, *times)
        return wire.attributes_out(number, self._volume.status(inode))

    def _readlink(self, number: int, body: Body) -> bytes:
        return os.fsencode(os.readlink(self._inode(number).path, dir_fd=self._volume.root))

    def _symlink(self, number: int, body: Body) -> bytes:
        self._check_room()
        name, target = wire.names(body)
        parent = self._inode(number)
        self._volume.make_symlink(parent, name, target)
        return self._entry(parent, name)

    def _mknod(self, number: int, body: Body) -> bytes:
        mode, *_ = wire.MKNOD_IN.unpack_from(body)
        if stat.S_ISSOCK(mode):
            self._check_room()
            parent, name = self._inode(number), wire.names(body[wire.MKNOD_IN.size :])[0]
            self._volume.make_socket(parent, name, mode)
            return self._entry(parent, name)
        if not stat.S_ISREG(mode):
            raise _Refused(errno.EPERM)
        return self._new(number, body[wire.MKNOD_IN.size :], mode)[0]

    def _new(self, number: int, names: Body, mode: int) -> tuple[bytes, Inode]:
        self._check_room()
        parent, name = self._inode(number), wire.names(names)[0]
        self._volume.create(parent, name, mode)
        inode, status = self._volume.find(parent, name)
        return wire.entry_out(inode.number, status), inode

    def _mkdir(self, number: int, body: Body) -> bytes:
        self._check_room()
        mode, _ = wire.MKDIR_IN.unpack_from(body)
        parent, name = self._inode(number), wire.names(body[wire.MKDIR_IN.size :])[0]
        self._volume.make_folder(parent, name, mode)
        return self._entry(parent, name)

    def _unlink(self, number: int, body: Body) -> bytes:
        self._volume.remove(self._inode(number), wire.names(body)[0])
        return b""

    def _rmdir(self, number: int, body: Body) -> bytes:
        self._volume.remove_folder(self._inode(number), wire.names(body)[0])
        return b""

    def _rename(self, number: int, body: Body) -> bytes:
        (to,) = wire.RENAME_IN.unpack_from(body)
        old, new = wire.names(body[wire.RENAME_IN.size :])
        self._volume.rename(self._inode(number), old, self._inode(to), new, replace=True)
        return b""

    def _rename2(self, number: int, body: Body) -> bytes:
        to, flags, _ = wire.RENAME2_IN.unpack_from(body)
        if flags & ~wire.NO_REPLACE:
            raise _Refused(errno.EINVAL)
        old, new = wire.names(body[wire.RENAME2_IN.size :])
        replace = not flags & wire.NO_REPLACE
        self._volume.rename(self._inode(number), old, self._inode(to), new, replace=replace)
        return b""

    def _link(self, number: int, body: Body) -> bytes:
        self._check_room()
        (old,) = wire.LINK_IN.unpack_from(body)
        parent, name = self._inode(number), wire.names(body[wire.LINK_IN.size :])[0]
        self._volume.link(self._inode(old), parent, name)
        return self._entry(parent, name)

    def _open(self, number: int, body: Body) -> bytes:
        self._volume.open(self._inode(number))
        return wire.OPEN_OUT.pack(0, 0, 0)

    def _create(self, number: int, body: Body) -> bytes:
        _, mode, umask, _ = wire.CREATE_IN.unpack_from(body)
        entry, inode = self._new(number, body[wire.CREATE_IN.size :], mode & ~umask)
        self._volume.open(inode)
        return entry + wire.OPEN_OUT.pack(0, 0, 0)

    def _release(self, number: int, body: Body) -> bytes:
        self._volume.close(self._inode(number))
        return b""

    def _read(self, number: int, body: Body) -> bytes:
        _, offset, size, *_ = wire.READ_IN.unpack_from(body)
        inode = self._inode(number)
        if self._wrong.affecting("unreadable"):
            raise _Refused(errno.EIO)
        return self._volume.read(inode, size, offset)

    def _write(self, number: int, body: Body) -> bytes:
        _, offset, size, how, _, flags, _ = wire.WRITE_IN.unpack_from(body)
        inode = self._inode(number)
        if self._wrong.in_force and offset + size > self._volume.status(inode).st_size:
            self._check_room()
        start = wire.WRITE_IN.size
        # What comes from the page cache comes in pages, which reach a disk one by one.
        block = wire.PAGE if how & wire.FROM_CACHE else 0
        self._volume.write(inode, body[start : start + size], offset, block)
        if flags & os.O_DSYNC:
            self._sync(inode)
        return wire.WRITE_OUT.pack(size, 0)

    def _fallocate(self, number: int, body: Body) -> bytes:
        _, offset, length, mode, _ = wire.FALLOCATE_IN.unpack_from(body)
        if mode & ~wire.KEEP_SIZE:
            raise _Refused(errno.EOPNOTSUPP)
        self._check_room()
        inode = self._inode(number)
        if not mode and offset + length > self._volume.status(inode).st_size:
            self._volume.resize(inode, offset + length)
        return b""

    def _fsync(self, number: int, body: Body) -> bytes:
        self._sync(self._inode(number))
        return b""

    _fsyncdir = _fsync

    def _sync(self, inode: Inode) -> None:
        """Sync a file, subject to the faults of the disk."""
        wrong = self._wrong
        if not wrong.in_force:
            self._volume.sync(inode)
            return
        failing = wrong.affecting("error")
        if failing is not None:
            if failing.written:
                self._volume.sync(inode)
            else:
                self._volume.fail_sync(inode)
            raise _Refused(errno.EIO)
        slow = wrong.affecting("slow")
        if slow is not None:
            self._slow.append((slow.delay_ms, inode))
        else:
            self._volume.sync(inode)

    def _check_room(self) -> None:
        if self._wrong.affecting("full"):
            raise _Refused(errno.ENOSPC)

    def _statfs(self, number: int, body: Body) -> bytes:
        found = os.fstatvfs(self._volume.root)
        full = self._wrong.first("full")
        free, available = (0, 0) if full else (found.f_bfree, found.f_bavail)
        return wire.STATFS_OUT.pack(
            *(found.f_blocks, free, available, found.f_files, found.f_ffree),
            *(found.f_bsize, found.f_namemax, found.f_frsize, 0),
        )

    # -- folders

    def _opendir(self, number: int, body: Body) -> bytes:
        self._last_handle += 1
        self._listed[self._last_handle] = self._volume.list(self._inode(number))
        return wire.OPEN_OUT.pack(self._last_handle, 0, 0)

    def _readdir(self, number: int, body: Body) -> bytes:
        handle, offset, size, *_ = wire.READ_IN.unpack_from(body)
        found = b""
        for place, (key, name, mode) in enumerate(self._listed[handle][offset:], offset + 1):
            packed = wire.dirent(key, place, name, mode)
            if len(found) + len(packed) > size:
                break
            found += packed
        return found

    def _releasedir(self, number: int, body: Body) -> bytes:
        self._listed.pop(wire.RELEASE_IN.unpack_from(body)[0], None)
        return b""
