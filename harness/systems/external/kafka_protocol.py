"""The common half of adapters for systems with Kafka's protocol: clients, by librdkafka. A
partition is a topic with one partition."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from harness.systems.adapter import UNKNOWN_END, Adapter, LogSlice, Node, Record, Refused, Setting

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


class KafkaProtocol(Adapter):
    """An adapter by Kafka's protocol; its subclass needs the setting `acks`."""

    speaks: str = ""
    """The version of brokers before 0.10, which cannot be asked what they speak."""
    clock_by_libc: ClassVar[bool] = True
    """Brokers run on a JVM."""

    def connect(self, client: str, nodes: Sequence[Node]) -> SimpleNamespace:
        """Return a producer that sends nothing twice, and a consumer that belongs to no group. A
        client keeps them: librdkafka connects by itself, and matches answers to sends."""
        kept: dict[str, SimpleNamespace] = self.__dict__.setdefault("clients", {})
        if client not in kept:
            both = self.options(nodes)
            sends = {"acks": self.setting["acks"], "message.send.max.retries": 0, "linger.ms": 0}
            sends |= {"retry.backoff.ms": NEVER_MS, "retry.backoff.max.ms": NEVER_MS}
            reads = {"group.id": client, "auto.offset.reset": "error", "enable.partition.eof": True}
            reads["enable.auto.commit"] = False
            producer = Producer({**both, **sends, "message.timeout.ms": LONGEST_SEND_MS})
            consumer = Consumer({**both, **reads, "fetch.wait.max.ms": 50})
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
