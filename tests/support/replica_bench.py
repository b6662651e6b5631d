"""One replica, or a leader and its follower, stepped by hand; and a short notation for logs.

Logs are written as in the cases of the truncate-on-fetch protocol: `0e1 1e1 2e2` is three batches
of one record, in epochs 1, 1 and 2; `0-10e1` is one batch of eleven. A record's payload is its own
name, so two logs with the same name at an offset hold the same bytes there.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from typing import TypeVar

from node.core import batch as batches
from node.core import bugs, follower, isr_change, leader, partitions, protocol
from node.core.api import NodeConfig
from node.core.context import Context
from node.core.image import BrokerRecord, PartitionRecord
from node.core.log import Log
from node.core.messages import (
    AlterPartition,
    AlterPartitionResponse,
    AnyMessage,
    Error,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from node.core.replica import Replica
from node.formats.timings import Timings
from node.formats.wire import split_fetch_body
from tests.support.broker_world import MemoryStorage

PARTITION = "log-0"
BROKERS = ("n1", "n2", "n3", "n4")
M = TypeVar("M", bound=AnyMessage)
_TOKEN = re.compile(r"(\d+)(?:-(\d+))?e(\d+)")


def parse(text: str) -> list[tuple[int, int, int]]:
    """(first offset, offset after the last, epoch) of each batch of a log in our notation."""
    found = []
    for token in text.split():
        match = _TOKEN.fullmatch(token)
        assert match, token
        first, last, epoch = match.groups()
        found.append((int(first), int(last or first) + 1, int(epoch)))
    return found


def one_batch(first: int, end: int, epoch: int) -> bytes:
    """The stamped batch that `first..end` of `epoch` stands for."""
    # A record takes a byte at least.
    payload = name_of(first, end, epoch).encode().ljust(end - first)
    return batches.stamp(batches.build(end - first, payload), first, epoch)


def name_of(first: int, end: int, epoch: int) -> str:
    """A batch in our notation."""
    return f"{first}e{epoch}" if end == first + 1 else f"{first}-{end - 1}e{epoch}"


def fill(log: Log, text: str) -> None:
    """Append what `text` says."""
    log.append_as_follower([batches.view(one_batch(*one)) for one in parse(text)])


def show(log: Log) -> str:
    """A log in our notation, taken from its payloads and checked against its headers."""
    found, _ = log.read(log.start, max_bytes=1 << 30, below=log.leo)
    names = []
    for data in found:
        one = batches.view(data)
        assert one.payload.decode().rstrip() == name_of(one.base_offset, one.end, one.epoch)
        names.append(one.payload.decode().rstrip())
    return " ".join(names)


def bare_log(text: str = "") -> Log:
    """A log on a disk of its own."""
    log = Log(PARTITION, MemoryStorage(), durable=True)
    fill(log, text)
    return log


class Bench:
    """One node's replica of `log-0`, stepped by hand. Broker epochs: 101 for n1, 102 for n2..."""

    def __init__(
        self,
        node: str = "n1",
        log: str = "",
        *,
        switched: Iterable[str] = (),
        timings: Timings | None = None,
        retention_records: int = 0,
    ) -> None:
        config = NodeConfig(
            node=node,
            voters=("v1",),
            brokers=BROKERS,
            timings=timings or Timings(),
            retention_records=retention_records,
        )
        self.ctx = Context(config, MemoryStorage(), bugs.parse(switched), random.Random(0), 0)
        self.ctx.broker_epoch = broker_epoch(node)
        self.ctx.controller = "v1"
        for name in BROKERS:
            self.broker(name)
        fill(Log(PARTITION, self.ctx.storage, durable=True), log)
        self.replicas: dict[str, Replica] = {}

    @property
    def r(self) -> Replica:
        return self.replicas[PARTITION]

    def broker(self, name: str, *, epoch: int | None = None, fenced: bool = False) -> None:
        """What this node's image says of a broker."""
        self.ctx.image.apply(
            BrokerRecord(
                broker=name,
                broker_epoch=broker_epoch(name) if epoch is None else epoch,
                incarnation=1,
                fenced=fenced,
            )
        )

    def metadata(
        self,
        leader: str,
        epoch: int,
        isr: str = "n1 n2 n3",
        *,
        at: int = 1,
        min_isr: int = 2,
        replicas: str = "n1 n2 n3",
    ) -> None:
        """The applied metadata now says this; `at` is the partition epoch."""
        record = PartitionRecord(
            partition=PARTITION,
            replicas=tuple(replicas.split()),
            isr=tuple(isr.split()),
            leader=leader,
            leader_epoch=epoch,
            partition_epoch=at,
            min_isr=min_isr,
        )
        partitions.apply(self.ctx, self.replicas, {}, [record], protocol.KAFKA)

    def sleep(self, ms: float) -> None:
        """Time passes; the replica's timer fires where the node would fire it."""
        end_us = self.ctx.now_us + round(ms * 1000)
        while self.r.wake_us <= end_us:
            self.ctx.now_us = max(self.ctx.now_us, self.r.wake_us)
            part = leader if self.r.role == "leader" else follower
            self.r.wake_us = part.tick(self.ctx, self.r)
        self.ctx.now_us = end_us

    def sent(self) -> list[tuple[str, AnyMessage, bytes | None]]:
        """(to, message, body) since last asked."""
        messages, self.ctx.effects.messages = self.ctx.effects.messages, []
        return [(m.to, m.message, m.body) for m in messages]

    def events(self, name: str) -> list[dict[str, object]]:
        """Trace events of one kind so far."""
        return [e for e in self.ctx.effects.trace if e["event"] == name]

    # -- as a leader ----------------------------------------------------------------------------

    def fetch(
        self,
        replica: str,
        offset: int,
        last_epoch: int,
        *,
        epoch: int | None = None,
        from_process: int | None = None,
        wait_ms: int = 0,
    ) -> FetchResponse | None:
        """A follower fetches, everything below `offset` being in its log."""
        request = FetchRequest(
            partition=PARTITION,
            replica=replica,
            offset=offset,
            last_epoch=last_epoch,
            leader_epoch=self.r.leader_epoch if epoch is None else epoch,
            max_wait_ms=wait_ms,
            broker_epoch=broker_epoch(replica) if from_process is None else from_process,
        )
        leader.on_fetch(self.ctx, self.r, replica, request)
        return self.last(FetchResponse)

    def consume(self, offset: int, *, wait_ms: int = 0, corr: int = 0) -> None:
        """A consumer fetches; the answer is among `sent`."""
        request = FetchRequest(partition=PARTITION, offset=offset, max_wait_ms=wait_ms, corr=corr)
        leader.on_fetch(self.ctx, self.r, "c1", request)

    def produce(
        self,
        payload: str = "x",
        *,
        acks: int = -1,
        corr: int = 1,
        timeout_ms: int = 3000,
        body: bytes | None = None,
    ) -> ProduceResponse | None:
        """A client appends one record (or `body` as it is)."""
        request = ProduceRequest(partition=PARTITION, acks=acks, corr=corr, timeout_ms=timeout_ms)
        data = batches.build(1, payload.encode()) if body is None else body
        leader.on_produce(self.ctx, self.r, "c1", request, data)
        return self.last(ProduceResponse)

    def controller_says(
        self,
        error: Error = Error.NONE,
        *,
        to: AlterPartition,
        isr: str = "",
        at: int,
        epoch: int | None = None,
    ) -> None:
        """The controller answers proposal `to`; `at` is the partition epoch it names."""
        isr_change.on_response(
            self.ctx,
            self.r,
            AlterPartitionResponse(
                partition=PARTITION,
                error=error,
                request_epoch=to.partition_epoch,
                isr=tuple(isr.split()),
                leader=self.ctx.node,
                partition_epoch=at,
                leader_epoch=self.r.leader_epoch if epoch is None else epoch,
            ),
        )

    def proposals(self) -> list[AlterPartition]:
        """Proposals sent since last asked; all other mail is dropped."""
        return [m for _, m, _ in self.sent() if isinstance(m, AlterPartition)]

    def last(self, kind: type[M]) -> M | None:
        """The last message of a kind that waits to be sent; None if there is none."""
        found = [m.message for m in self.ctx.effects.messages if isinstance(m.message, kind)]
        return found[-1] if found else None


