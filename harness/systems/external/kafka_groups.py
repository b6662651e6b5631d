"""Members of consumer groups by Kafka's protocol: positions that are committed, generations or
member epochs, and partitions that have one owner at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from harness.formats.run_info import GroupPromise
from harness.systems.adapter import Delivery, Node, Polled, Position, Setting
from harness.systems.external.kafka_config import SESSION_MS
from harness.systems.external.kafka_protocol import KafkaProtocol

PROTOCOL: Final = Setting(
    "protocol", "classic", "group.protocol of members", ("classic", "consumer")
)
_EPOCH: Final = slice(7, 11)
"""Where the metadata of a member (`CGMDv2:`) has its generation, or its member epoch."""


class KafkaGroups(KafkaProtocol):
    """The half of an adapter that concerns groups; its subclass needs the setting `protocol`."""

    groups = GroupPromise(
        kind="positions",
        fenced=True,
        exclusive=True,
        order="owner",
        redelivery_ms=2 * SESSION_MS + 3000,
    )

    def group_options(self, group: str, nodes: Sequence[Node]) -> dict[str, Any]:
        """Return the librdkafka settings of a member, or of a client that asks for positions."""
        own = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        own |= {"enable.auto.offset.store": False, "fetch.wait.max.ms": 50}
        return {**self.options(nodes), **own}

    async def close(self, connection: SimpleNamespace) -> None:
        """Let the member of a connection go; the rest is kept for its client."""
        if member := connection.__dict__.pop("member", None):
            await asyncio.to_thread(member.close)

    def join(
        self, connection: SimpleNamespace, group: str, member: str, partitions: Sequence[str]
    ) -> SimpleNamespace:
        """Subscribe to the topics. The member learns of its partitions when it polls."""
        # The usual assignor would give the only partition of every topic to the same member.
        own: dict[str, Any] = {"partition.assignment.strategy": "roundrobin"}
        own |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 1000}
        if self.setting["protocol"] == "consumer":
            own = {"group.protocol": "consumer"}
        consumer = Consumer({**self.group_options(group, connection.nodes), **own})
        connection.member = consumer
        session = SimpleNamespace(consumer=consumer, changed=False, next=None)

        def change(*_: Any) -> None:
            session.changed = True

        consumer.subscribe(list(partitions), on_assign=change, on_revoke=change, on_lost=change)
        return session

    def poll(self, session: SimpleNamespace, limit: int, timeout_s: float) -> Polled:
        """Return what came, and the partitions of the member if they changed meanwhile. What comes
        after the change is left to the next poll, so that it belongs to the new assignment."""
        consumer, given = session.consumer, list[Delivery]()
        message, session.next = session.next or consumer.poll(timeout_s), None
        while message is not None and not session.changed:
            if error := message.error():
                raise KafkaException(error)
            given.append(Delivery(message.topic(), message.value(), message.offset()))
            message = consumer.poll(0) if len(given) < limit else None
        if not session.changed:
            return Polled(given)
        session.changed, session.next = False, message
        owned = consumer.position(consumer.assignment())
        assigned = {each.topic: max(-1, each.offset) for each in owned}
        if message is not None and not message.error() and message.topic() in assigned:
            assigned[message.topic()] = message.offset()
        return Polled(given, assigned=assigned, epoch=_epoch(consumer))

    def commit(
        self, session: SimpleNamespace, positions: Mapping[str, int], timeout_s: float
    ) -> int:
        """Commit positions. librdkafka sends a commit again by itself, so no error proves anything.
        The epoch is known if it was the same before and after."""
        asked = [TopicPartition(name, 0, at) for name, at in positions.items()]
        before = _epoch(session.consumer)
        for each in session.consumer.commit(offsets=asked, asynchronous=False):
            if each.error is not None:
                raise KafkaException(each.error)
        return before if before == _epoch(session.consumer) else -1

    def positions(
        self, connection: SimpleNamespace, group: str, partitions: Sequence[str], timeout_s: float
    ) -> dict[str, Position]:
        """Ask the coordinator, as a client outside the group."""
        consumer = Consumer(self.group_options(group, connection.nodes))
        try:
            asked = [TopicPartition(name, 0) for name in partitions]
            found = consumer.committed(asked, timeout=timeout_s)
        finally:
            consumer.close()
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return {each.topic: Position(max(-1, each.offset)) for each in found}


def _epoch(consumer: Consumer) -> int:
    metadata = consumer.consumer_group_metadata()
    return max(-1, int.from_bytes(metadata[_EPOCH], "little", signed=True))
