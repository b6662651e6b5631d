"""Errors of the operating system in plain words, without their numbers or names."""

from __future__ import annotations

import errno
import os
from typing import Final

from node.formats.errors import StorageError

NO_PERMISSION: Final = "this user has no permission"
_FORBIDDEN: Final = f"{NO_PERMISSION}; grant it, or choose another place"
_REASONS: Final = {
    errno.ENOSPC: "the disk is full; free some space, or choose another place",
    errno.EDQUOT: "the disk is full (the quota of this user); free some space",
    errno.EROFS: "the file system is read-only; choose another place",
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EIO: "the disk fails (an input/output error)",
    errno.ENOENT: "there is no such file or folder",
    errno.ENOTDIR: "a part of its path is no folder",
    errno.EISDIR: "that is a folder",
    errno.EEXIST: "that exists already",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EADDRINUSE: "another process uses that port; end it, or choose another port",
    errno.EADDRNOTAVAIL: "this machine has no such address; choose one of its own",
    errno.EMFILE: "this process has too many open files; raise the limit (ulimit -n)",
    errno.ENOMEM: "the host has no more memory",
}
_SAID: Final = {os.strerror(number): words for number, words in _REASONS.items()}


def reason(error: BaseException) -> str:
    """Return why the operating system refused something, in plain words. Errors of libraries carry
    its number, or its text at the end of a sentence; both are recognized."""
    number, said = getattr(error, "errno", None), str(error)
    text = os.strerror(number) if isinstance(number, int) else said.rpartition(": ")[2]
    return _SAID.get(text) or (text if number else said)


def refused(error: OSError) -> str:
    """Return the reason of an error in plain words, after the name of its file if that is known."""
    return f"{error.filename}: {reason(error)}" if error.filename else reason(error)


def cannot(do: str, error: BaseException, hint: str = "") -> StorageError:
    """Return the StorageError for a failed operation on the disk: "cannot `do`: reason; `hint`".
    `do` names the operation and its place."""
    return StorageError(f"cannot {do}: {reason(error)}{hint and f'; {hint}'}")
