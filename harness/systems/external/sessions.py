"""The clients of a third-party system, on one event loop.

They write the history by the same rules as those of our own brokers
(`harness.clients.operation_log`): a refused send ends `fail`, any other error `info`. A send is
never repeated. New clients make the final reads, to the end of the acknowledged records."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final

import msgspec

from harness.clients import workload as workloads
from harness.clients.factory import CONSUMER, FINAL_READER, PRODUCER, ClientFactory
from harness.clients.group import ClientStatistics
from harness.clients.operation_log import HistoryFile, OperationLog, ProcessThread
from harness.clients.types import Status
from harness.clients.workload import SendPlan, polled_partitions, send_plan
from harness.formats.history import Op, OpType, Read, Send
from harness.runs.clock import now_us
from harness.systems.adapter import Adapter, LogSlice, Node, Record, Refused
from harness.systems.external.calls import CallErrors, ClientConnection
from harness.systems.external.members import GroupMembers
from nemesis.formats import schedule as schedules
from nemesis.formats.schedule import Workload
from node.formats.errors import FloodmarkError

POLL_TIMEOUT_S: Final = 1.0
BEYOND: Final = 1_000_000
"""How far behind the end of a log no record can be."""
DRAIN_AFTER_S: Final = 10.0
POLL_PAUSE_S: Final = 0.05
PAUSE_AFTER_FAILURE_S: Final = 0.05
CLOSE_TIMEOUT_S: Final = 2.0
QUIET_S: Final = 2.0
"""How long a log that tells neither its end nor the offsets of its records must give nothing."""
ENDED: Final = "the run ended"
FEWEST_READS: Final = 10
"""So many reads that fail, and none that succeeds, say something about the adapter."""


class ThreadOfCalls:
    """One thread of a client: its connection, its process number, and the offsets it has read up
    to."""

    def __init__(
        self,
        connection: ClientConnection,
        log: OperationLog,
        processes: Callable[[], int],
        errors: CallErrors,
        workload: Workload,
    ) -> None:
        self.turn = asyncio.Lock()
        self.process = ProcessThread(iter(processes, None))
        self.connection = connection
        self._log = log
        self._errors = errors
        self._workload = workload
        self._at: dict[str, int] = {}

    async def send(self, partition: str, acks: int, record_bytes: int, step: int = -1) -> OpType:
        """Send one record and record the operation; return how it ended."""
        send = Send(partition=partition, value=self.process.values(), acks=acks)
        record = Record(
            partition=partition,
            payload=workloads.encode_record(partition, send.value, record_bytes),
            id=send.value,
            acks=acks,
            timeout_s=self._workload.timeout_ms / 1000,
        )
        op = self._log.invoke(now_us(), self.process, "send", sends=(send,), step=step)
        how: OpType = "ok"
        error, offset = "", -1
        try:
            offset = await self.connection.send(record)
        except Refused as refusal:
            how, error = "fail", self._errors.note("send", refusal)
        except asyncio.CancelledError:
            self._log.sent(now_us(), self.process, op, "info", ENDED, offset)
            raise
        except Exception as problem:
            how, error = "info", self._errors.note("send", problem)
        self._log.sent(now_us(), self.process, op, how, error, offset)
        return how

    def assign(self, partitions: Sequence[str], *, final: bool = False) -> None:
        """Record the partitions that this thread is going to read."""
        self._log.assign(now_us(), self.process, partitions, final=final)

    def position(self, partition: str) -> int:
        """Return the offset from which this thread reads a partition next."""
        return self._at.get(partition, 0)

    async def poll(self, partition: str, *, final: bool = False, step: int = -1) -> LogSlice | None:
        """Poll a partition once and record the operation; return the records, None if it failed."""
        start = self.position(partition)
        read = Read(partition=partition, start=start)
        op = self._log.invoke(now_us(), self.process, "poll", reads=(read,), final=final, step=step)
        try:
            got = await self.connection.read(partition, start, POLL_TIMEOUT_S)
        except asyncio.CancelledError:
            self._log.not_polled(now_us(), op, ENDED)
            raise
        except Exception as problem:
            self._log.not_polled(now_us(), op, self._errors.note("read", problem))
            return None
        runs = tuple(workloads.record_runs(got.records, self._workload.payload_bytes))
        read = msgspec.structs.replace(read, records=runs, node=str(got.node))
        self._log.polled(now_us(), op, read)
        if runs:
            self._at[partition] = runs[-1].offset + runs[-1].count
        return got


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
        roles = factory.roles.items()
        self._roles = {c: role for c, role in roles if role == PRODUCER or adapter.writes("read")}
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
        self._scripted: dict[str, ThreadOfCalls] = {}
        self._members: GroupMembers | None = None
        self._busy = self._failed_reads = 0
        self._writing = self._reading = True

    # -- what the harness asks for

    def status(self) -> Status:
        """Return the present state of the clients."""
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
        """Connect the clients of the storm; one that fails connects again later."""
        width = self._factory.workload.in_flight
        for number, (client, role) in enumerate(self._roles.items()):
            if role != FINAL_READER:
                threads = range(width if role == PRODUCER else 1)
                self._connections[client] = [self._connection(client, number) for _ in threads]
        prepared = [each.prepare() for all_of in self._connections.values() for each in all_of]
        await asyncio.gather(*prepared)

    def go(self) -> None:
        """Start producers and consumers."""
        workload, names = self._factory.workload, self._factory.cluster.partition_names()
        for number, (client, role) in enumerate(self._roles.items()):
            if role == PRODUCER:
                for lane, connection in enumerate(self._connections[client]):
                    seed = f"{workload.seed}/{client}/sends" + f"/{lane}" * (lane > 0)
                    plan = send_plan(workload, names, random.Random(seed))
                    self._begin(self._produce(self._thread(client, connection), plan))
            elif role == CONSUMER:
                mine = polled_partitions(names, number - workload.clients, workload.consumers)
                thread = self._thread(client, self._connections[client][0])
                self._begin(self._consume(thread, mine))
        if members := self._adapter.group_members:
            self._members = GroupMembers(
                *(self._adapter, self._nodes, names, self._op, self._process, self._write),
                self._errors,
                seed=workload.seed,
                record_bytes=workload.payload_bytes,
            )
            for number in range(members):
                self._begin(self._members.work(number))

    def operate(self, operation: int) -> None:
        """Let the client of an operation of the schedule begin it."""
        asked = self._factory.workload.operations[operation]
        thread = self._scripted.get(asked.client)
        if thread is None:
            thread = self._thread(asked.client, self._connections[asked.client][0])
            self._scripted[asked.client] = thread
        self._statistics.status.operated += 1
        self._busy += 1
        self._begin(self._carry_out(operation, asked, thread))

    def healed(self, t_us: int) -> None:
        """Start to record progress at `t_us`, the time of the heal."""
        self._statistics.healed(t_us)

    def stop_writing(self) -> None:
        """Let producers complete their operations and begin no more."""
        self._writing = False
        self._say_what_never_worked()

    def read_everything(self) -> None:
        """Read every partition with new clients, from 0 to the end of the acknowledged records."""
        self._reading = False
        self._adapter.begin_final_reads()
        if self._members is not None:
            self._members.stop()
        names = self._factory.cluster.partition_names()
        readers = [c for c, role in self._roles.items() if role == FINAL_READER]
        for number, client in enumerate(readers):
            connection = self._connection(client, number)
            self._connections[client] = [connection]
            thread = self._thread(client, connection)
            mine = names[number :: len(readers)]
            self._final.append(self._begin(self._read_to_the_end(thread, mine)))
        if self._members is not None:
            self._final.append(self._begin(self._drain(self._members, [*self._final])))

    async def _drain(self, members: GroupMembers, readers: Sequence[asyncio.Task[None]]) -> None:
        """Let fresh members take what is left, after the final reads; or beside them, if these wait
        for records that are lost."""
        if readers:
            await asyncio.wait(readers, timeout=DRAIN_AFTER_S)
        await members.drain()

    async def close(self) -> None:
        """End all pending operations."""
        if self._members is not None:
            await self._members.close()
        for task in self._tasks:
            task.cancel()
        # Each puts the end of its operation on record.
        await asyncio.gather(*self._tasks, return_exceptions=True)
        connections = [each for all_of in self._connections.values() for each in all_of]
        closing = [asyncio.ensure_future(each.close()) for each in connections]
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_TIMEOUT_S)

    # -- the clients

    async def _produce(self, thread: ThreadOfCalls, plan: SendPlan) -> None:
        workload = self._factory.workload
        while self._writing:
            began_us = now_us()
            self._busy += 1
            try:
                how = await thread.send(plan.partition(), workload.acks, workload.payload_bytes)
            finally:
                self._busy -= 1
            pause_s = (plan.pause_us() - (now_us() - began_us)) / 1e6
            await asyncio.sleep(max(0.0 if how == "ok" else PAUSE_AFTER_FAILURE_S, pause_s))

    async def _consume(self, thread: ThreadOfCalls, partitions: Sequence[str]) -> None:
        turns = list(partitions)
        thread.assign(partitions)
        while self._reading:
            partition = turns.pop(0)
            turns.append(partition)
            await self._poll(thread, partition)
            await asyncio.sleep(POLL_PAUSE_S)

    async def _read_to_the_end(self, thread: ThreadOfCalls, partitions: Sequence[str]) -> None:
        left = list(partitions)
        targets = {p: self._statistics.acked_end.get(p, 0) for p in partitions}
        unplaced = self._statistics.without_offset
        quiet_since_us: dict[str, int] = {}
        self._missing.update(dict.fromkeys(partitions, 0))
        thread.assign(partitions, final=True)
        while left:
            partition = left.pop(0)
            got = await self._poll(thread, partition, final=True)
            at = thread.position(partition)
            if got is None or got.records:
                quiet_since_us.pop(partition, None)
            quiet_us = now_us() - quiet_since_us.setdefault(partition, now_us())
            is_quiet = partition not in unplaced or quiet_us >= QUIET_S * 1e6
            if got is None or not _is_at_end(got, at, targets[partition], is_quiet=is_quiet):
                left.append(partition)
                self._missing[partition] = at
            else:
                self._missing.pop(partition, None)
                await self._read_beyond(thread, partition)
            await asyncio.sleep(0 if got is not None and got.records else POLL_PAUSE_S)

    async def _read_beyond(self, thread: ThreadOfCalls, partition: str) -> None:
        """Read where no record can be, beside the history: an adapter that states an end there
        takes what it was asked for as the end of the log, and would hide what a log has lost."""
        asked = thread.position(partition) + BEYOND
        with suppress(Exception):
            got = await thread.connection.read(partition, asked, POLL_TIMEOUT_S)
            if self._adapter.contiguous and got.end >= asked:
                self._fail(
                    f"read of the adapter states the end {got.end} at offset {asked} of "
                    f"{partition}, where no record can be: end must be that of the log"
                )

    async def _poll(
        self, thread: ThreadOfCalls, partition: str, *, final: bool = False, step: int = -1
    ) -> LogSlice | None:
        got = await thread.poll(partition, final=final, step=step)
        if got is None:
            self._failed_reads += 1
            if final:
                self._say_what_never_worked()
        return got

    async def _carry_out(
        self, number: int, asked: schedules.Operation, thread: ThreadOfCalls
    ) -> None:
        """Carry out an operation of the schedule, after earlier ones of the same client."""
        try:
            async with thread.turn:
                if isinstance(asked, schedules.Send):
                    await thread.send(asked.partition, asked.acks, asked.payload_bytes, step=number)
                else:
                    await self._poll(thread, asked.partition, step=number)
        finally:
            self._busy -= 1

    # -- the record

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

    def _thread(self, client: str, connection: ClientConnection) -> ThreadOfCalls:
        log = OperationLog(client, self._op, self._write)
        return ThreadOfCalls(connection, log, self._process, self._errors, self._factory.workload)

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
        """Blame the adapter, and not the log, if nothing succeeded in the whole storm."""
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


def _is_at_end(got: LogSlice, at: int, target: int, *, is_quiet: bool) -> bool:
    """Return whether a final reader has everything: what was acknowledged, and the end of the log
    as this answer gives it; if it gives none, nothing more came, and `is_quiet` says for long
    enough."""
    return at >= max(target, got.end) and (got.end >= 0 or (not got.records and is_quiet))
