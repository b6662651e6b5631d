"""Requests of the adapter of RabbitMQ's quorum queues, and how it takes answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import amqp
import pytest
from amqp import spec
from amqp.exceptions import error_for_code

from harness.systems import rabbitmq_queues
from harness.systems.adapter import Node, Record, Refused
from harness.systems.rabbitmq_queues import RabbitMQQueues


class Channel:
    """A channel that keeps what it is asked for; an unroutable message comes back."""

    def __init__(self, code: int = 0) -> None:
        self.code, self.asked = code, list[tuple[Any, ...]]()

    def do(self, method: str, *arguments: Any, **more: Any) -> None:
        self.asked.append((method, arguments, more))
        if self.code and more.get("mandatory"):
            raise error_for_code(self.code, "why", spec.Basic.Return, amqp.ChannelError)

    def close(self) -> None: ...


@pytest.mark.parametrize(("version", "limit"), [("3.10.8", {}), ("4.0.5", -1), ("4.2.0", -1)])
def test_a_queue_has_no_limit_of_deliveries(
    version: str, limit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 4.0 on the server drops what was returned 20 times, unless a limit is given."""
    (tmp_path / f"lib/rabbitmq_server-{version}").mkdir(parents=True)
    channel = Channel()
    monkeypatch.setattr(rabbitmq_queues, "_Channel", lambda node: channel)
    monkeypatch.setattr(rabbitmq_queues, "queues", lambda node: {"log-0": ["n1", "n1", "n2", "n3"]})
    adapter = RabbitMQQueues({"home": str(tmp_path)})
    adapter.create([Node("n1", tmp_path, {}, {})], "log-0", 3)
    ((_, _, more),) = channel.asked
    assert more["arguments"].get("x-delivery-limit", {}) == limit


def test_a_message_that_no_queue_gets_is_refused() -> None:
    """Without `mandatory` the server would confirm it, and no member could ever consume it."""
    record = Record("log-0", b"a", 1, -1, 1.0)
    adapter: Any = RabbitMQQueues({"home": "/nowhere"})
    with pytest.raises(Refused) as refused:
        adapter.send(Channel(code=312), record)
    assert refused.value.reconnect, "its confirm is still to come on this channel"
    with pytest.raises(amqp.ChannelError):
        adapter.send(Channel(code=313), record)
    adapter.send(Channel(), record)
