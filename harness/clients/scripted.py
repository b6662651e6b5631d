"""Clients that carry out the operations of a schedule, one after another (pure).

Each is a producer or a consumer that begins an operation only when the schedule says so."""

from __future__ import annotations

import msgspec

from harness.clients.consumer import Consumer
from harness.clients.producer import Producer
from harness.clients.session import Call, Thread
from nemesis.formats.schedule import Poll, Send


class ScriptedProducer(Producer):
    """A producer that sends the batches of the schedule; its `plan` is unused."""

    def _invoke(self, thread: Thread) -> Call | None:
        next_one = self._next_operation(thread)
        if next_one is None:
            return None
        step, send = next_one
        assert isinstance(send, Send)
        settings = msgspec.structs.replace(
            self._settings, batch=send.count, acks=send.acks, record_bytes=send.payload_bytes
        )
        return self._send(thread, send.partition, settings, step)


class ScriptedConsumer(Consumer):
    """A consumer that polls the partitions of the schedule, each from the end of its last poll."""

    def _invoke(self, thread: Thread) -> Call | None:
        next_one = self._next_operation(thread)
        if next_one is None:
            return None
        step, poll = next_one
        assert isinstance(poll, Poll)
        if not self._assigned:
            self._assign(thread)
        return self._poll(thread, poll.partition, step)
