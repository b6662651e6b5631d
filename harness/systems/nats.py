"""NATS JetStream: each partition is a stream with file storage; offset = sequence - 1."""

import json
import struct
import time
from asyncio import gather
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import nats
from nats.aio.client import Client
from nats.js.errors import NoStreamResponseError

from harness.systems import adapter
from harness.systems.adapter import (
    Delivery,
    GroupPromise,
    LogSlice,
    Members,
    Node,
    Polled,
    Position,
    Record,
    Refused,
    Roles,
)
from harness.systems.external.members import GROUP
from harness.systems.external.versions import in_order
from node.formats.json_input import decode

Nodes = Sequence[Node]
ACK_WAIT_MS = 2000
NOT_FINAL = ("not a member", "in progress")  # An earlier request is being carried out.
BATCHES = (2, 11)  # The first version with a direct get of many messages.
_DEFAULT = "acknowledged after it successfully replicated to at least a quorum of servers"
_ALWAYS = "will make sure servers `fsync` after every message before it is acknowledged"


class Nats(adapter.Adapter):
    summary = "NATS JetStream, a replicated stream for each partition"
    needs = "pip install '.[nats]' in a clone of floodmark"
    binary = "nats-server"
    source = "https://docs.nats.io/nats-concepts/jetstream"
    settings = (
        adapter.Setting("sync", "2m", "sync_interval", ("always", adapter.DURATION), "always"),
        adapter.Setting("copies", "", "num_replicas of a group; none: of its stream", ("", "1")),
    )
    probed, unsynced = ("http",), ("jetstream/**/*.blk",)
    failover_ms, stop_codes = 9000, (0, 1)
    changes = (*("join", "leave", "replace", "return", "reassign"), "upgrade", "downgrade")
    upgrades = (("2.10", "2.11"), ("2.11", "2.12"), ("2.12", "2.14"), ("2.14", "2.15"))

    def command(self, me: Node, others: Nodes) -> list[str]:
        routes = ", ".join(f'"nats-route://{node.dial("peer")}"' for node in others)
        cluster = f"""cluster {{ name: floodmark, listen: "{me.listen("peer")}", routes: [{routes}]
                       advertise: "{me.dial("peer")}", no_advertise: true }}"""
        (me.files / "nats.conf").write_text(f"""
            server_name: {me.identity}, listen: "{me.listen("client")}", http: "{me.listen("http")}"
            jetstream {{ store_dir: "{me.folder}", sync_interval: {self.setting["sync"]} }}
            accounts {{ $SYS {{ users: [{{user: operator, password: operator}}] }} }}
            {cluster if others else ""}""")  # a cluster of one would wait for ever
        return [me.server or self.server, "-c", str(me.files / "nats.conf")]

    @property
    def unsynced_files(self) -> tuple[str, ...]:
        return () if self.setting["sync"] == "always" else self.unsynced

    @property
    def words(self) -> str:  # type: ignore[override]
        return _ALWAYS if self.setting["sync"] == "always" else _DEFAULT

    @property
    def groups(self) -> GroupPromise:  # type: ignore[override]
        counts = in_order(self.version()) >= [2, 11, 2]
        return GroupPromise(ack_wait_ms=ACK_WAIT_MS, counts=counts)

    async def create(self, nodes: Nodes, partition: str, copies: int) -> None:
        stream = {"name": partition, "subjects": [partition], "num_replicas": copies}
        await self._ask(nodes, f"STREAM.CREATE.{partition}", {**stream, "allow_direct": True})
        if self.group_members:
            group = {"durable_name": GROUP, "ack_policy": "explicit", "max_ack_pending": 10_000}
            group |= {"ack_wait": ACK_WAIT_MS * 1_000_000, "deliver_policy": "all"}
            group |= {"num_replicas": int(self.setting["copies"] or 0)}
            ask = {"stream_name": partition, "config": group}
            await self._ask(nodes, f"CONSUMER.DURABLE.CREATE.{partition}.{GROUP}", ask)

    async def connect(self, client: str, nodes: Nodes, user: str = "") -> Client:
        urls = [f"nats://{node.dial('client')}" for node in nodes]
        more: Any = {"user": user, "password": user} if user else {}
        more |= {"dont_randomize": True, "allow_reconnect": False}
        return await nats.connect(urls, name=client, **more)

    async def send(self, connection: Client, record: Record) -> int:
        write = connection.jetstream().publish
        try:
            return (await write(record.partition, record.payload, record.timeout_s)).seq - 1
        except NoStreamResponseError:
            raise Refused("no responders") from None

    async def read(self, c: Client, partition: str, offset: int, limit_s: float) -> LogSlice:
        version = c.connected_server_version
        if (version.major, version.minor) < BATCHES:
            return await self._read_singly(c, partition, offset, limit_s)
        inbox, found = c.new_inbox(), []
        answers = await c.subscribe(inbox)
        ask = json.dumps({"seq": offset + 1, "batch": 500}).encode()
        await c.publish(f"$JS.API.DIRECT.GET.{partition}", ask, reply=inbox)
        while "Status" not in (head := (told := await answers.next_msg(limit_s)).headers or {}):
            found.append((int(head["Nats-Sequence"]) - 1, told.data))
        await answers.unsubscribe()
        if head["Status"] not in ("204", "404"):
            raise RuntimeError(f"status {head['Status']}")
        end = int(head.get("Nats-Last-Sequence", 0)) + int(head.get("Nats-Num-Pending", 0))
        return LogSlice(found, end)

    async def _read_singly(self, c: Client, part: str, offset: int, limit_s: float) -> LogSlice:
        asked = [json.dumps({"seq": offset + n}).encode() for n in range(1, 101)]
        where = f"$JS.API.DIRECT.GET.{part}"
        answers = await gather(*(c.request(where, ask, limit_s) for ask in asked))
        # What was appended meanwhile may be there although the one before it was not yet.
        got = [*takewhile(lambda answer: "Status" not in (answer.headers or {}), answers)]
        found = [(int((a.headers or {})["Nats-Sequence"]) - 1, a.data) for a in got]
        is_end = len(got) < len(asked) and (got or not offset)  # Else the log may end before it.
        return LogSlice(found, offset + len(got) if is_end else -1)

    def join(self, connection: Client, group: str, member: str, partitions: Sequence[str]) -> Any:
        return connection, partitions

    async def poll(self, session: Any, limit: int, timeout_s: float) -> Polled:
        client, partitions = session
        inbox, until = client.new_inbox(), time.monotonic() + timeout_s + 1
        found: list[Delivery] = []
        answers = await client.subscribe(inbox)
        left = dict.fromkeys(partitions, limit)
        ask = json.dumps({"batch": limit, "expires": int(timeout_s * 1e9)}).encode()
        for partition in partitions:  # An inbox of its own: nothing of an earlier poll comes there.
            await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{partition}.{GROUP}", ask, inbox)
        ended = 0
        try:
            while sum(n > 0 for n in left.values()) > ended:
                told = await answers.next_msg(max(0.01, until - time.monotonic()))
                if status := (told.headers or {}).get("Status"):
                    if status == "503" and not found and len(left) == 1:
                        raise Refused("no responders")
                    ended += 1
                    continue
                delivery = _delivery(told)
                left[delivery.partition] -= 1
                found.append(delivery)
        except TimeoutError:
            return Polled(found, whole=False)
        finally:
            await answers.unsubscribe()
        return Polled(found)

    async def acknowledge(
        self, session: Any, deliveries: Sequence[Delivery], how: str, timeout_s: float
    ) -> bool:
        word = {"ack": b"+ACK", "again": b"-NAK", "drop": b"+TERM"}[how]
        await gather(*(session[0].request(each.token, word, timeout_s) for each in deliveries))
        return True

    async def positions(
        self, connection: Client, group: str, partitions: Sequence[str], timeout_s: float
    ) -> dict[str, Position]:
        found = {}
        for name in partitions:
            ask = f"$JS.API.CONSUMER.INFO.{name}.{group}"
            told = decode((await connection.request(ask, b"", timeout_s)).data, dict)
            floor, pending = told["ack_floor"]["stream_seq"], told["num_ack_pending"]
            found[name] = Position(floor, pending)
        return found

    def probe(self, me: Node) -> dict[str, Roles]:
        told = adapter.http_json(me.listen("http"), "/jsz?consumers=1")
        own = me.identity
        of_one = {} if "cluster {" in (me.files / "nats.conf").read_text() else {"leader": own}
        led = {"": Roles()} if told.get("meta_cluster", of_one).get("leader") == own else {}
        for account in told.get("account_details") or ():
            for stream in account.get("stream_detail", ()):
                cluster = stream.get("cluster", of_one)
                peers = cluster.get("replicas") or ()
                if cluster.get("leader") == own:
                    in_sync = [p["name"] for p in peers if p["current"] and not p.get("offline")]
                    every = (own, *(p["name"] for p in peers))
                    led[stream["name"]] = Roles(-1, (own, *in_sync), every)
                for consumer in stream.get("consumer_detail") or ():
                    if consumer.get("cluster", of_one).get("leader") == own:
                        led[f"group:{stream['name']}"] = Roles()
        return led

    def members(self, me: Node) -> Members:
        raft = adapter.http_json(me.listen("http"), "/raftz?group=_meta_")
        peers = [p["name"] for g in raft.values() for p in g["_meta_"]["peers"].values()]
        version = adapter.http_json(me.listen("http"), "/varz")["version"]
        return Members(frozenset((me.identity, *peers)), version)

    async def change(self, nodes: Nodes, want: Nodes, partition: str, copies: int) -> None:
        names = {node.identity for node in want}
        if not partition:
            for gone in self.members(nodes[0]).names - names:
                await self._ask(nodes, "SERVER.REMOVE", {"peer": gone}, "operator")
            return
        told = await self._ask(nodes, f"STREAM.INFO.{partition}", {})
        if told["config"]["num_replicas"] != copies:
            wanted = told["config"] | {"num_replicas": copies}
            await self._ask(nodes, f"STREAM.UPDATE.{partition}", wanted)
        cluster = told["cluster"]
        for gone in {cluster.get("leader"), *(p["name"] for p in cluster["replicas"])} - names:
            await self._ask(nodes, f"STREAM.PEER.REMOVE.{partition}", {"peer": gone})

    async def _ask(self, nodes: Nodes, call: str, body: Any, user: str = "") -> dict[str, Any]:
        async with await self.connect("setup", nodes, user) as connection:
            asked = await connection.request(f"$JS.API.{call}", json.dumps(body).encode(), 2)
        told: dict[str, Any] = decode(asked.data, dict)
        if wrong := told.get("error"):
            why = wrong["description"]
            final = wrong["code"] == 400 and not any(w in why for w in NOT_FINAL)
            raise (Refused if final else RuntimeError)(why)
        return told

    def dump(self, me: Node, partition: str) -> Iterator[tuple[int, bytes]]:
        blocks = (me.folder / "jetstream/$G/streams" / partition / "msgs").glob("*.blk")
        for block in sorted(blocks, key=lambda block: int(block.stem)):
            data, at = block.read_bytes(), 0
            while at < len(data):
                size, number, _, subject = struct.unpack_from("<IQQH", data, at)
                start, end = at + 22 + subject, at + size
                if not start <= end - 8 <= len(data) - 8:
                    raise ValueError(f"{block} is damaged at byte {at}")
                if not number >> 62:
                    yield number - 1, data[start : end - 8]
                at = end


def _delivery(told: Any) -> Delivery:
    """Return a message with what its reply subject says: stream, times, sequences of both."""
    *_, stream, _, times, at, number, _, _ = told.reply.split(".")[:9]
    return Delivery(stream, told.data, int(at) - 1, int(number), int(times), told.reply)
