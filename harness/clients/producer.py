"""A producer: sends a batch at a time per thread, and knows what to claim of each (pure)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from harness.clients.metadata_cache import MetadataCache
from harness.clients.session import (
    DEFAULT_RETRY_US,
    HOPELESS,
    Call,
    Session,
    SessionEffects,
    Thread,
)
from harness.clients.types import Answer, SendSettings
from harness.clients.workload import SendPlan, encode_batch, first_value
from harness.formats.history import Op, OpType, Send
from node.core.messages import Error, ProduceRequest, ProduceResponse

ACKS_ZERO_PAUSE_US = 1_000
"""Nothing answers a send with acks=0, so nothing but this holds back one without a rate."""
ACKS_ZERO_REFRESH_US = 500_000
"""Nor does anything tell it that the leader has moved: so it looks from time to time."""


class Producer(Session):
    """Sends batches by a plan, one under way per thread."""

    def __init__(
        self,
        client: str,
        metadata: MetadataCache,
        threads: list[Thread],
        next_op: Callable[[], int],
        *,
        plan: SendPlan,
        settings: SendSettings,
        retry_us: int = DEFAULT_RETRY_US,
    ) -> None:
        """`plan` is shared by the threads of this client; see `Session` for the rest."""
        super().__init__(client, metadata, threads, next_op, retry_us)
        self._plan = plan
        self._settings = settings
        self._written: dict[int, int] = {}

    def _invoke(self, now_us: int, thread: Thread, effects: SessionEffects) -> Call | None:
        # A slow answer costs its own time only: there is no backlog to catch up with.
        thread.next_us = now_us + self._plan.pause_us()
        partition, settings = self._plan.partition(), self._settings
        records = self._plan.records(settings.batch)
        if records != settings.batch:
            settings = msgspec.structs.replace(settings, batch=records)
        return self._send(now_us, thread, effects, partition, settings)

    def _send(
        self,
        now_us: int,
        thread: Thread,
        effects: SessionEffects,
        partition: str,
        settings: SendSettings,
        step: int = -1,
    ) -> Call:
        """Begin to send a batch."""
        number = self._written.get(thread.process, 0)
        self._written[thread.process] = number + settings.batch
        value = first_value(thread.process) + number
        send = Send(partition=partition, value=value, count=settings.batch, acks=settings.acks)
        op = Op(
            op=0, t_us=0, process=0, client="", type="invoke", f="send", sends=(send,), step=step
        )
        invocation = self._start(now_us, thread, op, effects)
        body = encode_batch(partition, value, settings.batch, settings.record_bytes)
        return Call(invocation, partition, now_us + settings.timeout_us, body)

    def _request(self, now_us: int, call: Call) -> ProduceRequest:
        left_ms = max(1, (call.deadline_us - now_us) // 1000)
        acks = call.invocation.sends[0].acks
        return ProduceRequest(partition=call.partition, acks=acks, timeout_ms=left_ms)

    def _sent(self, now_us: int, thread: Thread, call: Call, effects: SessionEffects) -> None:
        if call.invocation.sends[0].acks == 0:
            thread.next_us = max(thread.next_us, now_us + ACKS_ZERO_PAUSE_US)
            self._metadata.refresh(now_us, ACKS_ZERO_REFRESH_US)
            self._end(now_us, thread, call, "info", effects, error="acks=0")

    def _answered(
        self, now_us: int, thread: Thread, call: Call, answer: Answer, effects: SessionEffects
    ) -> None:
        message = answer.message
        assert isinstance(message, ProduceResponse)
        if message.error is Error.NONE:
            self._end(now_us, thread, call, "ok", effects, offset=message.base_offset)
            return
        error = str(message.error)
        if message.error is not Error.CORRUPT_BATCH:
            self._metadata.forget(call.partition, call.node)
            self._metadata.hint(call.partition, message.leader, refused_by=call.node)
        if message.appended:
            offset = message.base_offset
            self._end(now_us, thread, call, "info", effects, error=error, offset=offset)
        elif message.error in HOPELESS:
            self._end(now_us, thread, call, "fail", effects, error=error)
        else:
            self._again(now_us, call, error)

    def _expired(self, now_us: int, thread: Thread, call: Call, effects: SessionEffects) -> None:
        if call.corr == 0:
            self._end(now_us, thread, call, "fail", effects, error=call.error)
            return
        self._metadata.forget(call.partition, call.node)
        self._end(now_us, thread, call, "info", effects, error="timeout")

    def _end(
        self,
        now_us: int,
        thread: Thread,
        call: Call,
        how: OpType,
        effects: SessionEffects,
        *,
        error: str = "",
        offset: int = -1,
    ) -> None:
        """Record a completion; after `info` the thread goes on as another process."""
        invocation = call.invocation
        sends = invocation.sends
        if offset >= 0:
            sends = (msgspec.structs.replace(sends[0], offset=offset),)
        done = msgspec.structs.replace(invocation, t_us=now_us, type=how, sends=sends, error=error)
        effects.ops.append(done)
        thread.call = None
        if how == "info":
            self._written.pop(thread.process, None)
            thread.retire()
