"""The contents of each replica's log, followed through the trace of one partition. Pure.

A batch is identified by its end and by the prefix hash there, which covers everything below. Two
replicas with the same hash at the same offset have the same log up to there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from node.formats import trace
from node.formats.event_text import Event


class LogBatch(NamedTuple):
    """A batch in the log of a replica; equal on two replicas if their logs are, up to its end."""

    base: int
    end: int
    hash: str
    epoch: int


@dataclass
class ReplicaLog:
    """The log of one replica, rebuilt from its trace."""

    start: int = 0
    start_hash: str = ""
    batches: list[LogBatch] = field(default_factory=list)

    @property
    def leo(self) -> int:
        """The log end offset of the replica."""
        return self.batches[-1].end if self.batches else self.start

    @property
    def last_hash(self) -> str:
        """The prefix hash at the end of the log, "" if it is not known."""
        return self.batches[-1].hash if self.batches else self.start_hash

    def at(self, offset: int) -> LogBatch | None:
        """Return the batch that has the record at `offset`, None if the log has none there."""
        at = bisect_right(self.batches, offset, key=lambda b: b.base) - 1
        if at < 0 or not self.batches[at].base <= offset < self.batches[at].end:
            return None
        return self.batches[at]

    def ends_at(self, end: int, chain: str) -> bool:
        """Return whether a batch of the log ends at `end` with the prefix hash `chain`; also if the
        log starts after `end`, where nothing is known."""
        if end < self.start:
            return True
        if end == self.start:
            return chain == self.start_hash or not self.start_hash
        batch = self.at(end - 1)
        return batch is not None and (batch.end, batch.hash) == (end, chain)

    def cut(self, leo: int) -> list[LogBatch]:
        """Truncate the log to `leo`; return the batches that were removed."""
        kept = [b for b in self.batches if b.end <= leo]
        removed = self.batches[len(kept) :]
        self.batches = kept
        return removed


@dataclass
class ReplicaLogs:
    """The logs of all replicas of a partition, rebuilt event by event."""

    logs: dict[str, ReplicaLog] = field(default_factory=lambda: defaultdict(ReplicaLog))
    _made: dict[tuple[int, str], tuple[LogBatch, str]] = field(default_factory=dict)
    """By end and hash: the batch as first appended, and the prefix hash where it begins."""

    def append(self, e: Event) -> bool:
        """Take an append; return whether a leader made it, or it copies batches of other logs."""
        log = self.logs[e.node]
        if e.base_offset < log.leo:
            log.cut(e.base_offset)
        if not log.batches and log.start != e.base_offset:
            log.start, log.start_hash = e.base_offset, ""
        end = (e.leo, e.hash)
        if e.role == "leader":
            made = LogBatch(e.base_offset, e.leo, e.hash, e.leader_epoch)
            self._made[end] = (made, log.last_hash)
            log.batches.append(made)
            return True
        found: list[LogBatch] = []
        at, before = end, ""
        while at in self._made and at[0] > e.base_offset:
            batch, before = self._made[at]
            found.append(batch)
            at = (batch.base, before)
        if not found:
            made = LogBatch(e.base_offset, e.leo, e.hash, e.leader_epoch)
            self._made[end] = (made, log.last_hash)
            log.batches.append(made)
            return False
        log.batches += reversed(found)
        return found[-1].base == e.base_offset

    def observe(self, e: Event) -> list[LogBatch]:
        """Take a truncation, deletion or role change; return the batches that it truncated."""
        log = self.logs[e.node]
        if e.event == trace.TRUNCATED:
            return log.cut(e.leo)
        if e.event == trace.ROLE and e.leo < log.leo:
            return log.cut(e.leo)
        if e.event == trace.DELETED:
            log.start, log.start_hash = e.start, e.hash
            log.batches = [b for b in log.batches if b.end > e.start]
        return []
