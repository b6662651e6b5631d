"""A mount that only the processes of one namespace see, for an ordinary user.

A user namespace gives a process the right to mount in a mount namespace of its own, and nowhere
else. Nothing has to be undone: the mount is gone with the last process in the namespace."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

from node.formats import host_tools
from node.formats.errors import FloodmarkError
from node.formats.host_errors import reason
from node.formats.host_tools import FUSE
from node.runtime.namespaces import map_user

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWUSER: Final = 0x10000000
_MS_NOSUID: Final = 2
_MS_NODEV: Final = 4
_MS_REC: Final = 0x4000
_MS_PRIVATE: Final = 1 << 18
_FOLDER_MODE: Final = "40000"


class CannotMount(FloodmarkError):
    """A disk in user space is impossible on this machine; the message says why."""


def enter_own_namespaces() -> None:
    """Give this process, which must have one thread, a user and a mount namespace of its own.
    Raises CannotMount."""
    user, group = os.geteuid(), os.getegid()
    _call("unshare", "user namespaces", _CLONE_NEWUSER | _CLONE_NEWNS)
    try:
        map_user(user, group, user, group)
    except OSError as error:
        raise CannotMount(f"a user namespace cannot be set up: {reason(error)}") from None
    _call("mount", "mount namespaces", None, b"/", None, _MS_REC | _MS_PRIVATE, None)


def mount(folder: Path) -> int:
    """Mount a file system in user space over a folder; return the descriptor of /dev/fuse that its
    requests come by. Raises CannotMount."""
    try:
        device = os.open(host_tools.at(FUSE), os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise CannotMount(f"{FUSE} cannot be used: {reason(error)}") from None
    options = f"fd={device},rootmode={_FOLDER_MODE},user_id={os.geteuid()},group_id={os.getegid()}"
    flags = _MS_NOSUID | _MS_NODEV
    name, kind = b"floodmark", b"fuse"
    _call("mount", FUSE, name, bytes(folder), kind, flags, options.encode())
    return device


def _call(function: str, what: str, *arguments: bytes | int | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    if getattr(libc, function)(*words) != 0:
        number = ctypes.get_errno()
        # To unshare(2), a full disk is the limit of namespaces (sysctl user.max_user_namespaces).
        full = function == "unshare" and number == errno.ENOSPC
        why = "this host allows no further ones" if full else reason(OSError(number, ""))
        raise CannotMount(f"{what} cannot be used: {why}")
