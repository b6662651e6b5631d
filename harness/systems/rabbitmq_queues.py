"""RabbitMQ quorum queues: each partition is a queue that a group consumes. A queue cannot be read
without consuming it, and neither records nor deliveries have offsets."""

import threading
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import amqp

from harness.formats.history import GROUP_PREFIX
from harness.systems.adapter import Delivery, GroupPromise, Node, Polled, Record, Refused, Roles
from harness.systems.external.rabbitmq_node import TELLS_LEADERS, RabbitMQNode, queues
from harness.systems.external.versions import in_order

PAUSE_S, DURABLE = 0.05, {"durable": True, "auto_delete": False}
NO_LIMIT = {"x-delivery-limit": -1}  # From 4.0 on a message is dropped after 20 returns.


class RabbitMQQueues(RabbitMQNode):
    summary = "RabbitMQ quorum queues, which a group consumes"
    words = (
        "should not be lost as long as at least a majority of RabbitMQ nodes hosting the quorum "
        "queue are not permanently made unavailable"
    )
    source, groups = "https://www.rabbitmq.com/docs/quorum-queues", GroupPromise()
    discovery = TELLS_LEADERS

    def listeners(self, me: Node) -> str:
        client = f'{{"{me.host}",{me.listens["client"]}}}'
        return f"tcp_listeners [{client}] -probe {me.host} {me.listens['probe']}"

    def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        with closing(_Channel(nodes[0])) as channel:
            wanted = {"x-queue-type": "quorum", "x-quorum-initial-group-size": copies}
            wanted |= NO_LIMIT if in_order(self.version()) >= [4] else {}
            channel.do("queue_declare", partition, **DURABLE, arguments=wanted)
            have = len(queues(nodes[0])[partition]) - 1
            if have < copies:  # It has members on the nodes that were there.
                channel.do("queue_delete", partition)
                raise RuntimeError(f"{partition} has {have} members so far")

    def connect(self, client: str, nodes: Sequence[Node]) -> "_Channel":
        return _Channel(nodes[0])

    def send(self, connection: "_Channel", record: Record) -> None:
        message = amqp.Message(record.payload, delivery_mode=2)
        # Otherwise a message that no queue gets is confirmed too.
        how = {"mandatory": True, "confirm_timeout": record.timeout_s}
        try:
            connection.do("basic_publish", message, "", record.partition, **how)
        except amqp.ChannelError as error:
            if error.reply_code != 312:
                raise
            raise Refused("there is no such queue", reconnect=True) from None

    def join(self, connection: "_Channel", group: str, member: str, parts: Sequence[str]) -> Any:
        return connection, tuple(parts)

    def poll(self, session: Any, limit: int, timeout_s: float) -> Polled:
        channel, partitions = session
        found: list[Delivery] = []
        until = time.monotonic() + timeout_s
        while not found and time.monotonic() < until:
            for partition in partitions:
                for _ in range(limit):
                    if (message := channel.do("basic_get", partition)) is None:
                        break
                    found.append(_delivery(channel, partition, message))
                    if time.monotonic() > until:
                        return Polled(found)
            time.sleep(0 if found else PAUSE_S)
        return Polled(found)

    def acknowledge(
        self, session: Any, deliveries: Sequence[Delivery], how: str, timeout_s: float
    ) -> bool:
        channel, _ = session
        if any(each.token[0] is not channel for each in deliveries):
            raise Refused("RabbitMQ takes acks on the channel of the delivery only")
        for _, tag in (each.token for each in deliveries):
            if how == "ack":
                channel.do("basic_ack", tag)
            else:
                channel.do("basic_reject", tag, requeue=how == "again")
        return False

    def probe(self, me: Node) -> dict[str, Roles]:
        led = {
            name: members for name, (leader, *members) in queues(me).items() if leader == me.name
        }
        found = {name: Roles(replicas=tuple(members)) for name, members in led.items()}
        return {**found, **{f"{GROUP_PREFIX}{name}": Roles() for name in led}}


class _Channel:
    """A connection with one channel, which one thread at a time may use."""

    def __init__(self, node: Node) -> None:
        self._turn = threading.Lock()
        timeouts = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), 3)
        self._connection = amqp.Connection(node.dial("client"), confirm_publish=True, **timeouts)
        self._connection.connect()
        self._channel = self._connection.channel()

    def do(self, method: str, *arguments: Any, **more: Any) -> Any:
        with self._turn:
            return getattr(self._channel, method)(*arguments, **more)

    def close(self) -> None:
        """Close the socket at once, so that the server takes back what was not acknowledged."""
        self._connection.collect()


def _delivery(channel: _Channel, partition: str, message: Any) -> Delivery:
    returned = (message.properties.get("application_headers") or {}).get("x-delivery-count", 0)
    token = channel, message.delivery_info["delivery_tag"]
    return Delivery(partition, message.body, times=returned + 1, token=token)
