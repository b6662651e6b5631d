"""Workers: what does the work of a check at many places at once.

A piece of work is a picklable callable and an item. The processes of this machine take one item
after another, so that a long one does not hold up the others; Spark's tasks do the same on a
cluster (`checker.engine.spark_job`).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Final, Protocol, Self

import multiprocess

from checker.formats.errors import CheckerError
from node.runtime import children
from node.runtime.children import Child, settle_in
from node.runtime.reap import REAP_S

PATIENCE_S: Final = 3600.0
"""How long one item may take."""
SMALL_PAGES: Final = {"NUMPY_MADVISE_HUGEPAGE": "0"}
"""The environment of a worker. NumPy would ask for huge pages: columns are made, used once or twice
and left, and to clear 2 MB at each first touch takes longer than huge pages save (docs/speed.md).
"""
_LOOK_S: Final = 5.0
_END: Final = b""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES: Final = 256 << 20


class Workers(Protocol):
    """Where work is done. `number`: how many items at a time."""

    @property
    def number(self) -> int:
        """How many items are worked on at a time."""

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """What `work` gives for each item, in any order; the first items are begun first."""


def usable_cores() -> int:
    """How many cores this process may run on."""
    allowed = getattr(os, "sched_getaffinity", None)  # Not every system has it.
    return len(allowed(0)) if allowed else os.cpu_count() or 1


class _Process:
    """A process and the pipe to it."""

    def __init__(self, nth: int) -> None:
        self.near, far = multiprocess.Pipe()
        try:
            self.process: Child = children.start(f"check-{nth}", _main, os.getpid(), far)
        finally:
            far.close()

    def end(self) -> None:
        """Make it end, whatever it is doing."""
        self.near.close()
        self.process.kill()
        self.process.join(REAP_S)


class ProcessWorkers:
    """Processes of this machine, which live until `close`. Main thread only.

    Args:
        number: how many; by default one for each core that we may use.

    Raises:
        CheckerError: they cannot be started here.
    """

    def __init__(self, number: int | None = None) -> None:
        self._number = number or usable_cores()
        if threading.current_thread() is not threading.main_thread():
            raise CheckerError("Processes cannot be started from this thread.")
        self._workers: list[_Process] = []
        try:
            for nth in range(self._number):
                self._workers.append(_Process(nth))
        except OSError as error:
            self.close()
            raise CheckerError(f"A process of the checker did not start: {error}.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def number(self) -> int:
        """How many items are worked on at a time."""
        return self._number

    def close(self) -> None:
        """End the processes."""
        while self._workers:
            self._workers.pop().end()

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """What `work` gives for each item, in any order.

        Raises what `work` raises; CheckerError if a process ends or takes longer than `PATIENCE_S`.
        """
        waiting = iter(items)
        busy: dict[Connection, _Process] = {}
        idle = list(self._workers)
        try:
            while True:
                while idle and (item := next(waiting, _END)) is not _END:
                    worker = idle.pop()
                    worker.near.send_bytes(pickle.dumps((work, item), pickle.HIGHEST_PROTOCOL))
                    busy[worker.near] = worker
                if not busy:
                    return
                ready = self._ready(busy)
                for pipe in ready:
                    worker = busy.pop(pipe)
                    failed, made = pickle.loads(worker.near.recv_bytes())
                    idle.append(worker)
                    if failed:
                        raise made
                    yield made
        except (EOFError, OSError) as error:
            self.close()
            raise CheckerError(f"A process of the checker ended by itself ({error}).") from error
        finally:
            if busy:  # What it was doing is not wanted any more.
                self.close()

    def _ready(self, busy: Mapping[Connection, _Process]) -> list[Any]:
        """The pipes of those that have an answer; one that somebody has stopped goes on."""
        for _ in range(int(PATIENCE_S / _LOOK_S)):
            if ready := wait([*busy], _LOOK_S):
                return ready
            for worker in busy.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.process.pid, signal.SIGCONT)
        raise CheckerError(f"A process of the checker took over {PATIENCE_S:g} s.")


def _main(parent_pid: int, pipe: Connection) -> None:
    """What each process does: one item after another."""
    settle_in(parent_pid, "")
    os.environ.update(SMALL_PAGES)  # NumPy has not been imported yet.
    _keep_memory()
    import pyarrow as pa

    pa.set_cpu_count(1)
    gc.freeze()
    while True:
        try:
            work, item = pickle.loads(pipe.recv_bytes())
        except EOFError:
            break
        try:
            made = False, work(item)
        except Exception as error:
            made = True, _sendable(error)
        pipe.send_bytes(pickle.dumps(made, pickle.HIGHEST_PROTOCOL))
        del work, item, made
        # The columns of a group are known to each other, so they would stay until Python looks for
        # such by itself: large ones are few objects, so that comes late.
        gc.collect()
    os._exit(0)


def _sendable(error: Exception) -> Exception:
    """An error as it can be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return CheckerError(f"{type(error).__name__}: {error}")
    return error


def _keep_memory() -> None:
    """Keep what was freed for what comes next: columns come and go by the hundred, and fresh pages
    of the kernel cost more than the sums that are made in them."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # Not every C library has it.
        return
    mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
