"""The clients of an adapter with Kafka's protocol, by librdkafka: producers, readers, members of
groups. A partition is a topic with one partition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from harness.formats.run_info import GroupPromise
from harness.systems.adapter import (
    UNKNOWN_END,
    Adapter,
    Delivery,
    LogSlice,
    Node,
    Polled,
    Position,
    Record,
    Refused,
    Setting,
)
from harness.systems.external.kafka_config import SESSION_MS

MOST_A_READ: Final = 500
LONGEST_SEND_MS: Final = 3000
"""When librdkafka gives up a record that it could not send; nobody waits for it any more."""
NEVER_MS: Final = 300_000
"""librdkafka sends some records again without counting that, such as one whose leader changed after
the append. It does so after a pause, and gives the record up before that one is over."""
ACKS: Final = Setting(
    "acks", "all", "who has a record when it is acknowledged", ("all", "1"), "all"
)
_LOOK_S: Final = 0.2
PROTOCOL: Final = Setting(
    "protocol", "classic", "group.protocol of members", ("classic", "consumer")
)
_EPOCH: Final = slice(7, 11)
"""Where the metadata of a member (`CGMDv2:`) has its generation, or its member epoch."""


class KafkaClients(Adapter):
    """The half of an adapter that concerns clients; its subclass needs the settings `acks` and
    `protocol`."""

    speaks: str = ""
    """The version of brokers before 0.10, which cannot be asked what they speak."""
    clock_by_libc: ClassVar[bool] = True
    """Brokers run on a JVM."""
    groups = GroupPromise(
        kind="positions",
        fenced=True,
        exclusive=True,
        order="owner",
        redelivery_ms=2 * SESSION_MS + 3000,
    )

    def connect(self, client: str, nodes: Sequence[Node]) -> SimpleNamespace:
        """Return a producer that sends nothing twice, and a consumer that belongs to no group. A
        client keeps them: librdkafka connects by itself, and matches answers to sends."""
        kept: dict[str, SimpleNamespace] = self.__dict__.setdefault("clients", {})
        if client not in kept:
            both = self.options(nodes)
            sends = {"acks": self.setting["acks"], "message.send.max.retries": 0, "linger.ms": 0}
            sends |= {"retry.backoff.ms": NEVER_MS, "retry.backoff.max.ms": NEVER_MS}
            reads = {"auto.offset.reset": "error", "enable.partition.eof": True}
            producer = Producer({**both, **sends, "message.timeout.ms": LONGEST_SEND_MS})
            consumer = self.consumer(nodes, client, reads)
            producer.list_topics(timeout=2)
            kept[client] = SimpleNamespace(producer=producer, consumer=consumer, nodes=nodes)
        return kept[client]

    def knows(self, node: Node) -> int:
        """Return how many brokers `node` knows. Raises KafkaException if it does not answer."""
        return len(Producer(self.options([node])).list_topics(timeout=2).brokers)

    def options(self, nodes: Sequence[Node]) -> dict[str, Any]:
        """Return the librdkafka settings that producers and consumers have in common."""
        servers = ",".join(node.dial("client") for node in nodes)
        old = {"api.version.request": False, "broker.version.fallback": self.speaks}
        soon = {"topic.metadata.refresh.interval.ms": 1000, "socket.timeout.ms": 5000}
        own = {"bootstrap.servers": servers, "log_level": 0, **soon}
        return {**own, **(old if self.speaks else {})}

    def consumer(self, nodes: Sequence[Node], group: str, more: Mapping[str, Any] = {}) -> Consumer:
        """Return a consumer that commits and stores nothing by itself."""
        own = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        own |= {"enable.auto.offset.store": False, "fetch.wait.max.ms": 50}
        return Consumer({**self.options(nodes), **own, **more})

    def send(self, connection: SimpleNamespace, record: Record) -> int:
        """Send a record and return its offset. Only errors from before the append raise Refused."""
        told: list[tuple[KafkaError | None, Message]] = []
        connection.producer.produce(
            *(record.partition, record.payload),
            partition=0,
            on_delivery=lambda error, message: told.append((error, message)),
        )
        deadline = time.monotonic() + record.timeout_s
        while not told:
            if time.monotonic() > deadline:
                raise TimeoutError
            connection.producer.poll(_LOOK_S)
        error, message = told[0]
        if error is None:
            return int(message.offset() or 0)
        if error.code() == KafkaError.NOT_ENOUGH_REPLICAS:
            raise Refused(error.str())
        raise KafkaException(error)

    def read(
        self, connection: SimpleNamespace, partition: str, offset: int, timeout_s: float
    ) -> LogSlice:
        """Read records from `offset` on, by a request to the broker each time, so that no answer is
        older than the call."""
        connection.consumer.assign([TopicPartition(partition, 0, offset)])
        first = connection.consumer.poll(timeout_s)
        if first is None:
            raise TimeoutError
        records, end = [], UNKNOWN_END
        for message in (first, *connection.consumer.consume(MOST_A_READ, 0)):
            error = message.error()
            if error is None:
                records.append((message.offset(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                end = message.offset()
            else:
                raise KafkaException(error)
        return LogSlice(records, end)

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
        connection.member = consumer = self.consumer(connection.nodes, group, own)
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
        consumer = self.consumer(connection.nodes, group)
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
