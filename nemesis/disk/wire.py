"""The messages between the kernel and a file system in user space (linux/fuse.h, version 7.31)."""

from __future__ import annotations

import os
import stat
from enum import IntEnum
from struct import Struct
from typing import Final

MAJOR: Final = 7
MINOR: Final = 31
HEADER: Final = Struct("<IIQQIIII")
"""Of a request: length, operation, its number, inode, user, group, process, unused."""
REPLY: Final = Struct("<IiQ")
"""Of an answer: length, 0 or minus the error, the number of the request."""
MOST_WRITE: Final = 1 << 20
MOST_REQUEST: Final = MOST_WRITE + 8192
CACHED_S: Final = 3600
"""How long the kernel may rely on what it was told: the disk has no other writer."""


class Opcode(IntEnum):
    """The operations of the kernel that the server answers; it refuses all others."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43
    RENAME2 = 45


INIT_IN: Final = Struct("<IIII")
INIT_OUT: Final = Struct("<IIIIHHIIHHI28x")
MOST_PENDING: Final = 64
"""How many requests nobody waits for (reading ahead, writing back) may be open at once."""
MANY_PENDING: Final = 48
"""With so many of them open the kernel takes the disk for congested."""
TIME_GRAIN_NS: Final = 1
_FLAGS: Final = {"async-read": 1, "big-writes": 1 << 5, "parallel-dirops": 1 << 18}
MAX_PAGES: Final = 1 << 22
WRITEBACK: Final = 1 << 16
WANTED_FLAGS: Final = sum(_FLAGS.values()) | MAX_PAGES
SETATTR_IN: Final = Struct("<IIQQQQQQIIIIIIII")
SET_MODE, SET_SIZE, SET_ATIME, SET_MTIME = 1, 8, 16, 32
SET_HANDLE, SET_ATIME_NOW, SET_MTIME_NOW = 64, 128, 256
READ_IN: Final = Struct("<QQIIQII")
"""Handle, offset, size, and flags."""
WRITE_IN: Final = Struct("<QQIIQII")
"""Handle, offset, size, flags, owner, the flags of the open file."""
FROM_CACHE: Final = 1
PAGE: Final = 4096
WRITE_OUT: Final = Struct("<II")
RELEASE_IN: Final = Struct("<QII")
OPEN_OUT: Final = Struct("<QII")
CREATE_IN: Final = Struct("<IIII")
MKNOD_IN: Final = Struct("<IIII")
MKDIR_IN: Final = Struct("<II")
RENAME_IN: Final = Struct("<Q")
RENAME2_IN: Final = Struct("<QII")
NO_REPLACE: Final = 1
LINK_IN: Final = Struct("<Q")
FORGET_IN: Final = Struct("<Q")
BATCH_IN: Final = Struct("<II")
BATCH_ONE: Final = Struct("<QQ")
FALLOCATE_IN: Final = Struct("<QQQII")
KEEP_SIZE: Final = 1
INTERRUPT_IN: Final = Struct("<Q")
STATFS_OUT: Final = Struct("<QQQQQIIII24x")
INVALIDATE: Final = Struct("<Qqq")
"""A notice: inode, offset, length (negative offset: attributes only)."""
INVALIDATE_ENTRY: Final = Struct("<QII")
"""A notice: folder, length of the name, flags; the name follows."""
NOTIFY_INVAL_INODE: Final = 2
NOTIFY_INVAL_ENTRY: Final = 3
_ATTR: Final = Struct("<QQQQQQIIIIIIIIII")
_ENTRY: Final = Struct("<QQQQII")
_ATTR_OUT: Final = Struct("<QII")
_DIRENT: Final = Struct("<QQII")
_S: Final = 1_000_000_000


def attributes(number: int, status: os.stat_result) -> bytes:
    """Return a file's status in the kernel's form."""
    return _ATTR.pack(
        *(number, status.st_size, status.st_blocks),
        *(status.st_atime_ns // _S, status.st_mtime_ns // _S, status.st_ctime_ns // _S),
        *(status.st_atime_ns % _S, status.st_mtime_ns % _S, status.st_ctime_ns % _S),
        *(status.st_mode, status.st_nlink, status.st_uid, status.st_gid, 0, PAGE, 0),
    )


def attributes_out(number: int, status: os.stat_result) -> bytes:
    """Return the answer to a GETATTR."""
    return _ATTR_OUT.pack(CACHED_S, 0, 0) + attributes(number, status)


def entry_out(number: int, status: os.stat_result) -> bytes:
    """Return the answer to a LOOKUP."""
    return _ENTRY.pack(number, 0, CACHED_S, CACHED_S, 0, 0) + attributes(number, status)


def dirent(key: int, next_offset: int, name: str, mode: int) -> bytes:
    """Return one entry of a folder in the kernel's form."""
    raw = os.fsencode(name)
    packed = _DIRENT.pack(key, next_offset, len(raw), stat.S_IFMT(mode) >> 12) + raw
    return packed + bytes(-len(packed) % 8)


def names(body: bytes | memoryview) -> list[str]:
    """Return the names at the end of a request."""
    return [os.fsdecode(bytes(raw)) for raw in bytes(body).split(b"\0")[:-1]]
