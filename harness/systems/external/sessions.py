"""What the clients of an external system do, and how it is put on record.

An invocation is in the history before its request leaves. A refusal is `fail`; whatever else goes
wrong with a send is `info`, and that process number is never used again. Values are unique. The
final reads are made by fresh clients, to the end of what was acknowledged.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any, Final

import msgspec

from harness.clients import workload as workloads
from harness.clients.factory import CONSUMER, FINAL_READER, PRODUCER, ClientFactory
from harness.clients.history_file import HistoryFile
from harness.clients.statistics import ClientStatistics
from harness.clients.types import Status
from harness.clients.workload import SendPlan, polled_partitions, send_interval_us
from harness.formats.history import Op, OpType, Read, RecordRun, Send
from harness.runs.clock import now_us
from harness.systems.adapter import Adapter, LogSlice, Node, Record, Refused
from harness.systems.external.calls import CallErrors, ClientConnection
from nemesis.formats import schedule as schedules
from node.formats.errors import FloodmarkError

POLL_TIMEOUT_S: Final = 1.0
POLL_PAUSE_S: Final = 0.05
PAUSE_AFTER_FAILURE_S: Final = 0.05
CLOSE_TIMEOUT_S: Final = 2.0
FEWEST_READS: Final = 10
"""So many reads that fail, and none that succeeds, say something about the adapter."""


class Sessions:
    """All clients of a run, on one event loop."""

    def __init__(
        self,
        adapter: Adapter,
        factory: ClientFactory,
        nodes: Sequence[Node],
        history: HistoryFile,
        show: Callable[[str], object],
    ) -> None:
        """`show` takes what an author should see of errors in the adapter."""
        self._adapter = adapter
        self._factory = factory
        self._nodes = tuple(nodes)
        self._history = history
        self._errors = CallErrors(show)
        self._statistics = ClientStatistics()
        self._op = count().__next__
        self._process = count(1).__next__
        self._connections: dict[str, list[ClientConnection]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._final: list[asyncio.Task[None]] = []
        self._missing: dict[str, int] = {}
        self._scripted: dict[str, _Scripted] = {}
        self._busy = self._failed_reads = 0
        self._writing = self._reading = True

    # -- what the harness asks for

    def status(self) -> Status:
        """How things stand."""
        status = self._statistics.status
        status.t_us = now_us()
        status.writers_idle = self._busy == 0
        status.missing = dict(self._missing)
        if self._final:
            status.final = "done" if all(task.done() for task in self._final) else "running"
        return msgspec.structs.replace(
            status, progress=dict(status.progress), missing=dict(status.missing)
        )

    async def connect(self) -> None:
        """Connect the clients of the storm, as far as that works at once."""
        width = self._factory.workload.in_flight
        for number, (client, role) in enumerate(self._factory.roles.items()):
            if role != FINAL_READER:
                threads = range(width if role == PRODUCER else 1)
                self._connections[client] = [self._connection(client, number) for _ in threads]
        prepared = [each.prepare() for all_of in self._connections.values() for each in all_of]
        await asyncio.gather(*prepared)

    def begin_workload(self) -> None:
        """Start producers and consumers."""
        workload, names = self._factory.workload, self._factory.cluster.partition_names()
        for number, (client, role) in enumerate(self._factory.roles.items()):
            if role == PRODUCER:
                for thread, connection in enumerate(self._connections[client]):
                    seed = f"{workload.seed}/{client}/sends" + f"/{thread}" * (thread > 0)
                    plan = SendPlan(names, send_interval_us(workload), random.Random(seed))
                    self._begin(self._produce(client, connection, plan))
            elif role == CONSUMER:
                index = number - workload.clients
                mine = polled_partitions(names, index, workload.consumers)
                self._begin(self._consume(client, self._connections[client][0], mine))

    def operate(self, operation: int) -> None:
        """Have its client begin an operation of the schedule."""
        asked = self._factory.workload.operations[operation]
        scripted = self._scripted.get(asked.client)
        if scripted is None:
            connection = self._connections[asked.client][0]
            scripted = _Scripted(connection, self._process())
            self._scripted[asked.client] = scripted
        self._statistics.status.operated += 1
        self._busy += 1
        self._begin(self._carry_out(operation, asked, scripted))

    def healed(self, t_us: int) -> None:
        """Progress counts from here."""
        self._statistics.healed(t_us)

    def stop_writing(self) -> None:
        """Producers finish what they have begun."""
        self._writing = False
        self._say_what_never_worked()

    def begin_final_reads(self) -> None:
        """Fresh clients read every partition from 0 to the end of what was acknowledged."""
        self._reading = False
        names = self._factory.cluster.partition_names()
        readers = [c for c, role in self._factory.roles.items() if role == FINAL_READER]
        for number, client in enumerate(readers):
            mine = names[number :: len(readers)]
            connection = self._connection(client, number)
            self._connections[client] = [connection]
            reader = self._read_to_the_end(client, connection, mine)
            self._final.append(self._begin(reader))

    async def close(self) -> None:
        """End everything that is under way."""
        for task in self._tasks:
            task.cancel()
        connections = [each for all_of in self._connections.values() for each in all_of]
        closing = [asyncio.ensure_future(each.close()) for each in connections]
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_TIMEOUT_S)

    # -- the clients

    async def _produce(self, client: str, connection: ClientConnection, plan: SendPlan) -> None:
        process, sent = self._process(), 0
        while self._writing:
            began_us = now_us()
            value = workloads.first_value(process) + sent
            send = Send(partition=plan.partition(), value=value, acks=self._factory.workload.acks)
            how = await self._send(client, process, connection, send)
            sent += 1
            if how == "info":
                process, sent = self._process(), 0
            pause_s = (plan.pause_us() - (now_us() - began_us)) / 1e6
            await asyncio.sleep(max(0.0 if how == "ok" else PAUSE_AFTER_FAILURE_S, pause_s))

    async def _send(
        self,
        client: str,
        process: int,
        connection: ClientConnection,
        send: Send,
        *,
        step: int = -1,
        record_bytes: int = 0,
    ) -> OpType:
        """One send, from its invocation to its completion."""
        workload = self._factory.workload
        size = record_bytes or workload.payload_bytes
        record = Record(
            partition=send.partition,
            payload=workloads.encode_record(send.partition, send.value, size),
            id=send.value,
            acks=send.acks,
            timeout_s=workload.timeout_ms / 1000,
        )
        self._busy += 1
        try:
            op = self._invoke(client, process, "send", sends=(send,), step=step)
            how: OpType = "ok"
            error = ""
            try:
                offset = await connection.send(record)
                send = msgspec.structs.replace(send, offset=offset)
            except Refused as refusal:
                how, error = "fail", self._errors.note("send", refusal)
            except Exception as problem:
                how, error = "info", self._errors.note("send", problem)
            self._complete(op, how, sends=(send,), error=error)
        finally:
            self._busy -= 1
        return how

    async def _consume(
        self, client: str, connection: ClientConnection, partitions: Sequence[str]
    ) -> None:
        process, at, turns = self._process(), dict.fromkeys(partitions, 0), list(partitions)
        self._assign(client, process, partitions)
        while self._reading:
            partition = turns.pop(0)
            turns.append(partition)
            await self._poll(client, process, connection, partition, at)
            await asyncio.sleep(POLL_PAUSE_S)

    async def _read_to_the_end(
        self, client: str, connection: ClientConnection, partitions: Sequence[str]
    ) -> None:
        process, at, left = self._process(), dict.fromkeys(partitions, 0), list(partitions)
        targets = {p: self._statistics.acked_end.get(p, 0) for p in partitions}
        self._missing.update(at)
        self._assign(client, process, partitions, final=True)
        while left:
            partition = left.pop(0)
            got = await self._poll(client, process, connection, partition, at, final=True)
            if got is None or not _is_at_end(got, at[partition], targets[partition]):
                left.append(partition)
                self._missing[partition] = at[partition]
            else:
                self._missing.pop(partition, None)
            await asyncio.sleep(0 if got is not None and got.records else POLL_PAUSE_S)

    async def _poll(
        self,
        client: str,
        process: int,
        connection: ClientConnection,
        partition: str,
        at: dict[str, int],
        *,
        final: bool = False,
        step: int = -1,
    ) -> LogSlice | None:
        """One poll, from its invocation to its completion; moves `at` on. None: it failed."""
        read = Read(partition=partition, start=at[partition])
        op = self._invoke(client, process, "poll", reads=(read,), final=final, step=step)
        try:
            got = await connection.read(partition, at[partition], POLL_TIMEOUT_S)
        except Exception as problem:
            self._complete(op, "fail", error=self._errors.note("read", problem))
            self._failed_reads += 1
            if final:
                self._say_what_never_worked()
            return None
        runs = to_runs(got, self._factory.workload.payload_bytes)
        read = msgspec.structs.replace(read, records=runs, node=str(got.node))
        self._complete(op, "ok", reads=(read,))
        if runs:
            at[partition] = runs[-1].offset + runs[-1].count
        return got

    async def _carry_out(
        self, number: int, asked: schedules.Operation, scripted: _Scripted
    ) -> None:
        """One operation of the schedule, after those before it of the same client."""
        try:
            async with scripted.turn:
                if isinstance(asked, schedules.Send):
                    value = workloads.first_value(scripted.process) + scripted.sent
                    scripted.sent += 1
                    send = Send(partition=asked.partition, value=value, acks=asked.acks)
                    how = await self._send(
                        *(asked.client, scripted.process, scripted.connection, send),
                        step=number,
                        record_bytes=asked.payload_bytes,
                    )
                    if how == "info":
                        scripted.process, scripted.sent = self._process(), 0
                else:
                    scripted.at.setdefault(asked.partition, 0)
                    await self._poll(
                        *(asked.client, scripted.process, scripted.connection, asked.partition),
                        scripted.at,
                        step=number,
                    )
        finally:
            self._busy -= 1

    # -- the record

    def _invoke(self, client: str, process: int, f: str, **fields: object) -> Op:
        op = Op(
            op=self._op(), t_us=now_us(), process=process, client=client, type="invoke", f="poll"
        )
        op = msgspec.structs.replace(op, f=f, **fields)
        self._write(op)
        return op

    def _complete(self, op: Op, how: OpType, **fields: object) -> None:
        self._write(msgspec.structs.replace(op, t_us=now_us(), type=how, **fields))

    def _assign(
        self, client: str, process: int, partitions: Sequence[str], *, final: bool = False
    ) -> None:
        op = self._invoke(client, process, "assign", partitions=tuple(partitions), final=final)
        self._complete(op, "ok")

    def _write(self, op: Op) -> None:
        """Put a line on record. On a full disk nothing more is sent, and nothing more begins."""
        try:
            self._history.write((op,))
        except FloodmarkError as error:
            self._fail(str(error))
            raise
        self._statistics.add(op)

    # -- inside

    def _connection(self, client: str, turn: int) -> ClientConnection:
        return ClientConnection(self._adapter, client, self._nodes, turn, self._errors)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(f"a client ended by itself: {type(error).__name__}: {error}")

    def _fail(self, problem: str) -> None:
        self._statistics.status.problem = self._statistics.status.problem or problem
        self._writing = self._reading = False

    def _say_what_never_worked(self) -> None:
        """Where nothing succeeded in the whole storm, the adapter is to blame and not the log."""
        status, last = self._statistics.status, self._errors.last
        if status.invoked and not status.acked and self._factory.workload.acks:
            method = "connect" if "connect" in last else "send"
            self._fail(
                f"none of {status.invoked} sends was acknowledged: {method} of the adapter last "
                f"raised {last.get(method, 'nothing')}"
            )
        elif self._failed_reads >= FEWEST_READS and not status.polled:
            self._fail(
                f"none of {self._failed_reads} reads succeeded: read of the adapter last raised "
                f"{last.get('read', 'nothing')}"
            )


class _Scripted:
    """The client of scripted operations: one at a time."""

    def __init__(self, connection: ClientConnection, process: int) -> None:
        self.connection = connection
        self.process = process
        self.sent = 0
        self.at: dict[str, int] = {}
        self.turn = asyncio.Lock()


def to_runs(got: LogSlice, record_bytes: int) -> tuple[RecordRun, ...]:
    """The records of a slice in their order, those of consecutive offsets and values as one run."""
    runs: list[RecordRun] = []
    for offset, payload in got.records:
        value = workloads.decode_record(bytes(payload), record_bytes)
        last = runs[-1] if runs else None
        if (
            last is not None
            and value != workloads.UNREADABLE
            and (offset, value) == (last.offset + last.count, last.value + last.count)
        ):
            runs[-1] = RecordRun(last.offset, last.value, last.count + 1)
        else:
            runs.append(RecordRun(offset, value))
    return tuple(runs)


def _is_at_end(got: LogSlice, at: int, target: int) -> bool:
    """Whether a final reader has everything: what was acknowledged, and the end of the log as this
    answer gives it (one that gives none: when nothing more came)."""
    return at >= max(target, got.end) and (got.end >= 0 or not got.records)
