"""Slow definitions of the order of reads and of sends, word by word after docs/checks.md."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from harness.formats.history import Read, Send
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
        self.start_open = all_of.start_open(partition)
        self.at: dict[int, list[int]] = defaultdict(list)
        for offset, value in sorted(self.placed):
            if value >= 0:
                self.at[value].append(offset)
        self.origins: dict[int, int] = {}
        """Where the reader of each read stood at first, since when it only went on."""
        self.overtaken: dict[int, bool] = {}
        """Whether retention may have deleted all that stood behind each read."""
        self.read = {v for op in self.ok for _, v in op.polled(partition) if v >= 0}
        self.sent = {v for op in self.ops for v in op.values(partition)}
        committed = {v for _, _, v, _ in self.required()}
        dirty = [op for op in self.ops if all_of.dirty(op)]
        clean = {p for op in self.ops if op not in dirty for p in op.polled(partition)}
        acked = {(o, v) for _, _, v, o in self.required() if o >= 0}
        self.lasting = {p for p in self.placed if p in clean | acked or p[1] in committed}
        """Records that every reader must find."""
        self.offsets = sorted({offset for offset, _ in self.lasting})
        self.begins = self.begin()

    def begin(self) -> dict[int, int]:
        """Return where each read had to begin by itself: at its start, or, of the first answer to a
        final reader, at 0; -1 if the partition was rebalanced meanwhile."""
        found: dict[int, int] = {}
        moved: set[int] = set()
        for op in self.all.in_turn():
            for read in [r for r in op.reads if r.partition == self.partition]:
                first = op.final and op.process not in moved
                begin = read.start if read.start >= 0 else 0 if first else -1
                found[id(read)] = -1 if self.partition in op.rebalanced else begin
                if op.outcome == "ok" and (read.records or read.start >= 0):
                    moved.add(op.process)
        return found

    def undeleted_from(self, op: Done, read: Read, nth: int = 0) -> float:
        """Return the offset from which on nothing had been deleted when a read was answered, as far
        as its nth record shows it: retention deletes nothing behind a record that it leaves."""
        if self.all.promise.compaction:
            return math.inf
        if nth:
            return 0
        found: list[float] = [math.inf if self.start_open else self.logs.deleted_below]
        if not self.all.clocks_sound():
            return found[0]
        found += [read.log_start] if read.log_start >= 0 else []
        if op.t1 is not None and self.logs.deleted_at is not None:
            found.append(max((at for t, at in self.logs.deleted_at if t <= op.t1), default=0))
        for other in self.ok:
            for later in other.reads:
                same = later.partition == self.partition
                same &= later.node == read.node or "" in (later.node, read.node)
                if same and other.t0 >= (op.t1 if op.t1 is not None else -1):
                    found += [later.log_start] if later.log_start >= 0 else []
                    found += [run.offset for run in later.records]
        return min(found)

    def move(self, op: Done, position: dict[int, int], subscribed: set[int]) -> None:
        """Drop the position of a process that an operation drops."""
        if op.f == "crash" or (op.f in ("assign", "subscribe") and op.outcome != "fail"):
            subscribed.discard(op.process)
            subscribed |= {op.process} if op.f == "subscribe" else set()
            if op.f == "crash" or self.partition not in op.partitions:
                position.pop(op.process, None)
        read = op.outcome == "ok" and op.polled(self.partition)
        if self.partition in op.rebalanced and not read:
            position.pop(op.process, None)

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
        read = {place for op in self.ops for place in op.polled(self.partition)}
        found = {offset for offset, _ in read & self.lasting}
        for op, send, _, offset in self.required():
            if offset >= 0 and (send.acks == -1 or op.outcome == "info"):
                found.add(offset)
        return found

    def polls(self, *, subscribed_only: bool = False, without_weak: bool = False) -> Counter[str]:
        """Skips and steps back, inside an operation and between those of a process."""
        sure = self.sure()
        known = [o for o in self.offsets if not without_weak or o in sure]
        found: Counter[str] = Counter()
        position: dict[int, int] = {}
        subscribed: set[int] = set()
        for op in self.all.in_turn():
            self.move(op, position, subscribed)
            if op.f in ("assign", "subscribe") and op.outcome != "fail":
                continue
            reads = [r for r in op.reads if r.partition == self.partition]
            moved = self.partition in op.rebalanced
            stands = None if moved else position.get(op.process)
            inside = False
            stays = op.outcome == "ok" and (op.final or op.process not in subscribed) and not moved
            for read in reads:
                if not read.records and read.start >= 0 and stays:
                    position[op.process] = max(read.start, position.get(op.process, -1))
                    stands = stands if inside else position[op.process]
                stated = self.begins[id(read)] if not moved else -1
                for nth, (offset, _) in enumerate(places(read)):
                    begin = stated if nth == 0 and stated >= 0 else stands
                    excused = op.process in subscribed and not (nth == 0 and stated >= 0)
                    low = max(begin or 0, self.undeleted_from(op, read, nth))
                    skips = any(low <= o < offset for o in known)
                    gone = max(begin or 0, self.logs.deleted_below)
                    doubtful = any(gone <= o < min(low, offset) for o in sure)
                    if begin is None or (inside and moved):
                        pass
                    elif inside and not subscribed_only:
                        found["int-poll-skip"] += skips
                        found["int-nonmonotonic-poll"] += offset < begin
                    elif not inside and (excused or not subscribed_only):
                        found["poll-skip"] += skips
                        found["nonmonotonic-poll"] += offset < begin
                    if begin is not None and not (inside and moved) and (inside or not excused):
                        found["offsets-and-order unknown"] += doubtful
                    stands, inside = offset + 1, True
                if read.records and op.outcome == "ok":
                    position[op.process] = places(read)[-1][0] + 1
        return found

    def holes(self) -> int:
        """Distinct stretches of offsets that reads passed over, in offsets."""
        found = set()
        for op in self.ops:
            for read in op.reads:
                if read.partition != self.partition:
                    continue
                due = read.start
                for nth, (offset, _) in enumerate(places(read)):
                    low = max(due, self.undeleted_from(op, read, nth))
                    if due >= 0 and low < offset:
                        found.add((low, offset))
                    due = offset + 1
        return sum(offset - due for due, offset in found)

    def future(self) -> set[int]:
        return {
            v
            for writer in self.ops
            for v in writer.values(self.partition)
            for reader in self.ops
            if reader.t1 is not None
            and reader.t1 < writer.t0
            and any(v == other for _, other in reader.polled(self.partition))
        }

    # -- order of sends

    def base(self, send: Send) -> int:
        """Offset of a send's first record: as acknowledged, else the lowest it is placed at."""
        return send.offset if send.offset >= 0 else min(self.at[send.value], default=-1)

    def sends_inside(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for op in self.ops:
            where = [
                [send.offset + k] if send.offset >= 0 else self.at[v]
                for send in op.sent(self.partition)
                for k, v in enumerate(values(send))
                if self.at[v] and (op.outcome != "fail" or v in self.read)
            ]
            for early, late in itertools.pairwise(where):
                a = early[0]
                b = late[0] if late[0] > a else late[-1]
                found["int-nonmonotonic-send"] += b <= a
                found["int-send-skip"] += any(a < o < b for o in self.offsets)
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
        earliest = self.earliest(self.ok)
        clean = self.earliest([op for op in self.ok if not self.all.dirty(op)])
        late = {p for p in self.placed if p not in earliest or begun.get(p[1], 0) <= earliest[p]}
        found += [(t, offset, -1) for (offset, v), t in clean.items() if (offset, v) in late]
        for op in self.ok:
            for send in op.sent(self.partition):
                at = [min((o for o, v in late if v == value), default=-1) for value in values(send)]
                if send.offset < 0 <= max(at, default=-1) and op.t1 is not None:
                    found.append((op.t1, max(at), send.acks))
        return found

    def earliest(self, reads: Sequence[Done]) -> dict[Place, int]:
        """Return when the first of these reads returned each record."""
        found: dict[Place, int] = {}
        for op in sorted(reads, key=lambda op: -(op.t1 or 0)):
            found |= dict.fromkeys(op.polled(self.partition), op.t1 or 0)
        return found

    def realtime(self, *, strong_only: bool = False) -> int:
        own = [(op.t1, r) for op in self.ok for r in op.reads if r.partition == self.partition]
        marks = [(t, read.hw, -1) for t, read in own if t is not None]
        return sum(
            any(
                t < op.t0 and offset > self.base(send)
                for t, offset, acks in [*self.known_at(), *marks]
                if acks == -1 or not strong_only
            )
            for op in self.ops
            if self.all.committed(op)
            for send in op.sent(self.partition)
            if self.base(send) >= 0
            if not strong_only or send.acks == -1 or send.value in self.read
        )
