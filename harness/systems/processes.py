"""Helper processes of the harness (clients, link hub): started so that they never outlive it.

A child ignores Ctrl-C, which belongs to the harness, and is killed by the kernel when the harness
dies, however it dies. Like a broker, it does not import the harness's main script again.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, cast

import multiprocess
from multiprocess import resource_tracker

from node.runtime.spawn import blocked, hidden_main

_PR_SET_PDEATHSIG: Final = 1
EXIT_ORPHANED: Final = 70


class Child(Protocol):
    """The part of `multiprocess.Process` that the harness uses."""

    pid: int
    name: str

    @property
    def exitcode(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        ...

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, at most `timeout` seconds."""
        ...

    def kill(self) -> None:
        """SIGKILL."""
        ...

    def terminate(self) -> None:
        """SIGTERM."""
        ...


def start(name: str, target: Callable[..., None], *args: Any) -> Child:
    """Start `target(*args)` in a process of its own; `target` must be importable.

    Raises RuntimeError outside the main thread: the kernel kills a child when the *thread* that
    made it ends.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("processes must be started from the main thread")
    process = multiprocess.get_context("spawn").Process(
        target=target, args=args, name=name, daemon=True
    )
    # The tracker's own start lifts the block below, so it must be up before.
    resource_tracker.ensure_running()
    with blocked(signal.SIGINT), hidden_main():
        process.start()
    return cast(Child, process)


def settle_in(parent_pid: int, output: Path) -> None:
    """What a child does first: tie its life to the harness, ignore Ctrl-C, write to `output`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        os._exit(EXIT_ORPHANED)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
