"""RabbitMQ Streams: each partition is a stream. A confirm has no offset; `send` returns None."""

import asyncio
import logging
import struct
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from rstream import schema
from rstream.client import Client
from rstream.constants import OffsetType

from harness.systems import adapter
from harness.systems.adapter import LogSlice, Node, Promise, Record, Refused, Roles
from node.formats.errors import UsageError

_MOST, _PATIENCE_S = 200, 0.3
_WORDS = "confirms are only issued once the data has been replicated to a quorum of stream replicas"
_CHUNK, _MAGIC = struct.Struct(">HHIqQQIIII"), 0x50
# Says where nodes listen instead of epmd, which is one for a host and knows nothing of a proxy.
_DISCOVERY = """-module(discovery).
-compile([export_all, nowarn_export_all]).
start_link() -> ignore.
register_node(_, _, _) -> {ok, 1}.
place(Node) ->
    [Host, Port] = string:split(os:getenv("PLACE_" ++ hd(string:split(Node, "@"))), ":"),
    {ok, Address} = inet:parse_address(Host),
    {Address, list_to_integer(Port)}.
port_please(Node, _) -> {port, element(2, place(Node)), 5}.
address_please(Node, _, _) -> {Address, Port} = place(Node), {ok, Address, Port, 5}.
listen_port_please(_, _) -> {ok, list_to_integer(os:getenv("PLACE"))}.
names(_) -> {ok, []}.
"""


class RabbitMQ(adapter.Adapter):
    summary = "RabbitMQ Streams, a replicated log for each partition"
    needs = "install rabbitmq-server (Debian), and pip install '.[rabbitmq]' in a clone"
    settings = (
        adapter.Setting("home", "/usr/lib/rabbitmq", "the folder that has its bin and lib"),
        adapter.Setting("partitions", "ignore", "cluster_partition_handling of the servers"),
    )
    probed, unsynced, dumps_running = ("probe",), ("*/stream/*/*.segment",), True
    failover_ms, restart_ms, start_s = 10_000, 12_000, 120.0

    def command(self, me: Node, others: Sequence[Node]) -> list[str]:
        self.version()
        nodes = {f"{node.name}@{node.host}": node for node in sorted((me, *others), key=str)}
        if not (me.folder / "discovery.beam").exists():
            (me.folder / "discovery.erl").write_text(_DISCOVERY)
            subprocess.run(["erlc", "discovery.erl"], cwd=me.folder, check=True, timeout=60)
        (me.folder / "plugins").write_text("[rabbitmq_stream].")
        classic = "".join(f"classic_config.nodes.{n.name[1:]} = {at}\n" for at, n in nodes.items())
        (me.folder / "rabbitmq.conf").write_text(f"""
listeners.tcp = none
loopback_users = none
log.console.level = error
stream.listeners.tcp.1 = {me.listen("client")}
stream.listeners.tcp.2 = {me.listen("probe")}
stream.advertised_host = {me.host}
stream.advertised_port = {me.dialed["client"]}
cluster_partition_handling = {self.setting["partitions"]}
cluster_formation.peer_discovery_backend = classic_config
{classic.replace("classic", "cluster_formation.classic")}""")
        places = "\n".join(f"PLACE_{node.name}={node.dial('peer')}" for node in nodes.values())
        interface = me.host.replace(".", ",")
        variables = f"""{places}
PLACE={me.listens["peer"]}
HOME={me.folder}
RABBITMQ_ALLOW_INPUT=true
RABBITMQ_USE_LONGNAME=true
RABBITMQ_NODENAME={me.name}@{me.host}
RABBITMQ_MNESIA_BASE={me.folder}
RABBITMQ_LOG_BASE={me.folder}
RABBITMQ_LOGS=-
RABBITMQ_CONF_ENV_FILE={me.folder}/none
RABBITMQ_CONFIG_FILE={me.folder}/rabbitmq.conf
RABBITMQ_ENABLED_PLUGINS_FILE={me.folder}/plugins
RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-noinput -name {me.name}@{me.host} -setcookie floodmark +S 2:2 \
-pa {me.folder} -start_epmd false -epmd_module discovery -erl_epmd_port {me.listens["peer"]} \
-osiris port_range {{61000,65535}} -kernel net_ticktime 4 inet_dist_use_interface {{{interface}}}"""
        return ["env", *variables.splitlines(), f"{self.setting['home']}/bin/rabbitmq-server"]

    def version(self) -> str:
        for folder in Path(self.setting["home"]).glob("lib/rabbitmq_server-*"):
            return folder.name.partition("-")[2]
        raise UsageError(f"there is no RabbitMQ in {self.setting['home']}: {self.needs}")

    def promise(self) -> Promise:
        return Promise(words=_WORDS, source="https://www.rabbitmq.com/docs/streams")

    async def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        # A stream has its replicas on the nodes that are there.
        async with aclosing(_Clients()) as opened:
            clients = [await opened.add(node.host, node.dialed["client"]) for node in nodes]
            if not await clients[0].stream_exists(partition):
                await clients[0].create_stream(partition, {"initial-cluster-size": copies})
            _, replicas = await clients[0].query_leader_and_replicas(partition)
        if len(replicas) + 1 < copies:
            raise RuntimeError(f"{partition} has {len(replicas) + 1} replicas so far")

    async def connect(self, client: str, nodes: Sequence[Node]) -> "_Streams":
        streams = _Streams()
        try:
            await streams.add(nodes[0].host, nodes[0].dialed["client"])
        except BaseException:
            await streams.aclose()
            raise
        return streams

    async def send(self, connection: "_Streams", record: Record) -> None:
        try:
            leader = await connection.leader(record.partition)
        except Exception as error:
            raise Refused(f"no leader: {error}") from None
        message = schema.Message(publishing_id=record.id, filter_value=None, data=record.payload)
        await leader.publish([message], 0)
        told = await asyncio.wait_for(connection.confirms.get(), record.timeout_s)
        if not isinstance(told, schema.PublishConfirm):
            raise RuntimeError(f"not confirmed: {told}")

    async def read(self, c: "_Streams", partition: str, offset: int, _: float) -> LogSlice:
        last = await c.chunks(partition, schema.OffsetSpec(OffsetType.LAST), 0)
        end = _end(last[-1]) if last else 0
        start = schema.OffsetSpec.from_params(OffsetType.OFFSET, offset)
        found: list[tuple[int, bytes]] = []
        for chunk in await c.chunks(partition, start, end) if offset < end else ():
            found += enumerate(chunk.get_messages(), chunk.chunk_first_offset)
        return LogSlice([each for each in found if each[0] >= offset], end)

    def probe(self, me: Node) -> dict[str, Roles]:
        return asyncio.run(_led(me))

    def dump(self, me: Node, partition: str) -> Iterator[tuple[int, bytes]] | None:
        segments = sorted(me.folder.glob(f"*/stream/__{partition}_*/*.segment"))
        return (each for file in segments for each in _records(file)) if segments else None


