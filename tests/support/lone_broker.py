"""One core by hand: a node whose messages wait for a test, or a broker whose metadata, too, is what
the test says."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from harness.sim.disk import SimDisk
from node.core import partitions
from node.core.api import Deliver, Effects, Event, NodeConfig, Outgoing, Tick
from node.core.broker import Broker
from node.core.context import Context
from node.core.image import BrokerRecord, PartitionRecord
from node.core.log import Log
from node.core.replica import NEVER, Replica
from node.formats.messages import AnyMessage
from node.formats.timings import Timings
from node.formats.trace import METADATA_PARTITION, TraceEvent
from node.formats.wire_bounds import MAX_WAIT_MS
from tests.support.log_notation import PARTITION, fill

BROKERS = ("n1", "n2", "n3", "n4")


def broker_epoch(name: str) -> int:
    """Return the epoch of a broker's process: 101 for n1, 102 for n2.."""
    return 100 + int(name[1:])


def placed(
    leader: str = "",
    epoch: int = -1,
    isr: str = "n1,n2,n3",
    *,
    at: int = 1,
    min_isr: int = 2,
    replicas: str = "n1,n2,n3",
    partition: str = PARTITION,
) -> PartitionRecord:
    """Return the metadata of a partition; `at` is the partition epoch."""
    return PartitionRecord(
        partition=partition,
        replicas=tuple(replicas.split(",")),
        isr=tuple(isr.split(",")),
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=at,
        min_isr=min_isr,
    )


class LoneCore:
    """The core of one node, its disk and its clock."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.storage = SimDisk()
        self.core: Broker
        self._processes = 0

    @property
    def ctx(self) -> Context:
        return self.core.ctx

    @property
    def now_us(self) -> int:
        return self.ctx.now_us

    def boot(self, now_us: int = 0) -> None:
        """Start a process on the disk."""
        self._processes += 1
        config = msgspec.structs.replace(self.config, incarnation=self._processes)
        self.core = Broker(config, self.storage, self.jitter(self._processes), now_us)

    def jitter(self, process: int) -> random.Random:
        return random.Random(process - 1)

    def step(self, event: Event, after_ms: float = 0) -> list[Outgoing]:
        """Step an event when so much time has passed; return the messages."""
        return self.core.step(self.now_us + round(after_ms * 1000), event).messages


class _NoMetadata:
    """The metadata quorum of a lone broker: v1 leads it, and says nothing."""

    def __init__(self, r: Replica) -> None:
        self.r = r
        self.r.leader = "v1"

    def start(self, ctx: Context) -> None:
        pass

    def tick(self, ctx: Context) -> None:
        pass

    def next_us(self) -> int:
        return NEVER


class LoneBroker(LoneCore):
    """A registered broker whose disk has the log of one partition, written as in `log_notation`. It
    checkpoints no high watermark by itself."""

    partition = PARTITION

    def __init__(
        self,
        name: str = "n1",
        log: str = "",
        hw: int = 0,
        *,
        brokers: tuple[str, ...] = BROKERS,
        protocol: str = "kafka",
        bugs: tuple[str, ...] = (),
        lag_ms: int = 1000,
        retention_records: int = 0,
    ) -> None:
        timings = Timings(lag_ms=lag_ms, hw_checkpoint_ms=MAX_WAIT_MS)
        config = NodeConfig(
            node=name,
            voters=("v1",),
            brokers=brokers,
            protocol=protocol,
            bugs=bugs,
            retention_records=retention_records,
            timings=timings,
        )
        super().__init__(config)
        fill(Log(self.partition, self.storage, durable=True), log)
        self.storage.put(f"hw/{self.partition}", hw.to_bytes(8, "big"), durable=True)
        self.boot()

    def boot(self, now_us: int = 0) -> None:
        """Start a process on the disk, which has heard of no partition."""
        super().boot(now_us)
        self.core.membership = None
        metadata = _NoMetadata(self.core.quorum.r)
        self.core.quorum = self.core.quorums[METADATA_PARTITION] = metadata
        self.ctx.broker_epoch = broker_epoch(self.config.node)
        self.ctx.serving = True
        for name in self.config.brokers:
            self.knows(name)
        self.trace: list[TraceEvent] = []
        self._sent: list[Outgoing] = []
        self.step(Tick())
        self._gather()
        self.trace.clear()

    @property
    def r(self) -> Replica:
        return self.core.replicas[self.partition]

    def knows(self, name: str, *, epoch: int | None = None, fenced: bool = False) -> None:
        """Set the record of a broker in this node's image."""
        at = broker_epoch(name) if epoch is None else epoch
        record = BrokerRecord(broker=name, broker_epoch=at, incarnation=1, fenced=fenced)
        self.ctx.image.apply(record)

    def hears(self, record: PartitionRecord) -> None:
        """Apply this metadata."""
        core = self.core
        partitions.apply(self.ctx, core.replicas, core.quorums, [record], core.protocol)

    def takes(self, source: str, message: AnyMessage, body: bytes | None = None) -> None:
        self.step(Deliver(source, message, body))

    def jitter(self, process: int) -> random.Random:
        return random.Random(f"{self.config.node}/{process}")

    def step(self, event: Event, after_ms: float = 0) -> list[Outgoing]:
        """Step an event when so much time has passed; return the messages."""
        self._gather()
        self.core.arm(self.partition)  # a test may have changed what it waits for
        return super().step(event, after_ms)

    def sleep(self, ms: float) -> None:
        """Let time pass; the node ticks whenever it wants to."""
        self.core.arm(self.partition)
        end_us = self.ctx.now_us + round(ms * 1000)
        while (due_us := self.core._deadline()) <= end_us:
            self.ctx.now_us = max(self.ctx.now_us, due_us)
            self.step(Tick())
        self.ctx.now_us = end_us

    def sent(self) -> list[tuple[str, AnyMessage, bytes | None]]:
        """Return (to, message, body) of the messages since it was last asked."""
        self._gather()
        sent, self._sent = self._sent, []
        return [(out.to, out.message, out.body) for out in sent]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the trace events of one kind of this process."""
        self._gather()
        return [event for event in self.trace if event["event"] == name]

    def _gather(self) -> None:
        effects, self.ctx.effects = self.ctx.effects, Effects()
        self._sent += effects.messages
        self.trace += effects.trace
