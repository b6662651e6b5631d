"""A machine without optional tools, for the tests of the first tier.

For them the finder of tools (`node/formats/host_tools.py`) finds nothing. An audit hook notes what
they use of the machine past it: a test that starts another program than those of every machine,
opens a device, or asks for namespaces, fails."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from node.formats.host_tools import ONLY_FOLDER, SYSTEM_FOLDERS

_EVERYWHERE: Final = (
    "[ awk basename bash cat chmod cksum cmp cp cut date dirname echo env expr false find git "
    "grep head id ln ls make mkdir mktemp mv nice nohup printf pwd readlink realpath rm rmdir sed "
    "seq sh sleep sort stat tail tee test timeout touch tr true uname uniq wc which xargs"
)
PROGRAMS: Final = frozenset(_EVERYWHERE.split())
"""The programs that floodmark may take for granted, beside Python: the system's utilities, git and
make. A test of the first tier starts these, and programs that it has written itself."""
DEVICES: Final = ("/dev/null", "/dev/urandom", "/dev/shm/", "/dev/fd/")
CALLS: Final = frozenset({"mount", "setns", "umount2", "unshare"})
"""Functions of libc that no test of the first tier may ask for."""

_FOLDERS: Final = {*os.environ["PATH"].split(os.pathsep), *SYSTEM_FOLDERS}
_GIVEN: Final = "FLOODMARK_TESTS_GIVEN_TOOLS"
# A worker of xdist inherits the variable as its controller has hidden it: the first value is kept.
_given: Final = os.environ.setdefault(_GIVEN, os.environ.get(ONLY_FOLDER, ""))
_used: list[str] | None = None


def hide() -> None:
    """Hide every tool from this process and its children."""
    os.environ[ONLY_FOLDER] = os.devnull


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Show the tools of the machine, or those that the environment of the session allows."""
    if not _given:
        del os.environ[ONLY_FOLDER]
    else:
        os.environ[ONLY_FOLDER] = _given
    yield
    hide()


@contextlib.contextmanager
def noted() -> Iterator[list[str]]:
    """Give a list that gets what this process uses of the machine meanwhile."""
    global _used
    _used = []
    try:
        yield _used
    finally:
        _used = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _used is None:
        return
    match event:
        case "subprocess.Popen" | "os.exec" | "os.posix_spawn":
            program = os.fsdecode(arguments[0] or arguments[1][0])
            if not _is_everywhere(program):
                _used.append(f"the program {program}")
        case "open" if str(arguments[0]).startswith("/dev/"):
            if not str(arguments[0]).startswith(DEVICES):
                _used.append(f"the device {arguments[0]}")
        case "ctypes.dlsym" if arguments[1] in CALLS:
            _used.append(f"the call {arguments[1]}")


def _is_everywhere(program: str) -> bool:
    """Return whether a program is on every machine, or no program of the machine at all."""
    if Path(program).name in PROGRAMS or program == sys.executable:
        return True
    return "/" in program and str(Path(program).parent) not in _FOLDERS


sys.addaudithook(_note)
