"""The record of operations: how each begins and ends, by which process, with which values.

The clients of all systems follow its rules: an invocation is on record before its request leaves,
every value of a run is written once, and a thread whose operation ended `info` (with an unknown
outcome) goes on under another process number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness.clients.workload import first_value
from harness.formats.history import Op, OpKind, OpType, Read, encode_numbered
from node.formats.files import AppendOnlyFile


@dataclass(slots=True)
class ProcessThread:
    """One logical thread of operations: its present process number, and the number of records
    written under it. `retire` takes the next process number."""

    processes: Iterator[int]
    process: int = -1
    written: int = 0

    def __post_init__(self) -> None:
        if self.process < 0:
            self.retire()

    def retire(self) -> None:
        """Go on under the next process number, which has values of its own."""
        self.process = next(self.processes)
        self.written = 0

    def values(self, count: int = 1) -> int:
        """Reserve the next `count` values; return the first of them."""
        value = first_value(self.process) + self.written
        self.written += count
        return value


class OperationLog:
    """The recorder of the operations of one client."""

    def __init__(
        self, client: str, next_op: Callable[[], int], record: Callable[[Op], object]
    ) -> None:
        """`next_op` numbers operations over all clients of a run; `record` takes each line."""
        self.client = client
        self._next_op = next_op
        self._record = record

    def invoke(self, now_us: int, thread: ProcessThread, f: OpKind, **fields: Any) -> Op:
        """Record and return an invocation; `fields` are more fields of `Op`."""
        op = Op(
            op=self._next_op(),
            t_us=now_us,
            process=thread.process,
            client=self.client,
            type="invoke",
            f=f,
            **fields,
        )
        self._record(op)
        return op

    def complete(
        self, now_us: int, thread: ProcessThread, op: Op, how: OpType, **fields: Any
    ) -> None:
        """Record how an operation ended; after "info" the thread is retired."""
        self._record(msgspec.structs.replace(op, t_us=now_us, type=how, **fields))
        if how == "info":
            thread.retire()

    def sent(
        self, now_us: int, thread: ProcessThread, op: Op, how: OpType, error: str, offset: int
    ) -> None:
        """Record the completion of a send: its offset, or -1 if the answer has none. `how` is "ok",
        "fail" or "info"; after "info" the thread is retired."""
        sends = op.sends
        if offset >= 0:
            sends = (msgspec.structs.replace(sends[0], offset=offset),)
        self.complete(now_us, thread, op, how, sends=sends, error=error)

    def polled(self, now_us: int, op: Op, read: Read) -> None:
        """Record that a poll was answered with `read`."""
        self._record(msgspec.structs.replace(op, t_us=now_us, type="ok", reads=(read,)))

    def not_polled(self, now_us: int, op: Op, error: str) -> None:
        """Record that a poll was not answered. A read has no effect, so the operation failed."""
        self._record(msgspec.structs.replace(op, t_us=now_us, type="fail", error=error))

    def assign(
        self, now_us: int, thread: ProcessThread, partitions: Sequence[str], *, final: bool
    ) -> None:
        """Record the partitions that this process is going to read."""
        op = self.invoke(now_us, thread, "assign", partitions=tuple(partitions), final=final)
        self._record(msgspec.structs.replace(op, type="ok"))


class HistoryFile:
    """The file `history.jsonl` of a run. Each call of `write` appends whole lines in one system
    call. One writer at a time: lines are numbered in the order of the calls."""

    def __init__(self, path: Path) -> None:
        """Create the file. Raises StorageError when it cannot be opened."""
        self._file = AppendOnlyFile(path)
        self.lines = 0

    def write(self, ops: Sequence[Op]) -> None:
        """Append operations. Raises StorageError if the write fails, and on every later call."""
        self._file.write(encode_numbered(ops, self.lines))
        self.lines += len(ops)

    def close(self) -> None:
        self._file.close()
