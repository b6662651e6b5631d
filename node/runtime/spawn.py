"""Start a broker process from the harness.

A `spawn` child normally imports its parent's main script again (as `__mp_main__`). Our parent is a
console script or pytest: that import would cost every broker the whole command line, or worse, run
it. So the parent's `__main__` is hidden while a child starts: the child then imports what
`node.runtime.process` needs and nothing else. A `make_core` given for a test must therefore live
in an importable module.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Protocol, cast

import msgspec
import multiprocess
from multiprocess import resource_tracker

from node.runtime.loop import MakeCore
from node.runtime.process import ProcessConfig, main


class NodeProcess(Protocol):
    """The part of `multiprocess.Process` that callers may rely on."""

    pid: int
    name: str
    sentinel: int

    @property
    def exitcode(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        ...

    def is_alive(self) -> bool:
        """Whether it runs."""
        ...

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, at most `timeout` seconds."""
        ...

    def kill(self) -> None:
        """SIGKILL."""
        ...

    def terminate(self) -> None:
        """SIGTERM: a clean stop."""
        ...

    def close(self) -> None:
        """Forget an ended process."""
        ...


def spawn(
    config: ProcessConfig, make_core: MakeCore | None = None, pipe: Connection | None = None
) -> NodeProcess:
    """Start the process of `config`; returns as soon as it has been made, long before it is ready.

    Ready means: its trace file says `started`, its address is bound. `make_core` stands in for the
    real core; through `pipe` breakpoints are armed. Raises RuntimeError outside the main thread:
    the kernel kills a child when the *thread* that made it ends.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("broker processes must be spawned from the main thread")
    if not config.parent_pid:
        config = msgspec.structs.replace(config, parent_pid=os.getpid())
    process = multiprocess.get_context("spawn").Process(
        target=main, args=(config, make_core, pipe), name=config.core.node, daemon=True
    )
    # The tracker's own start lifts the block below, so it must be up before.
    resource_tracker.ensure_running()
    with blocked(signal.SIGINT, signal.SIGTERM), hidden_main():
        process.start()
    return cast(NodeProcess, process)


@contextlib.contextmanager
def blocked(*signals: signal.Signals) -> Iterator[None]:
    """Signals a child inherits as blocked, until it has its own handlers."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def hidden_main() -> Iterator[None]:
    """A `spawn` child imports its parent's main script, unless there seems to be none."""
    real = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = real
