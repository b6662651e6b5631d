"""The contract between the core and its two worlds (docs/architecture.md#the-contract-of-a-broker).

    broker = Broker(config, storage, rng)
    effects = broker.step(now_us, events)

A world drains its inbox, steps every event, commits storage once, and only then sends: a message
marked AFTER_COMMIT leaves after the commit of what its step wrote, and one marked AT_ONCE may leave
before (`node.core.before_commit`). Time is integer microseconds
and only ever an argument; `effects.deadline_us` says when to step again if nothing arrives.
A crash drops the object; a restart builds a new one from what the disk gives back.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from node.core.messages import AnyMessage
from node.formats.timings import Timings
from node.formats.trace import TraceEvent
from node.formats.wire_bounds import DEFAULT_FETCH_BYTES


class Mark(Enum):
    """The moment at which a message may leave, relative to the commit of its turn."""

    AFTER_COMMIT = "after_commit"
    AT_ONCE = "at_once"
    """While the disk syncs, if what the turn has traced holds without it (`before_commit`)."""
    BEFORE_COMMIT = "before_commit"
    """Before it in any case. Only known bugs do this."""


class Deliver(msgspec.Struct, frozen=True):
    """A message arrived. With `more` another one of the same turn is stepped next, and what can be
    done once for all of them waits for the last: then followers get all new records in one
    response. The deadline of the effects is that of the last."""

    source: str
    message: AnyMessage
    body: bytes | None = None
    more: bool = False


class Tick(msgspec.Struct, frozen=True):
    """Only time has passed."""


class Shutdown(msgspec.Struct, frozen=True):
    """A request to stop: hand over leadership, flush, then set `effects.stopped`."""


Event = Deliver | Tick | Shutdown


class Outgoing(msgspec.Struct, frozen=True):
    """A message to send. Sending is best effort: it may be lost, late or doubled."""

    to: str
    message: AnyMessage
    body: bytes | None = None
    mark: Mark = Mark.AFTER_COMMIT


class Effects(msgspec.Struct):
    """The requests of one step to its world, in order."""

    messages: list[Outgoing] = []
    trace: list[TraceEvent] = []
    deadline_us: int = 0
    flush: bool = False
    stopped: bool = False


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One node: a broker (carries data partitions), a voter of the metadata partition, or both.

    `incarnation` numbers this node's processes from 1. `flush_interval_ms` 0 means flush=sync.
    A leader keeps `retention_records` committed records and may delete older ones (0: keeps all).
    As a follower it asks for at most `fetch_max_bytes` of a partition at once.
    """

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
    timings: Timings = Timings()
