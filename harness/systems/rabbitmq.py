"""RabbitMQ Streams: each partition is a stream. A confirm has no offset; `send` returns None."""

import asyncio
import struct
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from rstream import exceptions, schema
from rstream.client import Client
from rstream.constants import OffsetType

from harness.systems.adapter import LogSlice, Node, Record, Roles
from harness.systems.external.rabbitmq_node import RabbitMQNode

_MOST = 1000
_HEAD, _MAGIC = struct.Struct(">BBHIqQQIIII"), 0x50


class RabbitMQ(RabbitMQNode):
    summary = "RabbitMQ Streams, a replicated log for each partition"
    words = (
        "confirms are only issued once the data has been replicated to a quorum of stream replicas"
    )
    source = "https://www.rabbitmq.com/docs/streams"
    plugins, unsynced = "[rabbitmq_stream].", ("*/stream/*/*",)

    def listeners(self, me: Node) -> str:
        streams = ",".join(f'{{"{me.host}",{me.listens[role]}}}' for role in ("client", "probe"))
        return f"""tcp_listeners [] -rabbitmq_stream tcp_listeners [{streams}]
            advertised_host "{me.host}" advertised_port {me.dialed["client"]}
            -osiris port_range {{61000,65535}}"""

    async def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        async with _Streams() as clients:  # A stream is put on the nodes that are there.
            first, *_ = [await clients.add(node.host, node.dialed["client"]) for node in nodes]
            with suppress(exceptions.StreamAlreadyExists):
                await first.create_stream(partition, {"initial-cluster-size": copies})
            _, others = await first.query_leader_and_replicas(partition)
        if len(others) + 1 < copies:
            raise RuntimeError(f"{partition} has {len(others) + 1} replicas so far")

    async def connect(self, client: str, nodes: Sequence[Node]) -> "_Streams":
        async with AsyncExitStack() as closing:
            streams = await closing.enter_async_context(_Streams())
            streams.asked = await streams.add(nodes[0].host, nodes[0].dialed["client"])
            closing.pop_all()
        return streams

    async def send(self, connection: "_Streams", record: Record) -> None:
        leader = await connection.leader(record.partition)
        message = schema.Message(publishing_id=record.id, filter_value=None, data=record.payload)
        await leader.publish([message], 0)
        told = await asyncio.wait_for(connection.confirms.get(), record.timeout_s)
        if not isinstance(told, schema.PublishConfirm):
            raise RuntimeError(f"not confirmed: {told}")

    async def read(self, c: "_Streams", partition: str, offset: int, _: float) -> LogSlice:
        leader = await c.leader(partition)
        start = schema.OffsetSpecOffset(OffsetType.OFFSET, offset)
        c.chunks.clear()
        await leader.subscribe(partition, 0, start, _MOST)
        await leader.unsubscribe(0)  # The server first sends all chunks that it has.
        found = [each for chunk in c.chunks for each in _records_of(chunk) if each[0] >= offset]
        return LogSlice(found, found[-1][0] + 1 if found and len(c.chunks) < _MOST else -1)

    async def probe(self, me: Node) -> dict[str, Roles]:
        streams = [folder.name[2:].rpartition("_")[0] for folder in me.folder.glob("*/stream/__*")]
        question = schema.Metadata(1000, streams)
        async with _Streams() as clients:
            asked = await clients.add(me.host, me.listens["probe"])
            told = await asked.sync_request(question, schema.MetadataResponse, False)
        at = {broker.reference: f"{broker.host}:{broker.port}" for broker in told.brokers}
        led = [each for each in told.metadata if at.get(each.leader_ref) == me.dial("client")]
        return {s.name: Roles(-1, (me.name, *(at[ref] for ref in s.replicas_refs))) for s in led}

    def dump(self, me: Node, partition: str) -> Iterator[tuple[int, bytes]] | None:
        segments = sorted(me.folder.glob(f"*/stream/__{partition}_*/*.segment"))
        return (each for file in segments for each in _records(file)) if segments else None


class _Streams(AsyncExitStack):
    """Connections that are closed together: to the node that is asked, and to leaders."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Client
        self.leaders: dict[str, Client] = {}
        self.confirms, self.chunks = asyncio.Queue[Any](), list[schema.Deliver]()

    async def add(self, host: str, port: int) -> Client:
        client = Client(host, port, frame_max=1 << 20, heartbeat=0)
        self.push_async_callback(client.close)
        await client.start()
        await client.authenticate("/", "guest", "guest")
        return client

    async def leader(self, partition: str) -> Client:
        if partition not in self.leaders:
            place, _ = await self.asked.query_leader_and_replicas(partition)
            leader = await self.add(place.host, place.port)
            leader.add_handler(schema.PublishConfirm, self.confirms.put_nowait, "0")
            leader.add_handler(schema.PublishError, self.confirms.put_nowait, "0")
            leader.add_handler(schema.Deliver, self.chunks.append, "0")
            await leader.run_queue_listener_task(0, self.chunks.append)
            await leader.declare_publisher(partition, "", 0)
            self.leaders[partition] = leader
        return self.leaders[partition]


def _records(segment: Path) -> Iterator[tuple[int, bytes]]:
    data, at = segment.read_bytes(), 8
    while at < len(data):
        magic, kind, *head, size, trailer, _ = _HEAD.unpack_from(data, at)
        content, at = data[at + _HEAD.size :][:size], at + _HEAD.size + size + trailer
        if not size or magic != _MAGIC:
            raise ValueError(f"{segment} is damaged before byte {at}")
        chunk = schema.Deliver(*(0, magic, 0, *head, size, 0, 0, content))
        yield from () if kind else _records_of(chunk)


def _records_of(chunk: schema.Deliver) -> Iterator[tuple[int, bytes]]:
    return enumerate(chunk.get_messages(), chunk.chunk_first_offset)
