"""The leader-epoch cache: which offset each leader epoch started at (KIP-101).

The module knows only epochs and offsets. A leader enters its own epoch at its log end when it is
elected, before any record (KAFKA-7415). So a leader's cache is never empty, and its last entry is
the current epoch.

Invariant: entries[i].epoch < entries[i+1].epoch and entries[i].start < entries[i+1].start."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple


class EpochEnd(NamedTuple):
    """The answer to "where does this epoch end?": the largest epoch in the log at or below the one
    asked for, and the offset at which it ends (exclusive)."""

    epoch: int
    end: int


class EpochCache:
    """The start offset of each leader epoch in one log."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def entries(self) -> list[tuple[int, int]]:
        """Return (epoch, start offset) pairs in order."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        """The last epoch entered, -1 if there is none."""
        return self._epochs[-1] if self._epochs else -1

    def note(self, epoch: int, start: int) -> bool:
        """Enter `epoch`, whose first record will be at `start`. Return whether an entry changed.
        Entries that start at or above `start` have no record (their leader wrote nothing) and are
        dropped. A record without an epoch (-1) drops all: an end that the cache names may lie
        before records of unknown epochs, so the log is cut by high watermark, as in Kafka."""
        if epoch < 0:
            return self.truncate(0)
        changed = self.truncate(start)
        if self._epochs and epoch <= self._epochs[-1]:
            assert epoch == self._epochs[-1], (epoch, start, self.entries())
            return changed
        self._epochs.append(epoch)
        self._starts.append(start)
        return True

    def truncate(self, end: int) -> bool:
        """Drop entries that start at or above `end`, even if no record is cut (KAFKA-10706). Return
        whether there were any."""
        before = len(self._starts)
        while self._starts and self._starts[-1] >= end:
            self._starts.pop()
            self._epochs.pop()
        return len(self._starts) != before

    def begin_at(self, start: int, epoch: int) -> None:
        """Drop the entries of deleted records, those below `start`; the last of them had `epoch`,
        which is kept with `start` - 1 (-1: none is). So lookups of older epochs end below the
        start, where no fetch can go."""
        below = bisect_left(self._starts, start)
        self._epochs[:below] = [epoch] if epoch >= 0 else []
        self._starts[:below] = [start - 1] if epoch >= 0 else []

    def end_of(self, epoch: int, leo: int) -> EpochEnd:
        """Return the end of `epoch` in this log, whose log end is `leo`, by the rules of
        truncate-on-fetch. An epoch before the first entry is answered with (itself, start of the
        first entry): this log has nothing of it or of an earlier one. See docs/protocols.md."""
        if not self._epochs or epoch == self._epochs[-1]:
            return EpochEnd(epoch, leo)
        above = bisect_right(self._epochs, epoch)
        if above == 0:
            return EpochEnd(epoch, self._starts[0])
        end = self._starts[above] if above < len(self._starts) else leo
        return EpochEnd(self._epochs[above - 1], end)


def diverges(ours: EpochEnd, *, last_epoch: int, fetch_offset: int) -> bool:
    """Return whether a follower's log, which ends at `fetch_offset` with a record of `last_epoch`,
    differs from the leader's; `ours` is the leader's lookup of `last_epoch`. Both tests are needed:
    in docs/protocols.md case G differs by epoch only, case C by offset only."""
    return ours.epoch < last_epoch or ours.end < fetch_offset


def truncation_target(cache: EpochCache, leo: int, diverging: EpochEnd) -> int:
    """Return the offset to which a follower cuts its log, given the leader's answer `diverging`.
    The end of that epoch in the follower's own log (`cache`, `leo`) matters too: in cases F and G
    of docs/protocols.md the leader's offset alone would keep a record of an epoch that the leader
    never had."""
    return min(cache.end_of(diverging.epoch, leo).end, diverging.end)
