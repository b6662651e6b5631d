"""A broker process: what a spawned child does from its first line to its exit code.

Exit codes: 0 stopped by request (SIGTERM), everything flushed; 70 the core found its own state
contradictory, or any other error of ours; 73 the node's address cannot be used; 74 the disk refused
(full, damaged, not ours, open elsewhere); 1 it hung when asked to stop, and its output file ends
with its stacks. In all other cases that file ends with the reason, in one sentence."""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import gc
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from random import Random
from typing import Final

import msgspec
import zmq

from node.core import bugs
from node.core.api import NodeConfig
from node.core.senders import Senders
from node.core.storage import Storage
from node.core.turn import Core
from node.formats.errors import DamagedStore, FloodmarkError, StorageError
from node.formats.host_errors import reason
from node.formats.trace import damaged_event
from node.runtime import namespaces
from node.runtime.breakpoints import (
    HOST_CLOCK,
    SYNCS_OF_A_STOP,
    Armed,
    Breakpoint,
    Breakpoints,
    StopRequest,
    monotonic_us,
    report_end,
)
from node.runtime.children import Child, die_with_parent, redirect_output, start
from node.runtime.datadir import host_boot_id
from node.runtime.failing_disk import DiskFails, FailingDisk
from node.runtime.loop import Loop, MakeCore, TraceFile
from node.runtime.mailbox import CannotBind, Context, Inbox, Outbox
from node.runtime.store import LmdbStorage

EXIT_HUNG: Final = 1
EXIT_BROKEN: Final = 70
EXIT_ADDRESS: Final = 73
EXIT_STORAGE: Final = 74
_DISK_ERRORS: Final = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENXIO, errno.ENODEV),
    *(errno.ENOTCONN, errno.ECONNABORTED, errno.ESTALE),
)
"""Errors of files that only a disk causes: full, read-only, broken, or not served any more."""
STOP_DEADLINE_S: Final = 3.0
"""After this long from SIGTERM, and the time that faults delay its syncs, the process ends anyway,
with a dump of its stacks."""
CONNECT_MS: Final = 50
LINGER_MS: Final = 200


class ProcessConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a broker process.

    `bind` is its own address (ipc://PATH), `peers` maps node and client ids to addresses, "*" to
    that of the hub. `parent_pid` is the process it must not outlive (0: `spawn` sets it). `boot_id`
    identifies the boot of the host ("" asks the kernel), and `boots` counts the simulated reboots
    of this node. `breakpoints` are armed, and `disk_faults` in force, from the first turn on. The
    clock for its timeouts runs at `clock_percent` of the host's rate. Faults delay each of its
    syncs by `slow_ms`. `disk_pid` is the process that serves the disk in user space, 0 if none
    does. Files are created as needed, folders must exist."""

    core: NodeConfig
    data_dir: str
    trace_file: str
    output_file: str
    bind: str
    peers: dict[str, str]
    boot_id: str = ""
    parent_pid: int = 0
    seed: int = 0
    breakpoints: dict[int, Breakpoint] = {}
    disk_faults: dict[int, DiskFails] = {}
    clock_percent: int = 100
    slow_ms: int = 0
    boots: int = 0
    disk_pid: int = 0


def spawn(
    config: ProcessConfig, make_core: MakeCore | None = None, pipe: Connection | None = None
) -> Child:
    """Start the process of `config`; return as soon as it has been made, long before it is ready.
    It is ready when its trace file says `started`; its address is bound then. `make_core` makes
    another core than the real one; orders for breakpoints come through `pipe`. Raises RuntimeError
    outside the main thread."""
    if not config.parent_pid:
        config = msgspec.structs.replace(config, parent_pid=os.getpid())
    blocked = (signal.SIGINT, signal.SIGTERM)
    return start(config.core.node, main, config, make_core, pipe, blocked=blocked)


def main(
    config: ProcessConfig, make_core: MakeCore | None = None, pipe: Connection | None = None
) -> None:
    """Run one broker in this process until it stops; raise SystemExit with the exit code unless it
    is 0. `make_core` makes another core than `node.core.broker.Broker`. Orders for breakpoints come
    through `pipe`."""
    code, sentence = 0, ""
    try:
        redirect_output(config.output_file)
        if config.disk_pid:
            _enter_disk(config.disk_pid)
        # After that: new rights make the kernel forget it.
        die_with_parent(config.parent_pid)
        sentence = _run(config, make_core or _broker, _handle_signals(config.slow_ms), pipe)
    except CannotBind as error:
        code, sentence = EXIT_ADDRESS, str(error)
    except BaseException as error:
        code, sentence = EXIT_BROKEN, _sentence(error)
        if isinstance(error, StorageError) or getattr(error, "errno", None) in _DISK_ERRORS:
            code = EXIT_STORAGE
        if not isinstance(error, StorageError):
            with contextlib.suppress(OSError):
                traceback.print_exc()
    faulthandler.cancel_dump_traceback_later()
    report_end(pipe, sentence)
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{config.core.node}/{config.core.incarnation}: {sentence}\n")
        sys.stderr.flush()
    if code:
        raise SystemExit(code)


def _enter_disk(pid: int) -> None:
    try:
        namespaces.enter(pid)
    except OSError as error:
        raise StorageError(
            f"the disk that process {pid} serves cannot be used: {reason(error)}"
        ) from None


def _run(
    config: ProcessConfig, make_core: MakeCore, stop: StopRequest, pipe: Connection | None
) -> str:
    """Build everything, loop until stopped, take everything down; return the last sentence."""
    core_config = config.core
    with contextlib.ExitStack() as stack:
        disk = FailingDisk(config.disk_faults)
        retries = bugs.parse(core_config.bugs).retry_fsync
        boot_id = f"{config.boot_id or host_boot_id()}{'+' * config.boots}"
        storage = LmdbStorage(config.data_dir, boot_id, disk=disk, retries=retries)
        stack.callback(storage.close)
        trace = TraceFile(config.trace_file, core_config.node, core_config.incarnation)
        stack.callback(trace.close)
        context: Context = zmq.Context()
        stack.callback(context.destroy, linger=0)
        inbox = Inbox(context, config.bind, stop.wake_fd)
        outbox = Outbox(context, core_config.node, config.peers)
        outbox.wait_connected(CONNECT_MS)
        random = Random(f"{config.seed}/{core_config.node}/{core_config.incarnation}")
        clock = HOST_CLOCK.at_rate(config.clock_percent, monotonic_us())
        try:
            core = make_core(core_config, storage, random, clock.read(monotonic_us()))
        except DamagedStore as error:
            trace.write(monotonic_us(), [damaged_event(error)])
            raise
        armed = Armed(core_config.node, core_config.incarnation, config.breakpoints)
        points = Breakpoints(armed, pipe, disk, storage.copy, clock, stop)
        if pipe is not None:
            inbox.watch(points.wake_fd)
        senders = Senders(core_config)
        loop = Loop(core_config.node, core, storage, inbox, outbox, trace, stop, points, senders)
        # What exists now lives as long as the process: no collection needs to look at it again.
        gc.collect()
        gc.freeze()
        loop.run()
        outbox.close(LINGER_MS)
        return (
            f"stopped{' without having handed over' if loop.gave_up else ''} after {loop.turns}"
            f" turns; {outbox.dropped} messages dropped, {loop.refused} not understood"
        )


def _broker(config: NodeConfig, storage: Storage, random: Random, now_us: int) -> Core:
    from node.core.broker import Broker

    return Broker(config, storage, random, now_us)


def _sentence(error: BaseException) -> str:
    if isinstance(error, FloodmarkError):
        return str(error)
    return f"unexpected {type(error).__name__}: {error}"


def _handle_signals(slow_ms: int) -> StopRequest:
    """Ignore SIGINT, note SIGTERM in the request that is returned. `spawn` starts this process with
    both blocked, so that none is lost or deadly before."""
    read_fd, write_fd = os.pipe()
    stop = StopRequest(read_fd, slow_ms)

    def ask(_signal: int, _frame: object) -> None:
        stop.asked = True
        limit_s = STOP_DEADLINE_S + SYNCS_OF_A_STOP * stop.slow_ms / 1000
        faulthandler.dump_traceback_later(limit_s, exit=True, file=2)

    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, ask)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    return stop
