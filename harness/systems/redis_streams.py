"""Redis Streams with consumer groups: a partition is a stream whose entries have the ids 0-1, 0-2
and so on; offset = number - 1. With `wait=K` a send or an ack is confirmed when K replicas have
it."""

from collections.abc import Iterator, Sequence
from typing import Any

from redis import Redis as SyncRedis
from redis import RedisError, ResponseError
from redis import asyncio as aio

from harness.systems import redis
from harness.systems.adapter import (
    Delivery,
    GroupPromise,
    LogSlice,
    Node,
    Polled,
    Position,
    Record,
    Refused,
)
from harness.systems.external.members import GROUP
from harness.systems.external.redis_aof import commands

ACK_WAIT_MS = 2000
SAFE = 2
PAYLOAD = b"payload"
APPEND = """local id = '0-' .. redis.call('XLEN', KEYS[1]) + 1
return redis.call('XADD', KEYS[1], id, ARGV[1], ARGV[2])"""
"""Ids that a server makes are times: they would leave holes between offsets."""


class RedisStreams(redis.Redis):
    summary = "Redis Streams with consumer groups, and Sentinel"

    @property
    def groups(self) -> GroupPromise:  # type: ignore[override]
        # XACK is answered before replicas have it: only WAIT for all of them keeps it.
        durable = int(self.setting["wait"]) >= SAFE
        return GroupPromise(durable=durable, ack_wait_ms=ACK_WAIT_MS)

    def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        super().create(nodes, partition, copies)
        if not self.group_members:
            return
        sentinel: Any = SyncRedis(nodes[0].host, nodes[0].dialed["sentinel"], **redis.ONCE)
        known = sentinel.sentinel_master("all")
        primary: Any = SyncRedis(known["ip"], known["port"], **redis.ONCE)
        try:
            primary.xgroup_create(partition, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def send(self, connection: list[aio.Redis], record: Record) -> int:
        entry: Any = await connection[0].eval(APPEND, 1, record.partition, PAYLOAD, record.payload)
        await self.waited(connection[0], record.timeout_s)
        return _offset(entry)

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
        wait_ms = 1 if found else max(1, int(timeout_s * 1000))
        fresh = dict.fromkeys(cursors, ">")
        told = await primary.xreadgroup(GROUP, member, fresh, count=limit, block=wait_ms)
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

    def dump(self, me: Node, partition: str) -> Iterator[tuple[int, bytes]]:
        for words in commands(me.folder):
            if words[:2] == [b"XADD", partition.encode()]:
                at = words.index(PAYLOAD)
                yield _offset(words[at - 1]), words[at + 1]


def _offset(entry: bytes) -> int:
    return int(entry.partition(b"-")[2]) - 1


def _delivery(partition: str, entry: bytes, fields: dict[bytes, bytes]) -> Delivery:
    return Delivery(partition, fields[PAYLOAD], _offset(entry), token=entry)
