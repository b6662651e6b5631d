"""Clients that do what a schedule says, one operation after another (pure).

Each is a producer or a consumer in all but what it does next: nothing, until the schedule says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from harness.clients.consumer import Consumer
from harness.clients.metadata_cache import NEVER_US, MetadataCache
from harness.clients.producer import Producer
from harness.clients.session import DEFAULT_RETRY_US, Call, SessionEffects, Thread
from harness.clients.types import PollSettings, SendSettings
from harness.clients.workload import SendPlan
from nemesis.formats.schedule import Operation, Poll, Send


class _Pending:
    """What both kinds share: the operations they are to do and have not begun."""

    def __init__(self) -> None:
        self.operations: deque[tuple[int, Operation]] = deque()

    def add(self, thread: Thread, step: int, operation: Operation) -> None:
        """Begin operation number `step` of the schedule when those before it have ended."""
        self.operations.append((step, operation))
        thread.next_us = 0

    def next(self, thread: Thread, metadata: MetadataCache) -> tuple[int, Operation] | None:
        """What comes next; without anything the thread waits."""
        if not self.operations:
            thread.next_us = NEVER_US
            return None
        step, operation = self.operations.popleft()
        # Much may have happened since the last one: look first who leads.
        metadata.forget(operation.partition, metadata.leader(operation.partition))
        return step, operation


class ScriptedProducer(Producer):
    """Sends the batches the schedule says; `plan` is not asked."""

    # Spelled out: compiled by mypyc, a call of the parent with `*args` hands over one tuple.
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
        """As the producer that it is."""
        super().__init__(
            client, metadata, threads, next_op, plan=plan, settings=settings, retry_us=retry_us
        )
        self._pending = _Pending()

    @property
    def idle(self) -> bool:
        """Whether no operation is under way, nor waits for its turn."""
        return super().idle and (self._stopped or not self._pending.operations)

    def operate(self, step: int, operation: Operation) -> None:
        """Begin operation number `step` of the schedule when those before it have ended."""
        self._pending.add(self._threads[0], step, operation)

    def _invoke(self, now_us: int, thread: Thread, effects: SessionEffects) -> Call | None:
        next_one = self._pending.next(thread, self._metadata)
        if next_one is None:
            return None
        step, send = next_one
        assert isinstance(send, Send)
        settings = msgspec.structs.replace(
            self._settings, batch=send.count, acks=send.acks, record_bytes=send.payload_bytes
        )
        return self._send(now_us, thread, effects, send.partition, settings, step)


class ScriptedConsumer(Consumer):
    """Polls the partitions the schedule says, each from where its last poll of it ended."""

    def __init__(
        self,
        client: str,
        metadata: MetadataCache,
        thread: Thread,
        next_op: Callable[[], int],
        *,
        partitions: Sequence[str],
        settings: PollSettings,
        retry_us: int = DEFAULT_RETRY_US,
    ) -> None:
        """As the consumer that it is."""
        super().__init__(
            client,
            metadata,
            thread,
            next_op,
            partitions=partitions,
            settings=settings,
            retry_us=retry_us,
        )
        self._pending = _Pending()

    @property
    def idle(self) -> bool:
        """Whether no operation is under way, nor waits for its turn."""
        return super().idle and (self._stopped or not self._pending.operations)

    def operate(self, step: int, operation: Operation) -> None:
        """Begin operation number `step` of the schedule when those before it have ended."""
        self._pending.add(self._threads[0], step, operation)

    def _invoke(self, now_us: int, thread: Thread, effects: SessionEffects) -> Call | None:
        next_one = self._pending.next(thread, self._metadata)
        if next_one is None:
            return None
        step, poll = next_one
        assert isinstance(poll, Poll)
        if not self._assigned:
            self._assign(now_us, thread, effects)
        return self._poll(now_us, thread, effects, poll.partition, step)


SCRIPTED: Final = (ScriptedProducer, ScriptedConsumer)
"""For `isinstance`: the clients that carry out operations of the schedule."""