def broker_epoch(name: str) -> int:
    """Epoch of a broker's first process on the bench."""
    return 100 + int(name[1:])


def records(body: bytes | None) -> str:
    """The batches of a fetch response in our notation."""
    _, _, data = split_fetch_body(body)
    return " ".join(one.payload.decode().rstrip() for one in batches.split(data))


def high_watermark(body: bytes | None) -> int:
    """The high watermark that a fetch response tells."""
    return split_fetch_body(body)[1]


class Pair:
    """Leader n1 in `epoch` and follower n2, each with its log; `lines` has one line a fetch."""

    def __init__(self, leads: str, follows: str, epoch: int) -> None:
        self.leader = Bench("n1", leads)
        self.leader.metadata("n1", epoch, "n1 n3")
        self.follower = Bench("n2", follows)
        self.follower.metadata("n1", epoch, "n1 n3")
        self.lines: list[str] = []

    def round(self) -> bool:
        """The follower's fetch and its response; False when the leader holds the fetch."""
        request = self.take_fetch()
        answer = self.ask(request)
        if answer is None:
            return False
        before = self.follower.r.leo
        taken = follower.on_response(self.follower.ctx, self.follower.r, "n1", *answer)
        assert taken
        self.lines.append(self._line(request, *answer, before))
        return True

    def take_fetch(self) -> FetchRequest:
        ((to, request, _),) = self.follower.sent()
        assert to == "n1"
        assert isinstance(request, FetchRequest)
        assert request.broker_epoch == broker_epoch("n2")
        return request

    def ask(self, request: FetchRequest) -> tuple[FetchResponse, bytes | None] | None:
        leader.on_fetch(self.leader.ctx, self.leader.r, "n2", request)
        for _, message, body in self.leader.sent():
            if isinstance(message, FetchResponse):
                return message, body
        return None

    def talk(self, most_rounds: int = 10) -> str:
        """Until the follower has everything."""
        for _ in range(most_rounds):
            if not self.round():
                assert self.follower.r.leo == self.leader.r.leo
                return "\n".join(self.lines)
        raise AssertionError("no end of it:\n" + "\n".join(self.lines))

    def _line(
        self, request: FetchRequest, response: FetchResponse, body: bytes | None, before: int
    ) -> str:
        asked = f"({request.offset}, {request.last_epoch})"
        if response.diverging is None:
            return f"{asked} -> {records(body)}"
        leo = self.follower.r.leo
        effect = f"cut to {leo}" if leo < before else "nothing to cut"
        return f"{asked} -> diverging {response.diverging}, {effect}"
