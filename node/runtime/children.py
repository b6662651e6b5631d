"""Child processes that never outlive their parent: how they are started, and what each does first.

A child is forked by a template process (`node.runtime.template`), which has imported the modules
that children need, or, if there is none, is a fresh interpreter (`spawn` of `multiprocess`). The
kernel kills a child, even a stopped one, when its parent dies, however it dies. A `spawn` child
normally imports its parent's main script again (as `__mp_main__`). Our parent is a console script
or pytest: that import would cost every child the whole command line, or worse, run it. So the
parent's `__main__` is hidden while a child starts, and the function that a child runs must be
importable."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol, cast

import multiprocess
from multiprocess import resource_tracker
from multiprocess.connection import Connection

from node.formats.host_errors import reason
from node.runtime import template

EXIT_NO_OUTPUT: Final = 74
EXIT_ORPHANED: Final = 70
"""The exit code of a child whose parent died before the kernel watched it."""
_PR_SET_PDEATHSIG: Final = 1


class Child(Protocol):
    """The part of `multiprocess.Process` that callers may rely on."""

    pid: int
    name: str
    sentinel: int

    @property
    def exitcode(self) -> int | None:
        """The exit code, None while the process runs; negative: the signal that ended it."""
        ...

    def is_alive(self) -> bool: ...

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the process, at most `timeout` seconds (None: without limit)."""
        ...

    def kill(self) -> None:
        """Send SIGKILL."""
        ...

    def close(self) -> None:
        """Release the resources of a process that has ended."""
        ...


def start(
    name: str,
    target: Callable[..., None],
    *args: Any,
    blocked: tuple[signal.Signals, ...] = (signal.SIGINT,),
    with_children: bool = False,
) -> Child:
    """Start `target(*args)` in a process of its own; return at once, long before the process has
    begun. A process that will start others itself needs `with_children`. The `blocked` signals stay
    blocked in the child until it installs its own handlers. Raises RuntimeError outside the main
    thread: the kernel kills a child when the *thread* that made it ends."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("processes must be started from the main thread")
    prepared = None if with_children else template.fitting()
    if prepared is not None:
        # What cannot be pickled, as functions inside of functions, goes to `multiprocess`.
        with contextlib.suppress(
            template.TemplateGone, pickle.PicklingError, AttributeError, TypeError
        ):
            return prepared.fork(name, target, args, blocked, (Connection,))
    process = multiprocess.get_context("spawn").Process(
        target=target, args=args, name=name, daemon=not with_children
    )
    # The tracker's own start lifts the block below, so it must be up before.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        with hidden_main():
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return cast(Child, process)


def settle_in(parent_pid: int, output: str | Path) -> None:
    """Prepare a helper process: tie its life to its parent, ignore Ctrl-C, which belongs to the
    parent, and send its output to the file `output` (if "" to that of its parent)."""
    die_with_parent(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
    try:
        redirect_output(output)
    except OSError as error:
        sys.stderr.write(f"{output} cannot be written: {reason(error)}\n")
        os._exit(EXIT_NO_OUTPUT)


def die_with_parent(parent_pid: int) -> None:
    """Make the kernel kill this process, even a stopped one, when its parent dies. Exits at once if
    its parent is not `parent_pid` any more (0: any parent will do). The kernel watches the *thread*
    of the parent that made this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if parent_pid and os.getppid() != parent_pid:
        os._exit(EXIT_ORPHANED)


def redirect_output(path: str | Path) -> None:
    """Send stdout, stderr and stack dumps (SIGUSR1, crashes) to the end of a file."""
    if str(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)


@contextlib.contextmanager
def hidden_main() -> Iterator[None]:
    """Hide the parent's main script, which a `spawn` child would import."""
    real = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = real
