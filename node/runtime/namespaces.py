"""Entering the namespaces of a process that serves a disk, where that disk is mounted, and a user
namespace of one's own. Standard library only: the launcher of other systems runs this file by its
path."""

import ctypes
import os

_NEW_USER = 0x10000000
ORDINARY = 1000


def enter(pid: int) -> None:
    """Enter the user and mount namespaces of process `pid`. This process must have one thread.
    Raises OSError."""
    here = os.getcwd()
    libc = ctypes.CDLL(None, use_errno=True)
    flags = os.O_RDONLY | os.O_CLOEXEC
    spaces = [os.open(f"/proc/{pid}/ns/{kind}", flags) for kind in ("user", "mnt")]
    for space in spaces:
        if libc.setns(space, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"cannot enter the namespaces of {pid}")
        os.close(space)
    # A folder of the same name, but what is mounted over it.
    os.chdir(here)


def map_user(inside: int, inside_group: int, user: int, group: int) -> None:
    """Let this process, which is in a new user namespace, see `user` and `group`, which it had
    before, as these. Raises OSError."""
    lines = {"setgroups": "deny", "uid_map": f"{inside} {user} 1"}
    lines["gid_map"] = f"{inside_group} {group} 1"
    for file, line in lines.items():
        with open(f"/proc/self/{file}", "w") as opened:
            opened.write(line)


def be_ordinary() -> None:
    """Let this process, which must have one thread, see itself as the user 1000: to it, files of
    the user that it is belong to that one. Raises OSError."""
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_USER) != 0:
        raise OSError(ctypes.get_errno(), "cannot make a user namespace")
    map_user(ORDINARY, ORDINARY, user, group)
