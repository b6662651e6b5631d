"""The state of one replica: a partition's log and role on one node.

State only: `leader.py` and `follower.py` change it, `quorum.py` and `partitions.py` decide the
role. Invariants: hw <= leo; a leader has `leso` (its log end when its epoch began) set and no fetch
state; a follower the reverse; committed `isr` is a subset of `maximal_isr`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal

from node.core.bugs import Bugs
from node.core.context import Context
from node.core.image import NO_LEADER
from node.core.log import ORIGIN, START_KEY, Damage, Log, encoded
from node.core.producers import Producers
from node.core.protocol import Protocol
from node.formats.errors import DamagedStore
from node.formats.messages import AlterPartition, FetchRequest
from node.formats.trace import APPEND, DAMAGED, HW, METADATA_PARTITION, ROLE

NEVER: Final = 1 << 62
"""A deadline that never comes, in microseconds."""
LONG_AGO: Final = -NEVER
MOST_FAILURES: Final = 4
"""So many failures of a fetch are told apart: the pause before the next grows no further."""

Role = Literal["none", "follower", "candidate", "leader"]


@dataclass(slots=True)
class Peer:
    """The knowledge of a leader about one follower, from its fetches in this leader epoch. Times in
    microseconds."""

    leo: int
    broker_epoch: int
    last_fetch_us: int
    last_caught_up_us: int
    leader_leo_at_fetch: int
    hw_sent: int = -1


@dataclass(slots=True)
class Push:
    """The next offset that a leader sends to a follower, and the high watermark that it sent."""

    next: int
    hw: int = -1


@dataclass(slots=True)
class PendingAlter:
    """The ISR proposal that a leader has in flight. `expected` is the partition epoch that it leads
    to if it is accepted."""

    isr: tuple[str, ...]
    request: AlterPartition
    expected: int
    retry_at_us: int


@dataclass(slots=True)
class PendingAck:
    """A produce request with acks=all, appended and waiting for the HW to pass `end`. A replica
    keeps them in the order of their ends."""

    client: str
    corr: int
    base_offset: int
    end: int
    deadline_us: int


@dataclass(slots=True)
class PendingFetch:
    """A fetch that waits for data, a new high watermark, or its deadline."""

    source: str
    request: FetchRequest
    deadline_us: int


@dataclass(slots=True)
class Fetching:
    """A follower's one outstanding fetch: what was sent, and when to give up on it or try again.

    While `asking` names an epoch, the follower asks where that epoch ends instead of fetching.
    `heard_us` is the time of the leader's last valid answer; `notified`: a notification of new data
    has come since the fetch was sent. `failures` counts up to MOST_FAILURES; `cut`: this leader has
    given a diverging answer."""

    outstanding: bool = False
    asking: int | None = None
    sent_offset: int = -1
    deadline_us: int = LONG_AGO
    failures: int = 0
    heard_us: int = LONG_AGO
    notified: bool = False
    cut: bool = False

    def note_failure(self) -> None:
        """Count a failed attempt, up to MOST_FAILURES."""
        self.failures = min(MOST_FAILURES, self.failures + 1)


@dataclass(slots=True)
class Replica:
    """One partition on one node. Times in microseconds, offsets 0-based, LEO and HW exclusive.
    `bugs` are the bugs that are on; the metadata partition never has any (see `load`). A leader
    does not count the fetches of an `observer`."""

    partition: str
    protocol: Protocol
    log: Log
    hw: int = 0
    role: Role = "none"
    leader: str = NO_LEADER
    leader_epoch: int = -1
    partition_epoch: int = -1
    replicas: tuple[str, ...] = ()
    min_isr: int = 1
    isr: tuple[str, ...] = ()
    # as leader
    leso: int = -1
    led_since_us: int = LONG_AGO
    maximal_isr: tuple[str, ...] = ()
    pending_alter: PendingAlter | None = None
    peers: dict[str, Peer] = field(default_factory=dict)
    pushes: dict[str, Push] = field(default_factory=dict)
    acks: deque[PendingAck] = field(default_factory=deque)
    follower_waits: dict[str, PendingFetch] = field(default_factory=dict)
    consumer_waits: dict[tuple[str, int], PendingFetch] = field(default_factory=dict)
    data_waiters: dict[str, str] = field(default_factory=dict)
    next_lag_check_us: int = NEVER
    # as follower
    fetching: Fetching = field(default_factory=Fetching)
    # both
    observer: bool = False
    wake_us: int = NEVER
    hw_saved: int = 0
    producers: Producers = field(default_factory=Producers)
    bugs: Bugs = field(default_factory=Bugs)

    @property
    def leo(self) -> int:
        """The log end offset: the next offset to be written."""
        return self.log.leo

    def set_hw(self, ctx: Context, hw: int) -> None:
        """Set the high watermark (a follower's may fall) and trace it. A value below the checkpoint
        replaces it at once: a restart would count the next records as committed."""
        log = self.log
        assert log.start <= hw <= log.leo, (self.partition, log.start, hw, log.leo)
        if hw == self.hw:
            return
        self.hw = hw
        ctx.hw_moved = True
        if hw < self.hw_saved:
            self.save_hw(ctx)
        batch_end, chain = log.hash_at(hw)
        ctx.trace(
            HW,
            self.partition,
            hw=hw,
            leo=log.leo,
            leader_epoch=self.leader_epoch,
            role=self.role,
            batch_end=batch_end,
            hash=chain,
        )

    def trace_append(self, ctx: Context, base_offset: int, epoch: int, role: str) -> None:
        """Trace that the log got the records from `base_offset` on, the last one of this epoch."""
        ctx.trace(
            APPEND,
            self.partition,
            base_offset=base_offset,
            leo=self.log.leo,
            leader_epoch=epoch,
            hash=self.log.chain.hex(),
            role=role,
        )

    def trace_role(self, ctx: Context) -> None:
        """Trace this replica's role, leader and epochs."""
        ctx.trace(
            ROLE,
            self.partition,
            role=self.role,
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            leo=self.leo,
            hw=self.hw,
        )

    def save_hw(self, ctx: Context) -> None:
        """Checkpoint the high watermark if it moved, as durably as the log is written (documents
        001 and 003: to stable storage)."""
        if self.hw != self.hw_saved:
            self.hw_saved = self.hw
            value = self.hw.to_bytes(8, "big")
            ctx.storage.put(f"hw/{self.partition}", value, durable=self.log.durable)


def forget_values(ctx: Context, partition: str, *, durable: bool) -> None:
    """Reset the values stored beside a log that is deleted: HW checkpoint and log start."""
    try:
        has_start = bool(ctx.storage.get(START_KEY + partition))
    except DamagedStore:
        has_start = True
    if has_start:
        ctx.storage.put(START_KEY + partition, encoded(ORIGIN), durable=durable)
    ctx.storage.put(f"hw/{partition}", (0).to_bytes(8, "big"), durable=durable)


def load(ctx: Context, partition: str, protocol: Protocol, *, durable: bool) -> Replica:
    """Return a replica loaded from disk, without a role. Bugs apply to data partitions only. In the
    metadata partition they would break the controller, and hide the harm that each bug does to
    data."""
    bugs = Bugs() if partition == METADATA_PARTITION else ctx.bugs
    log = Log(
        partition,
        ctx.storage,
        durable=durable,
        holes=bugs.cut_inside_batch,
        checked=not bugs.serve_unchecked,
    )
    if log.damage is not None:
        trace_damage(ctx, partition, log.damage)
    # Only a hint: if it is missing or damaged, 0 will do.
    saved = int.from_bytes((ctx.stored(f"hw/{partition}", partition) or b"")[:8], "big")
    hw = max(log.start, min(saved, log.leo))
    r = Replica(partition=partition, protocol=protocol, log=log, bugs=bugs, hw=hw, hw_saved=saved)
    if not bugs.forget_producers:
        r.producers.rebuild(log.produced())
    return r


def trace_damage(ctx: Context, partition: str, damage: Damage) -> None:
    ctx.trace(DAMAGED, partition, offset=damage.offset, key="", what=damage.what)
