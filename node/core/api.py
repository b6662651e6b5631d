"""The contract between the core and the two worlds, real and simulated, that run it
(docs/architecture.md#the-contract-of-a-broker).

    broker = Broker(config, storage, jitter, now_us)
    effects = broker.step(now_us, event)

A turn: a world drains its inbox, steps every event, commits storage once, and only then sends. A
message marked AFTER_COMMIT leaves after the commit of what its step wrote, one marked IF_COVERED
may leave before (`node.core.turn`). Time is integer microseconds and only ever an argument;
`effects.deadline_us` says when to step again if nothing arrives. A crash drops the object; a
restart builds a new one from what is on the disk."""

from __future__ import annotations

from enum import Enum

import msgspec

from node.formats.messages import AnyMessage
from node.formats.timings import Timings
from node.formats.trace import TraceEvent
from node.formats.wire_bounds import DEFAULT_FETCH_BYTES


class Mark(Enum):
    """The moment at which a message may leave, relative to the commit of its turn."""

    AFTER_COMMIT = "after_commit"
    IF_COVERED = "if_covered"
    """While the disk syncs, if earlier commits cover what the turn has traced; else after it."""
    BEFORE_COMMIT = "before_commit"
    """Before it in any case. Only known bugs do this."""


class Deliver(msgspec.Struct, frozen=True):
    """The event that a message of `source` has arrived. `more`: another message of the same turn is
    stepped next. Work that can be done once for all messages of a turn waits for the last one, for
    example an answer to the followers with all new records; only its effects have a deadline."""

    source: str
    message: AnyMessage
    body: bytes | None = None
    more: bool = False


class Tick(msgspec.Struct, frozen=True):
    """The event that only time has passed."""


class Shutdown(msgspec.Struct, frozen=True):
    """The event that this node shall stop: it hands over its leaderships, flushes, and then sets
    `effects.stopped`."""


Event = Deliver | Tick | Shutdown


class Outgoing(msgspec.Struct, frozen=True):
    """A message to send to node or client `to`. Sending is best effort: the message may be lost,
    late or doubled."""

    to: str
    message: AnyMessage
    body: bytes | None = None
    mark: Mark = Mark.AFTER_COMMIT


class Effects(msgspec.Struct):
    """The actions that one step asks of its world: messages to send and trace events to write, both
    in order; when to step again (`deadline_us`); whether to flush deferred writes; and whether the
    node has `stopped`."""

    messages: list[Outgoing] = []
    trace: list[TraceEvent] = []
    deadline_us: int = 0
    flush: bool = False
    stopped: bool = False


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one node: a broker (has data partitions), a voter of the metadata
    partition, or both.

    `incarnation` numbers this node's processes from 1. `flush_interval_ms` is the time between
    flushes of deferred writes; 0: each turn's writes are synced. A leader keeps `retention_records`
    committed records and may delete older ones (0: keeps all). A follower's fetch asks for at most
    `fetch_max_bytes` of a partition. Without `record_epochs` a protocol that knows no leader epochs
    writes records without them."""

    node: str
    voters: tuple[str, ...]
    brokers: tuple[str, ...]
    incarnation: int = 1
    protocol: str = "kafka"
    bugs: tuple[str, ...] = ()
    flush_interval_ms: int = 0
    retention_records: int = 0
    fetch_max_bytes: int = DEFAULT_FETCH_BYTES
    unclean_election: bool = False
    record_epochs: bool = True
    timings: Timings = Timings()
