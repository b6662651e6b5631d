"""A producer: each thread sends one batch at a time (pure).

Each thread of an idempotent client is a producer of its own, with one batch in flight. Its producer
id is the number of its first process, which no other thread of the run ever has. After each batch
that was sent and did not end `ok` it begins a new producer epoch, and all sequences from 0: a batch
that is still on its way then belongs to the old epoch (KIP-360)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from harness.clients.session import DEFAULT_RETRY_US, HOPELESS, Call, MetadataCache, Session, Thread
from harness.clients.workload import SendPlan, encode_batch
from harness.formats.history import OpType, Send
from nemesis.formats import schedule as schedules
from nemesis.formats.schedule import Workload
from node.core.api import Deliver
from node.core.batch import Produced
from node.formats.messages import Error, ProduceRequest, ProduceResponse

OUT_OF_SEQUENCE: Final = frozenset(
    {
        *(Error.OUT_OF_ORDER_SEQUENCE, Error.DUPLICATE_SEQUENCE),
        *(Error.UNKNOWN_PRODUCER, Error.FENCED_PRODUCER_EPOCH),
    }
)
"""Refusals that tell an idempotent producer to begin a new epoch."""

ACKS_ZERO_PAUSE_US = 1_000
"""Nothing answers a send with acks=0, so nothing but this holds back one without a rate."""
ACKS_ZERO_REFRESH_US = 500_000
"""Nor does anything tell it that the leader has moved: so it looks from time to time."""
ATTEMPTS: Final = 4
"""An attempt of an idempotent producer has this part of the time of its send."""


@dataclass(slots=True)
class Sequences:
    """The next sequence number of an idempotent producer for each partition, in this epoch."""

    producer: int
    epoch: int = 0
    following: dict[str, int] = field(default_factory=dict)

    def produced(self, partition: str) -> Produced:
        """Return the producer fields (id, epoch, sequence) of the next batch for a partition."""
        return Produced(self.producer, self.epoch, self.following.get(partition, 0))

    def acknowledged(self, partition: str, count: int) -> None:
        """Advance the sequence of a partition by a batch of `count` records that was appended."""
        self.following[partition] = self.following.get(partition, 0) + count

    def begin_epoch(self) -> None:
        """Begin the next producer epoch, with all sequences at 0."""
        self.epoch += 1
        self.following.clear()


class Producer(Session):
    """A client that sends batches to the partitions of a plan, one at a time per thread."""

    def __init__(
        self,
        client: str,
        metadata: MetadataCache,
        threads: list[Thread],
        next_op: Callable[[], int],
        *,
        plan: SendPlan,
        workload: Workload,
        retry_us: int = DEFAULT_RETRY_US,
    ) -> None:
        """`plan` is shared by the threads of this client; see `Session` for the rest."""
        super().__init__(client, metadata, threads, next_op, retry_us)
        self._plan = plan
        self._workload = workload
        # By process: a thread goes on as another one, and keeps its sequences.
        self._sequences = {t.process: Sequences(t.process) for t in threads if workload.idempotent}

    def _invoke(self, thread: Thread) -> Call | None:
        # A slow answer costs its own time only: there is no backlog to catch up with.
        thread.next_us = self._now_us + self._plan.pause_us()
        partition, workload = self._plan.partition(), self._workload
        records = self._plan.records(workload.batch)
        if records != workload.batch:
            workload = msgspec.structs.replace(workload, batch=records)
        return self._send(thread, partition, workload)

    def _send(self, thread: Thread, partition: str, workload: Workload, step: int = -1) -> Call:
        value, count = thread.values(workload.batch), workload.batch
        send = Send(partition=partition, value=value, count=count, acks=workload.acks)
        invocation = self._log.invoke(self._now_us, thread, "send", sends=(send,), step=step)
        mine = self._sequences.get(thread.process)
        produced = mine.produced(partition) if mine is not None else None
        body = encode_batch(partition, value, count, workload.payload_bytes, produced)
        return Call(invocation, partition, self._now_us + workload.timeout_ms * 1000, body)

    def _request(self, call: Call) -> ProduceRequest:
        until_us = call.deadline_us
        if self._sequences:
            call.overdue_us = self._now_us + self._workload.timeout_ms * 1000 // ATTEMPTS
            until_us = min(until_us, call.overdue_us)
        left_ms = max(1, (until_us - self._now_us) // 1000)
        acks = call.invocation.sends[0].acks
        return ProduceRequest(
            corr=call.corr, partition=call.partition, acks=acks, timeout_ms=left_ms
        )

    def _sent(self, thread: Thread, call: Call) -> None:
        if call.invocation.sends[0].acks == 0:
            thread.next_us = max(thread.next_us, self._now_us + ACKS_ZERO_PAUSE_US)
            self._metadata.refresh(self._now_us, ACKS_ZERO_REFRESH_US)
            self._end(thread, call, "info", error="acks=0")

    def _answered(self, thread: Thread, call: Call, answer: Deliver) -> None:
        message = answer.message
        assert isinstance(message, ProduceResponse)
        if message.error is Error.NONE:
            self._end(thread, call, "ok", offset=message.base_offset)
            return
        error = str(message.error)
        if message.error is not Error.CORRUPT_BATCH:
            self._metadata.forget(call.partition, call.node)
            self._metadata.hint(call.partition, message.leader, refused_by=call.node)
        retries = bool(self._sequences) and message.error not in OUT_OF_SEQUENCE
        if message.appended and retries:
            call.in_doubt = True
            self._again(call, error)
        elif message.appended:
            offset = message.base_offset
            self._end(thread, call, "info", error=error, offset=offset)
        elif message.error in HOPELESS or message.error in OUT_OF_SEQUENCE:
            self._end(thread, call, _unless_ok(call), error=error)
        else:
            self._again(call, error)

    def _expired(self, thread: Thread, call: Call) -> None:
        if call.corr == 0:
            self._end(thread, call, _unless_ok(call), error=call.error)
            return
        self._metadata.forget(call.partition, call.node)
        self._end(thread, call, "info", error="timeout")

    def _overdue(self, call: Call) -> None:
        call.in_doubt = True
        self._metadata.forget(call.partition, call.node)
        self._again(call, "timeout")

    def _end(
        self, thread: Thread, call: Call, how: OpType, *, error: str = "", offset: int = -1
    ) -> None:
        """Record a completion; after `info` the thread goes on as another process."""
        process, send = thread.process, call.invocation.sends[0]
        mine = self._sequences.get(process)
        self._log.sent(self._now_us, thread, call.invocation, how, error, offset)
        thread.call = None
        if mine is not None and how == "ok":
            mine.acknowledged(call.partition, send.count)
        elif mine is not None and call.attempted:
            mine.begin_epoch()
        if mine is not None and process != thread.process:
            self._sequences[thread.process] = self._sequences.pop(process)


def _unless_ok(call: Call) -> OpType:
    """Return how a call ends whose last attempt certainly did nothing."""
    return "info" if call.in_doubt else "fail"


class ScriptedProducer(Producer):
    """A producer that sends the batches of the schedule; its `plan` is unused."""

    def _invoke(self, thread: Thread) -> Call | None:
        next_one = self._next_operation(thread)
        if next_one is None:
            return None
        step, send = next_one
        assert isinstance(send, schedules.Send)
        workload = msgspec.structs.replace(
            self._workload, batch=send.count, acks=send.acks, payload_bytes=send.payload_bytes
        )
        return self._send(thread, send.partition, workload, step)
