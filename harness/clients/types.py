"""Data types of the clients: messages in and out, settings, status."""

from __future__ import annotations

import msgspec

from harness.clients.metadata_cache import NEVER_US
from harness.formats.history import Op
from node.core.messages import AnyMessage


class Answer(msgspec.Struct, frozen=True):
    """A message that arrived for a client."""

    source: str
    message: AnyMessage
    body: bytes | None = None


class ToSend(msgspec.Struct, frozen=True):
    """A message that a client wants to go to the broker `to`."""

    to: str
    message: AnyMessage
    body: bytes | None = None


class SessionEffects(msgspec.Struct):
    """The requests of one step. The lines must be on record before a message leaves."""

    messages: list[ToSend] = []
    ops: list[Op] = []
    deadline_us: int = NEVER_US


class SendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The way a producer sends: records a batch, bytes a record, acks (0, 1, -1), time for a send.
    An `idempotent` one sends again what may have been appended, and brokers know it again."""

    batch: int = 5
    record_bytes: int = 64
    acks: int = -1
    timeout_us: int = 3_000_000
    idempotent: bool = False


class PollSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The polls of a consumer: wait at the broker, deadline, least pause between two."""

    wait_ms: int = 100
    timeout_us: int = 1_000_000
    pause_us: int = 10_000
    max_bytes: int = 1 << 20


class Status(msgspec.Struct, kw_only=True):
    """A moment of the clients' work. Counts are operations, unless they say records.

    `progress` maps each partition to when a send invoked after the heal was first acknowledged.
    `final` is "" before the final reads, then "running", then "done"; `missing` maps partitions
    to the offset they were read to, where that is not their end. `operated` counts the operations
    of the schedule that were handed to their clients. `rejected` counts what came from
    outside of the run. `problem` is a sentence.
    """

    t_us: int = 0
    invoked: int = 0
    acked: int = 0
    failed: int = 0
    unknown: int = 0
    polled: int = 0
    read_records: int = 0
    operated: int = 0
    writers_idle: bool = True
    last_op_us: int = 0
    progress: dict[str, int] = {}
    final: str = ""
    missing: dict[str, int] = {}
    rejected: int = 0
    problem: str = ""
