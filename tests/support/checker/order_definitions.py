"""Slow definitions of the order of reads and of sends, word by word after docs/checks.md."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from harness.formats.history import Send
from tests.support.checker.done import NO_LOGS, Done, Place, places, values

if TYPE_CHECKING:
    from tests.support.checker.definitions import Definitions


class OrderDefinitions:
    """The placed values of one partition, and the anomalies of order there."""

    def __init__(self, all_of: Definitions, partition: str) -> None:
        self.all, self.partition = all_of, partition
        self.ops = all_of.ops
        self.logs = all_of.logs.get(partition, NO_LOGS)
        self.ok = [op for op in self.ops if op.outcome == "ok"]
        self.placed = all_of.places(partition)
        self.offsets = sorted({offset for offset, _ in self.placed})
        self.dense = {offset: n for n, offset in enumerate(self.offsets)}
        self.at: dict[int, list[int]] = defaultdict(list)
        for offset, value in sorted(self.placed):
            if value >= 0:
                self.at[value].append(offset)
        self.origins: dict[int, int] = {}
        """Where the reader of each read stood at first, since when it only went on."""
        self.read = {v for op in self.ok for _, v in op.polled(partition) if v >= 0}
        self.sent = {v for op in self.ops for v in op.values(partition)}

    def required(self) -> Iterator[tuple[Done, Send, int, int]]:
        """Every record of a committed send: operation, send, value and acknowledged offset."""
        for op in self.ops:
            if self.all.committed(op):
                for send in op.sent(self.partition):
                    for k, value in enumerate(values(send)):
                        yield op, send, value, send.offset + k if send.offset >= 0 else -1

    def polls_excused(self) -> Counter[str]:
        """Count polls of subscribers, and skips of offsets that only weak acknowledgements name."""
        found = self.polls(subscribed_only=True)
        for name in ("int-poll-skip", "poll-skip"):
            sure = self.polls(without_weak=True)[name]
            moved = self.polls(without_weak=True, subscribed_only=True)[name]
            found[name] += self.polls()[name] - found[name] - (sure - moved)
        return found

    def sure(self) -> set[int]:
        """Offsets at which more than an acknowledgement with acks 0 or 1 says a record is."""
        found = {offset for op in self.ops for offset, _ in op.polled(self.partition)}
        for op, send, _, offset in self.required():
            if offset >= 0 and (send.acks == -1 or op.outcome == "info"):
                found.add(offset)
        return found

    def polls(self, *, subscribed_only: bool = False, without_weak: bool = False) -> Counter[str]:
        """Skips and steps back, inside an operation and between those of a process."""
        sure = self.sure()
        offsets_known = [o for o in self.offsets if not without_weak or o in sure]
        dense = {offset: n for n, offset in enumerate(offsets_known)}
        found: Counter[str] = Counter()
        position: dict[int, int] = {}
        subscribed: dict[int, bool] = {}
        for op in self.all.in_turn():
            if op.f == "crash" or (op.f in ("assign", "subscribe") and op.outcome != "fail"):
                subscribed[op.process] = op.f == "subscribe"
            if op.f == "crash":
                position.pop(op.process, None)
            if op.f in ("assign", "subscribe") and op.outcome != "fail":
                if self.partition not in op.partitions:
                    position.pop(op.process, None)
                continue
            reads = [r for r in op.reads if r.partition == self.partition and r.records]
            judged = subscribed.get(op.process, False) or not subscribed_only
            before = position.get(op.process)
            inside = False
            for read in reads:
                stood = read.start if read.start >= 0 else None
                for offset, _ in places(read):
                    if before is not None:
                        delta = dense[offset] - self.index_before(
                            offsets_known, before, stood, offset
                        )
                        if inside and self.partition not in op.rebalanced and not subscribed_only:
                            found["int-poll-skip"] += delta > 1
                            found["int-nonmonotonic-poll"] += delta < 1
                        elif not inside and judged:
                            found["poll-skip"] += delta > 1
                            found["nonmonotonic-poll"] += delta < 1
                    before, stood, inside = offset, None, True
            if reads and op.outcome == "ok":
                position[op.process] = places(reads[-1])[-1][0]
        return found

    def index_before(
        self, known: Sequence[int], before: int, stood: int | None, offset: int
    ) -> int:
        """Return the dense index of the last record before where a read stood: behind the record
        `before`, or where it was asked to begin, or where retention left the log beginning."""
        stood = before + 1 if stood is None else stood
        stood = max(stood, min(self.logs.deleted_below, offset))
        return sum(o < stood for o in known) - 1

    def holes(self) -> int:
        """Distinct stretches of offsets that reads passed over, in offsets."""
        found = set()
        for op in self.ops:
            for read in op.reads:
                if read.partition != self.partition:
                    continue
                due = read.start
                for offset, _ in places(read):
                    if 0 <= due < offset:
                        found.add((due, offset))
                    due = offset + 1
        return sum(offset - due for due, offset in found)

    # -- order of sends

    def base(self, send: Send) -> int:
        """Offset of a send's first record: as acknowledged, else the lowest it is placed at."""
        return send.offset if send.offset >= 0 else min(self.at[send.value], default=-1)

    def sends_inside(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for op in self.ops:
            where = [
                self.at[v][0]
                for v in op.values(self.partition)
                if self.at[v] and (op.outcome != "fail" or v in self.read)
            ]
            for a, b in itertools.pairwise(where):
                found["int-nonmonotonic-send"] += self.dense[b] - self.dense[a] < 1
                found["int-send-skip"] += self.dense[b] - self.dense[a] > 1
        return found

    def sends_of_processes(self, *, weak_only: bool = False) -> int:
        """Operations whose first send lands at or before the last one of the operation before."""
        found = 0
        last: dict[int, Send] = {}
        for op in self.all.in_turn():
            sent = [s for s in op.sent(self.partition) if self.base(s) >= 0]
            if op.outcome == "fail" or not sent:
                continue
            before = last.get(op.process)
            if before is not None and self.base(sent[0]) <= self.base(before) + before.count - 1:
                found += (sent[0].acks, before.acks) != (-1, -1) or not weak_only
            last[op.process] = sent[-1]
        return found

    def known_at(self) -> list[tuple[int, int, int]]:
        """(time, offset, acks) at which a record was known: acknowledged, or (acks -1) read."""
        found = [
            (op.t1, send.offset + send.count - 1, send.acks)
            for op in self.ok
            for send in op.sent(self.partition)
            if send.offset >= 0 and op.t1 is not None
        ]
        begun = {v: op.t0 for op in self.ops for v in op.values(self.partition)}
        earliest: dict[Place, int] = {}
        for op in self.ok:
            assert op.t1 is not None
            for place in op.polled(self.partition):
                earliest[place] = min(op.t1, earliest.get(place, op.t1))
        found += [(t, offset, -1) for (offset, v), t in earliest.items() if begun.get(v, t) <= t]
        return found

    def realtime(self, *, strong_only: bool = False) -> int:
        return sum(
            any(
                t < op.t0 and offset > self.base(send)
                for t, offset, acks in self.known_at()
                if acks == -1 or not strong_only
            )
            for op in self.ops
            if self.all.committed(op)
            for send in op.sent(self.partition)
            if self.base(send) >= 0
            if not strong_only or send.acks == -1 or send.value in self.read
        )
