"""Liftbridge: each partition is a stream, and each node brings the NATS server that it needs."""

import contextlib
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
from gufo.liftbridge import api_pb2 as api
from gufo.liftbridge.api_pb2_grpc import APIStub

from harness.systems import adapter
from harness.systems.adapter import LogSlice, Node, Record, Refused, Roles

Nodes = Sequence[Node]
# The high watermark is stored every 5 s, and not at a stop: without it the log cannot be judged.
STOPPED_LATE = ["sh", "-c", 'trap "sleep 6; kill \\$p" TERM; "$0" "$@" & p=$!; wait $p; wait $p']
OPTIONS = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
HEADER = struct.Struct(">qqqi")  # offset, timestamp, leader epoch, size of the message
CONFIG = """
listen: {listen}
host: {host}
port: {port}
data.dir: data
metadata.cache.max.age: 1s
nats: {{embedded: true, embedded.config: nats.conf, servers: ["nats://{nats}"]}}
clustering:
  server.id: {name}
  min.insync.replicas: {min_isr}
  raft.bootstrap.peers: [{names}]
  replica: {{max.lag.time: 2s, max.leader.timeout: 2s, max.idle.wait: 500ms, fetch.timeout: 1s}}
"""


class Channels:
    """Channels to nodes by address, of which requests go to the one that answered first."""

    def __init__(self, address: str = "") -> None:
        self.channels: dict[str, grpc.aio.Channel] = {}
        self.address = address

    def at(self, address: str = "") -> Any:
        """Return the API of a node."""
        if (address := address or self.address) not in self.channels:
            self.channels[address] = grpc.aio.insecure_channel(address, OPTIONS)
        return APIStub(self.channels[address])  # type: ignore[no-untyped-call]

    async def metadata(self, *streams: str) -> Any:
        """Return what the node knows of the nodes and of streams; of all if none is named."""
        return await self.at().FetchMetadata(api.FetchMetadataRequest(streams=streams), timeout=1)

    async def aclose(self) -> None:
        for channel in self.channels.values():
            await channel.close()


class Liftbridge(adapter.Adapter):
    summary = "Liftbridge, a stream for each partition, over NATS"
    needs = "pip install '.[liftbridge]' in a clone of floodmark; floodmark systems get liftbridge"
    words = "the ack is sent only after all members of the ISR have stored it"
    source = "https://liftbridge.io/docs/concepts.html"
    binary, standard = "liftbridge", "1.9.0"
    settings = (adapter.Setting("min_isr", "1", "min.insync.replicas", ("1", "2", "3"), "2"),)
    probed, unsynced = ("nats",), ("data/streams/**/*.log",)
    failover_ms, restart_ms, stop_codes = 9000, 3000, (0, 1, -15, 143)

    def command(self, me: Node, others: Nodes) -> list[str]:
        routes = ", ".join(f'"nats-route://{node.dial("peer")}"' for node in others)
        (me.folder / "nats.conf").write_text(f"""
            server_name: {me.name}, listen: "{me.listen("nats")}"
            cluster {{ name: floodmark, listen: "{me.listen("peer")}", routes: [{routes}]
                       advertise: "{me.dial("peer")}", no_advertise: true }}""")
        names = ", ".join(sorted(node.name for node in (me, *others)))
        own = {"name": me.name, "host": me.host, "port": me.dialed["client"], "names": names}
        ports = {"listen": me.listen("client"), "nats": me.listen("nats")}
        (me.folder / "config.yaml").write_text(CONFIG.format(**own, **ports, **self.setting))
        return [*STOPPED_LATE, me.server or self.server, "-c", "config.yaml"]

    async def connect(self, client: str, nodes: Nodes) -> Channels:
        for node in nodes:
            connection = Channels(node.dial("client"))
            with contextlib.suppress(grpc.aio.AioRpcError):
                await connection.metadata()
                return connection
            await connection.aclose()
        raise ConnectionError("no node answers")

    async def create(self, nodes: Nodes, partition: str, copies: int) -> None:
        async with contextlib.aclosing(await self.connect("setup", nodes)) as connection:
            told = await connection.metadata(partition)
            if len(told.brokers) < len(nodes):
                raise RuntimeError("not all nodes know all others")
            if not told.streamMetadata[0].partitions:
                stream = api.CreateStreamRequest(subject=partition, name=partition, partitions=1)
                stream.replicationFactor = copies
                await connection.at().CreateStream(stream, timeout=5)

    async def send(self, connection: Channels, record: Record) -> int | None:
        request = api.PublishRequest(stream=record.partition, value=record.payload)
        request.ackPolicy = {0: api.NONE, 1: api.LEADER, -1: api.ALL}[record.acks]
        try:
            told = await connection.at().Publish(request, timeout=record.timeout_s)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND:
                raise Refused(error.details()) from None
            raise
        return told.ack.offset if record.acks else None

    async def read(self, c: Channels, partition: str, offset: int, limit_s: float) -> LogSlice:
        told = await c.metadata(partition)
        leader = told.streamMetadata[0].partitions[0].leader
        (leads,) = (c.at(f"{node.host}:{node.port}") for node in told.brokers if node.id == leader)
        ask = api.FetchPartitionMetadataRequest(stream=partition)
        told = (await leads.FetchPartitionMetadata(ask, timeout=limit_s)).metadata
        end = told.highWatermark + 1
        last = min(end, offset + 500) - 1
        if last < offset:
            return LogSlice([], end, leader)
        wanted = api.SubscribeRequest(stream=partition, startOffset=offset, stopOffset=last)
        wanted.startPosition, wanted.stopPosition = api.OFFSET, api.STOP_OFFSET
        found = []
        async for message in leads.Subscribe(wanted, timeout=limit_s):
            if message.stream:  # The first one only says that the subscription was made.
                found.append((message.offset, message.value))
                if message.offset >= last:
                    break
        return LogSlice(found, end, leader)

    async def probe(self, me: Node) -> dict[str, Roles]:
        async with contextlib.aclosing(Channels(me.listen("client"))) as connection:
            told = await connection.metadata()
        parts = {stream.name: stream.partitions[0] for stream in told.streamMetadata}
        led = {name: part for name, part in parts.items() if part.leader == me.name}
        return {name: Roles(-1, tuple(p.isr), tuple(p.replicas)) for name, p in led.items()}

    def dump(self, me: Node, partition: str) -> Iterator[tuple[int, bytes]] | None:
        log = me.folder / "data/streams" / partition / "0"
        return records(log) if log.is_dir() else None


def records(log: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the records of a partition. Raises ValueError for one above the stored high watermark,
    which may not be committed, and for a damaged file."""
    last_committed = int((log / "replication-offset-checkpoint").read_text())
    for file in sorted(log.glob("*.log")):
        data, at = file.read_bytes(), 0
        while at < len(data):
            try:
                offset, _, _, size = HEADER.unpack_from(data, at)
                start, at = at + HEADER.size, at + HEADER.size + size
                value = start + 10 + max(0, *struct.unpack_from(">i", data, start + 6))
                (length,) = struct.unpack_from(">i", data, value)
            except struct.error:
                raise ValueError(f"{file} is damaged before byte {at}") from None
            if at > len(data) or offset > last_committed:
                raise ValueError(f"{file} has offset {offset}: torn, or not committed")
            yield offset, data[value + 4 : value + 4 + length]
