"""Optional tools of the host: programs, libraries, devices, and servers that packages carry.

Floodmark does less without them. They are looked for here and nowhere else. If the environment
variable `FLOODMARK_TOOLS` names a folder, only what lies in that folder counts as installed, by its
own name: an empty folder hides every tool from this process and from those that it starts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ONLY_FOLDER: Final = "FLOODMARK_TOOLS"
"""The environment variable with the folder in which tools are looked for, and nowhere else."""
FUSE: Final = "/dev/fuse"
"""The device by which a process serves a file system."""
FAKETIME: Final = "libfaketimeMT.so.1"
DEBIAN: Final = {
    "chromium": "chromium",
    "ip": "iproute2",
    "java": "openjdk-17-jre-headless",
    "nft": "nftables",
    "npm": "npm",
    "nsenter": "util-linux",
    "strace": "strace",
    "unshare": "util-linux",
    FAKETIME: "libfaketime",
}
"""By the name of a program or library: the Debian package that brings it."""
SYSTEM_FOLDERS: Final = ("/usr/sbin", "/sbin")
"""Folders of programs that are not on the PATH of an ordinary user everywhere."""
_LIBRARY_FOLDERS: Final = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime")


def program(name: str, *, before: Sequence[Path] = ()) -> str | None:
    """Return the path of a program: in one of the folders `before`, on PATH, or in a folder of the
    system; None if it is not installed."""
    path = os.environ.get("PATH", os.defpath)
    return shutil.which(name, path=os.pathsep.join(_places(*before, path, *SYSTEM_FOLDERS)))


def library(name: str) -> str | None:
    """Return the path of a library that processes load before others; None if it is missing."""
    places = _places(*_LIBRARY_FOLDERS)
    return next((path for place in places for path in sorted(glob(f"{place}/{name}"))), None)


def at(path: str | Path) -> Path:
    """Return where a tool of a known place is to be used, such as a device or the folder of a
    server, whether or not it is there."""
    (folder,) = _places(Path(path).parent)
    return Path(folder, Path(path).name)


def carried(package: str, inside: str) -> Iterator[Path]:
    """Yield the folder of programs inside a Python package, such as the wheel of a server; nothing
    if that package is not installed."""
    if not os.environ.get(ONLY_FOLDER) and (found := find_spec(package)) and found.origin:
        yield Path(found.origin).parent / inside


def _places(*usual: str | Path) -> list[str]:
    """Return the folder that `FLOODMARK_TOOLS` names, or else the usual ones."""
    return [os.environ.get(ONLY_FOLDER, "")] if os.environ.get(ONLY_FOLDER) else [*map(str, usual)]
