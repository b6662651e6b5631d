"""Refusals of the host in plain words, without the number or the name of an error."""

from __future__ import annotations

import errno
from typing import Final

_REASONS: Final = {
    errno.ENOSPC: "the disk is full; free some space, or choose another place",
    errno.EDQUOT: "the disk is full (the quota of this user); free some space",
    errno.EROFS: "the file system is read-only; choose another place",
    errno.EACCES: "this user has no permission; grant it, or choose another place",
    errno.EPERM: "this user has no permission; grant it, or choose another place",
    errno.EIO: "the disk fails (an input/output error)",
    errno.ENOENT: "there is no such file or folder",
    errno.ENOTDIR: "a part of its path is no folder",
    errno.EISDIR: "that is a folder",
    errno.EEXIST: "that exists already",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EADDRINUSE: "another process uses that port; end it, or choose another port",
    errno.EMFILE: "this process has too many open files; raise the limit (ulimit -n)",
    errno.ENOMEM: "the host has no more memory",
}


def reason(error: BaseException) -> str:
    """Return why the host refused something, in plain words and without a number."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    return _REASONS.get(error.errno) or error.strerror or str(error)


def refused(error: OSError) -> str:
    """Return the same with the file that it is about, if that is known."""
    return f"{error.filename}: {reason(error)}" if error.filename else reason(error)
