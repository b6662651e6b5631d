"""Data types of the clients: messages in and out, settings, status."""

from __future__ import annotations

import msgspec

from harness.formats.history import Op
from node.core.api import Outgoing

NEVER_US = 1 << 62


class SessionEffects(msgspec.Struct):
    """The results of one step of a session: messages to send, history lines, the next deadline. The
    lines must be written to the history before a message is sent."""

    messages: list[Outgoing] = []
    ops: list[Op] = []
    deadline_us: int = NEVER_US


class PollSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The way a consumer polls: longest wait at the broker, time-out, shortest pause between two
    polls, most bytes of an answer."""

    wait_ms: int = 100
    timeout_us: int = 1_000_000
    pause_us: int = 10_000
    max_bytes: int = 1 << 20


class Status(msgspec.Struct, kw_only=True):
    """The progress of all clients at one moment. Counts are operations, unless they say records.

    `progress` maps each partition to the time of the first acknowledgement of a send invoked after
    the heal. `final` is "" before the final reads, then "running", then "done"; `missing` maps each
    partition that was not read to its end to the offset reached. `operated` counts the operations
    of the schedule that were given to their clients. `problem` is a sentence, "" if there is
    none."""

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
    problem: str = ""
