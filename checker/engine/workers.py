"""Workers, to which a check hands its work piece by piece: processes of this machine, or the tasks
of Spark (`checker.engine.spark_job`)."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from checker.formats.errors import CheckerError
from node.runtime.children import hidden_main, settle_in
from node.runtime.environment import inherited

if TYPE_CHECKING:
    from checker.evidence.arrow_blob import PackedBlob

SMALL_PAGES: Final = {"NUMPY_MADVISE_HUGEPAGE": "0"}
"""The environment of a worker. NumPy would ask for huge pages: columns are made, used once or twice
and left, and to clear 2 MB at each first touch takes longer than huge pages save (docs/speed.md).
"""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES: Final = 256 << 20


class Workers(Protocol):
    """A pool of workers, processes or tasks of Spark, `number` of which work at the same time.
    `share_files`: all are on this machine."""

    number: int
    share_files: bool = True

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """Yield the result of `work` for each item, in any order; work on the first items first."""
        ...

    def judged(
        self,
        read: Callable[[Any], Sequence[PackedBlob]],
        items: Sequence[Any],
        judge: Callable[[Sequence[PackedBlob]], Any],
    ) -> Iterator[Any]:
        """Read all items; yield the result of `judge` for each group of facts in them."""
        found: dict[tuple[int, str], list[PackedBlob]] = defaultdict(list)
        for blob in chain.from_iterable(self.map(read, items)):
            found[blob.key].append(blob)
        # The largest first, in an order that does not depend on which worker is fastest.
        groups = sorted(found.values(), key=lambda g: (-sum(blob.rows for blob in g), g[0].key))
        yield from self.map(judge, groups)


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    allowed = getattr(os, "sched_getaffinity", None)  # Not every system has it.
    return len(allowed(0)) if allowed else os.cpu_count() or 1


class ProcessWorkers(Workers):
    """A pool of processes of this machine; `number` is None for one on each core that this process
    may use. They end with `close`, or with this process. Only the main thread can make them; raises
    CheckerError in any other."""

    def __init__(self, number: int | None = None) -> None:
        self.number = number or usable_cores()
        if threading.current_thread() is not threading.main_thread():
            raise CheckerError("Only the main thread can start processes: call this there.")
        self._pool = ProcessPoolExecutor(
            self.number, multiprocessing.get_context("spawn"), _begin, (os.getpid(),)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """Yield the result of `work` for each item, in any order. Raises what `work` raises, and
        CheckerError if a process does not start or dies."""
        try:
            with inherited(SMALL_PAGES), hidden_main():
                made = [self._pool.submit(_done, work, item) for item in items]
            for future in as_completed(made):
                yield future.result()
        except BrokenProcessPool as error:
            raise CheckerError(f"A process died ({error}): memory may be short.") from error


def _begin(parent_pid: int) -> None:
    """Prepare a process for its work."""
    settle_in(parent_pid, "")
    _keep_memory()
    import pyarrow as pa

    pa.set_cpu_count(1)
    gc.freeze()


def _done(work: Callable[[Any], Any], item: Any) -> Any:
    try:
        return work(item)
    finally:
        # The columns of a group are known to each other, so they would stay until Python looks for
        # such by itself: large ones are few objects, so that comes late.
        gc.collect()


def _keep_memory() -> None:
    """Keep freed memory for the next allocation: columns come and go by the hundred, and fresh
    pages of the kernel cost more than the sums that are made in them."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # Not every C library has it.
        return
    mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