class _Clients:
    """Clients that are closed together, also if one could not be opened."""

    def __init__(self) -> None:
        self.opened: list[Client] = []

    async def aclose(self) -> None:
        await asyncio.gather(*(each.close() for each in self.opened), return_exceptions=True)

    async def add(self, host: str, port: int) -> Client:
        logging.getLogger("rstream").setLevel(logging.CRITICAL)
        client = Client(host, port, frame_max=1 << 20, heartbeat=0)
        self.opened.append(client)
        await client.start()
        await client.authenticate("/", "guest", "guest")
        return client


class _Streams(_Clients):
    """Connections: the first to the node that a client asks, others to leaders of partitions."""

    def __init__(self) -> None:
        super().__init__()
        self._subscription = 0
        self.leaders: dict[str, Client] = {}
        self.confirms, self._chunks = asyncio.Queue[Any](), asyncio.Queue[Any]()

    async def leader(self, partition: str) -> Client:
        if partition not in self.leaders:
            place, _ = await self.opened[0].query_leader_and_replicas(partition)
            leader = await self.add(place.host, place.port)
            for kind in (schema.PublishConfirm, schema.PublishError):
                leader.add_handler(kind, self.confirms.put_nowait, "0")
            leader.add_handler(schema.Deliver, self._chunks.put_nowait, "0")
            await leader.run_queue_listener_task(0, self._chunks.put_nowait)
            await leader.declare_publisher(partition, "", 0)
            self.leaders[partition] = leader
        return self.leaders[partition]

    async def chunks(self, name: str, start: schema.OffsetSpec, until: int) -> list[Any]:
        leader, found = await self.leader(name), list[Any]()
        number = self._subscription = (self._subscription + 1) % 256
        await leader.subscribe(name, number, start, _MOST)
        # The first chunk comes before this answer, unless the stream is empty.
        await leader.query_leader_and_replicas(name)
        with suppress(TimeoutError):
            while not found or (_end(found[-1]) < until and len(found) < _MOST):
                chunk = await asyncio.wait_for(self._chunks.get(), _PATIENCE_S)
                found += [chunk] if chunk.subscription_id == number else []
        await leader.unsubscribe(number)
        return found


def _end(chunk: schema.Deliver) -> int:
    return chunk.chunk_first_offset + chunk.num_records


async def _led(me: Node) -> dict[str, Roles]:
    led: dict[str, Roles] = {}
    async with aclosing(_Clients()) as clients:
        asked = await clients.add(me.host, me.listens["probe"])
        for folder in me.folder.glob("*/stream/__*_*"):
            stream = folder.name[2:].rpartition("_")[0]
            leader, _ = await asked.query_leader_and_replicas(stream)
            if f"{leader.host}:{leader.port}" == me.dial("client"):
                led[stream] = Roles()
    return led


def _records(segment: Path) -> Iterator[tuple[int, bytes]]:
    data, at = segment.read_bytes(), 8
    while at < len(data):
        kind, entries, _, _, _, first, crc, size, trailer, _ = _CHUNK.unpack_from(data, at)
        place = at + _CHUNK.size
        if not size or kind >> 8 != _MAGIC or zlib.crc32(data[place : place + size]) != crc:
            raise ValueError(f"{segment} is damaged at byte {at}")
        at = place + size + trailer
        for offset in range(first, first + entries * (kind & 255 == 0)):
            end = place + 4 + int.from_bytes(data[place : place + 4], "big")
            yield offset, data[place + 4 : end]
            place = end
