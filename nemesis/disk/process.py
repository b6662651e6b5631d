"""The process of one disk: it makes its namespaces, mounts the disk, serves it, and carries out the
harness's orders."""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import gettempdir
from typing import Final

import msgspec

from nemesis.disk.mount import CannotMount, enter_own_namespaces, mount
from nemesis.disk.orders import DiskAnswer, DiskOrder
from nemesis.disk.server import DiskServer
from nemesis.disk.volume import Volume
from node.runtime import children
from node.runtime.requests import obey, say

_SCHED_SETATTR: Final = 314
"""The number of the system call on x86-64; where it is none, nothing happens."""
_SCHED_ATTR: Final = struct.Struct("<IIQiIQQQ")
"""Size, policy (0: the usual one), flags, nice, priority, runtime, deadline, period."""
_TURN_NS: Final = 100_000
_THREAD_ENDED: Final = 70


class DiskConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a disk's process: its `folder`, the folder `aside` for removed files,
    and the process that owns it. `write_through`: the kernel passes each write on at once, so that
    a full disk can refuse it; that costs speed. Data that is `write_back_ms` old is written back
    (0: none is)."""

    folder: str
    aside: str
    output: str
    parent_pid: int
    write_through: bool = False
    write_back_ms: int = 0


def main(config: DiskConfig, pipe: Connection) -> None:
    """Serve a disk until a power cut, or until the harness is gone or ends it."""
    children.settle_in(config.parent_pid, config.output)
    end_with_each_thread()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    _ask_for_short_turns()
    try:
        enter_own_namespaces()
        # New rights make the kernel forget this.
        children.die_with_parent(config.parent_pid)
        folder = Path(config.folder)
        volume = Volume(folder, Path(config.aside))
        server = DiskServer(volume, mount(folder), folder, write_through=config.write_through)
    except (CannotMount, OSError) as error:
        say(pipe, DiskAnswer(error=str(error)))
        return
    threading.Thread(target=_obey, args=(server, pipe), daemon=True).start()
    if age_s := config.write_back_ms / 1000:
        threading.Thread(target=server.write_back, args=(age_s,), daemon=True).start()
    say(pipe, DiskAnswer())
    server.serve()


def probe(parent_pid: int, pipe: Connection) -> None:
    """Send the harness whether a disk in user space is possible, by mounting one in a namespace."""
    children.settle_in(parent_pid, "")
    try:
        enter_own_namespaces()
        mount(Path(gettempdir()))
    except CannotMount as error:
        say(pipe, DiskAnswer(error=str(error)))
    else:
        say(pipe, DiskAnswer())


def end_with_each_thread() -> None:
    """End this process when an error ends one of its threads, so that no disk goes on without what
    that thread does. The harness finds its end; the error is in its output."""

    def end(error: threading.ExceptHookArgs) -> None:
        threading.__excepthook__(error)
        sys.stderr.flush()
        os._exit(_THREAD_ENDED)

    threading.excepthook = end


def _ask_for_short_turns() -> None:
    """Ask the kernel for short turns on a processor, which begin sooner: a node waits for each
    answer. A kernel without such an option goes on as before."""
    nice = os.nice(0)
    attributes = _SCHED_ATTR.pack(_SCHED_ATTR.size, 0, 0, nice, 0, _TURN_NS, 0, 0)
    ctypes.CDLL(None).syscall(_SCHED_SETATTR, 0, attributes, 0)


def _obey(server: DiskServer, pipe: Connection) -> None:
    """Carry out orders until one of them ends the disk, or the harness is gone."""
    last = False

    def carry_out(order: DiskOrder) -> DiskAnswer:
        nonlocal last
        last = order.what in ("cut", "tear")
        return server.obey(order)

    while obey(pipe, DiskOrder, carry_out, DiskAnswer) and not last:
        pass
    os._exit(0)
