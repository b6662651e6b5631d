"""Slow definitions of the anomalies of groups, word by word from docs/checks.md, pair by pair."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from typing import NamedTuple

import msgspec

from harness.formats.history import Op, RecordRun
from harness.formats.run_info import GroupPromise

NEVER = float("inf")


class Whole(NamedTuple):
    """An operation from its invocation to its completion."""

    op: int
    f: str
    outcome: str
    inv: int
    end: float
    member: str
    epoch: int
    asked: Op
    said: Op

    def precedes(self, other: Whole) -> bool:
        return self.end < other.inv

    @property
    def final(self) -> bool:
        return self.asked.final or self.said.final

    @property
    def partitions(self) -> Sequence[str]:
        return self.said.partitions or self.asked.partitions

    def position(self, partition: str) -> int | None:
        stated = self.said.positions or self.asked.positions
        return next((p.offset for p in stated if p.partition == partition), None)


class Record(NamedTuple):
    """A record that an operation delivered, or settles."""

    by: Whole
    partition: str
    key: int
    value: int
    offset: int
    id: int
    times: int
    low: float


def whole_operations(lines: Iterable[Op]) -> list[Whole]:
    by_number: dict[int, list[Op]] = {}
    for line in lines:
        by_number.setdefault(line.op, []).append(line)
    made = []
    for number, (asked, *rest) in sorted(by_number.items()):
        said = rest[0] if rest else asked
        outcome = said.type if rest else "info"
        end = said.t_us if outcome in ("ok", "fail") else NEVER
        epoch = said.epoch if said.epoch >= 0 else asked.epoch
        made.append(
            Whole(number, asked.f, outcome, asked.t_us, end, asked.member, epoch, asked, said)
        )
    return made


OF_VALUES = ("phantom", "misrouted", "unreadable-record", "aborted-read", "future-read")


def of_values(lines: Iterable[Op]) -> Counter[str]:
    """Count what is wrong with the values of reads and deliveries, with and without offsets."""
    ops = whole_operations(lines)
    sent = {
        (send.partition, value): op
        for op in ops
        for send in op.asked.sends
        for value in range(send.value, send.value + send.count)
    }
    somewhere, found = {value for _, value in sent}, set[tuple[str, str, int]]()
    for op in (op for op in ops if op.said is not op.asked):
        given = op.said.deliveries if op.f == "poll" and op.outcome != "fail" else ()
        for part in (*op.said.reads, *given):
            records = ((run, n) for run in part.records for n in range(run.count))
            for run, n in records:
                at, value = part.partition, run.value + n if run.value >= 0 else run.value
                writer = sent.get((at, value))
                if value < 0:
                    found.add(("unreadable-record", at, run.offset + n if run.offset >= 0 else -1))
                elif writer is None:
                    found.add(("misrouted" if value in somewhere else "phantom", at, value))
                else:
                    found |= {("aborted-read", at, value)} if writer.outcome == "fail" else set()
                    found |= {("future-read", at, value)} if op.said.t_us < writer.inv else set()
    return Counter(name for name, _, _ in found)


def records_of(op: Whole) -> Iterator[Record]:
    since = op.said.since_us if op.said.since_us >= 0 else op.inv
    for given in op.said.deliveries or op.asked.deliveries:
        for run in given.records:
            for n in range(run.count):
                offset = run.offset + n if run.offset >= 0 else -1
                id = run.id + n if run.id >= 0 else -1
                key = offset if offset >= 0 else -2 - run.value - n
                yield Record(op, given.partition, key, run.value + n, offset, id, run.times, since)


def final_reads(ops: Iterable[Whole], partition: str) -> Iterator[tuple[float, RecordRun]]:
    for op in ops:
        if op.f == "poll" and not op.asked.group and op.outcome == "ok" and op.final:
            for read in op.said.reads:
                yield from ((op.end, r) for r in read.records if read.partition == partition)


class Judge:
    """One group in one partition."""

    def __init__(
        self, ops: Sequence[Whole], group: str, partition: str, promise: GroupPromise
    ) -> None:
        self.promise, self.partition = promise, partition
        own = [op for op in ops if op.asked.group == group]
        self.all = own
        self.polls = [op for op in own if op.f == "poll"]
        self.commits = [op for op in own if op.f == "commit" and op.position(partition) is not None]
        self.reads = [op for op in own if op.f == "position" and op.outcome == "ok"]
        self.cut = set[int]()
        handled = self.records(op for op in own if op.f in ("poll", "ack", "nack"))
        at = {(r.offset, r.value) for r in handled if r.offset >= 0 <= r.value}
        self.cut = {o for (o, v), (p, w) in product(at, at) if o == p and v != w}
        self.delivered = self.records(op for op in self.polls)
        settling = (op for op in own if op.f == "ack" or (op.f == "nack" and not requeues(op)))
        self.settled = self.records(settling)
        self.given_back = self.records(op for op in own if op.f == "nack" and requeues(op))
        self.sent: dict[int, tuple[Whole, int]] = {}
        for op in ops:
            learned = {s.value: s.offset for s in op.said.sends}
            for sent in op.asked.sends:
                base = learned.get(sent.value, -1)
                for n in range(sent.count if sent.partition == partition else 0):
                    self.sent[sent.value + n] = op, base + n if base >= 0 else -1
        given = [r for op in ops if op.asked.group and op.f == "poll" for r in records_of(op)]
        given = [r for r in given if r.partition == partition and r.by.outcome != "fail"]
        self.read_before: dict[int, float] = {}  # by value, the end of the first final read of it
        read_at = set()
        for end, run in final_reads(ops, partition):
            for n in range(run.count):
                value = run.value + n
                self.read_before[value] = min(end, self.read_before.get(value, NEVER))
                read_at.add(run.offset + n)
        self.placed = {r.offset for r in given if r.offset >= 0} | read_at
        self.placed |= {o for op, o in self.sent.values() if o >= 0 and op.outcome == "ok"}
        self.kept = self.placed & read_at if read_at else self.placed
        self.unanswered = sum(op.outcome != "ok" for op in self.polls)

    def records(self, ops: Iterable[Whole]) -> list[Record]:
        live = (op for op in ops if op.outcome != "fail")
        found = [r for op in live for r in records_of(op) if r.partition == self.partition]
        by_value = {r for r in found if r.offset in self.cut and r.value >= 0}
        return [r._replace(key=-2 - r.value) if r in by_value else r for r in found]

    def quiet(self) -> bool:
        final = sorted((op for op in self.polls if op.final), key=lambda op: op.inv)
        if not final or any(op.outcome != "ok" for op in final):
            return False
        came = [op.end for op in final if any(r.by is op for r in self.delivered)]
        span_us = (self.promise.ack_wait_ms + self.promise.redelivery_ms) * 1000
        return final[-1].end - max(came, default=final[0].inv) >= span_us

    def strange(self) -> bool:
        """Return whether a record is settled that no poll can have been given."""
        known = {r.key for r in self.delivered}
        handled = (*self.settled, *self.given_back)
        return not self.unanswered and any(r.key not in known for r in handled)

    def exhausted(self, mine: Sequence[Record]) -> bool:
        counted = max([len(mine), *(r.times for r in mine)], default=0)
        return 0 <= self.promise.max_deliver <= counted + self.unanswered

    def anomalies(self) -> Iterator[str]:
        yield from self.again()
        yield from self.in_order()
        if self.promise.at_least_once and self.quiet() and not self.strange():
            yield from self.reached()
        yield from self.owners()
        if self.promise.kind == "acks":
            yield from self.floors()
        else:
            yield from self.positions()
            yield from self.stuck()

    def reached(self) -> Iterator[str]:
        begin = min(op.inv for op in self.polls if op.final)
        for value, (op, offset) in self.sent.items():
            mine = [r for r in self.delivered if r.value == value or self.perhaps_at(r, offset)]
            if not mine:
                seen = self.read_before.get(value, NEVER)
                sends = [s for s in op.asked.sends if s.partition == self.partition]
                weak = any(s.acks != -1 and s.value <= value < s.value + s.count for s in sends)
                owed = op.outcome == "ok" and op.end < begin and not weak
                owed &= self.may_be_kept(value)
                owed |= op.outcome != "fail" and seen < begin
                if owed and not self.exhausted(()):
                    yield "undelivered"
            elif self.promise.kind == "acks" and op.outcome != "fail" and self.may_be_kept(value):
                own = [r for r in mine if r.value == value and not self.perhaps_settled(r)]
                tried = any(s.key == r.key for s, r in product(self.settled, own))
                if own and not tried and not self.exhausted(own):
                    yield "not-redelivered"

    def perhaps_at(self, r: Record, offset: int) -> bool:
        return r.offset == offset >= 0 and (r.value < 0 or not self.read_before)

    def perhaps_settled(self, r: Record) -> bool:
        """Return whether another record at the offset was settled, or this one may be lost."""
        others = any(s.offset == r.offset for s in self.settled) or not self.read_before
        return r.offset in self.cut and others

    def may_be_kept(self, value: int) -> bool:
        return value in self.read_before or not self.read_before

    def again(self) -> Iterator[str]:
        wait_us = self.promise.ack_wait_ms * 1000
        for key in {r.key for r in self.delivered}:
            mine = [r for r in self.delivered if r.key == key]
            back = [n.by for n in self.given_back if n.key == key]
            for settle in (s.by for s in self.settled if s.key == key and s.by.outcome == "ok"):
                maybe = any(
                    n.inv < d.by.end and not n.precedes(settle) for n, d in product(back, mine)
                )
                if not maybe and any(settle.end < d.low for d in mine):
                    yield "acked-redelivered"
            distinct = {r.id if r.id >= 0 else -2 - r.by.op for r in mine}
            if 0 <= self.promise.max_deliver < len(distinct):
                yield "over-delivered"
            for first, second in product(mine, mine):
                if not (first.by.end < second.low or 0 <= first.id < second.id):
                    continue
                if 0 < second.times <= first.times:
                    yield "delivery-count"
                gone = any(
                    op.f in ("leave", "crash")
                    and op.member == first.by.member
                    and op.inv < second.by.end
                    for op in self.all
                )
                if not back and not gone and wait_us and second.by.end < first.low + wait_us:
                    yield "early-redelivery"

    def in_order(self) -> Iterator[str]:
        first = [r for r in self.delivered if r.times == 1 and r.offset >= 0]
        if self.promise.order == "first":
            for (m, one), (n, two) in product(enumerate(first), enumerate(first)):
                later = one.by.end < two.low or (one.by is two.by and m < n)
                if later and two.offset < one.offset:
                    yield "delivery-order"
        if self.promise.order != "owner":
            return
        for assigned, stop in self.turns():
            start = assigned.position(self.partition)
            at = -1 if start is None else start
            own = [r for r in self.delivered if r.by.member == assigned.member and r.offset >= 0]
            for r in own:
                if not assigned.end <= r.by.inv < stop:
                    continue
                if r.offset < at:
                    yield "delivery-order"
                if at >= 0 and any(at <= offset < r.offset for offset in self.kept):
                    yield "group-skip"
                at = r.offset + 1

    def turns(self) -> Iterator[tuple[Whole, float]]:
        for op in self.all:
            if op.f == "assign" and op.outcome == "ok" and self.partition in op.partitions:
                changes = (
                    e.inv
                    for e in self.all
                    if e.f in ("assign", "leave", "crash") and e.member == op.member
                )
                yield op, min((inv for inv in changes if inv > op.inv), default=NEVER)

    def floors(self) -> Iterator[str]:
        if any(r.offset < 0 for r in (*self.delivered, *self.settled)):
            return
        for read in self.reads:
            floor = read.position(self.partition)
            for offset in self.kept - self.cut if floor is not None else ():
                mine = [r for r in self.delivered if r.key == offset]
                tried = any(s.key == offset and s.by.inv < read.end for s in self.settled)
                if offset < (floor or 0) and not tried and not self.exhausted(mine):
                    yield "position-ahead"

    def positions(self) -> Iterator[str]:
        attempts = [w for w in self.commits if w.outcome != "fail"]
        for read in self.reads:
            told = read.position(self.partition)
            if told is None:
                continue
            asked = {w.position(self.partition) for w in attempts if w.inv < read.end}
            if told > max((p for p in asked if p is not None), default=-1):
                yield "position-ahead"
                continue
            if told >= 0 and told not in asked:
                yield "position-phantom"
                continue
            before = [w for w in attempts if w.outcome == "ok" and w.precedes(read)]
            earlier = [
                w
                for w in attempts
                if w.outcome == "ok" and w.member != read.member and 0 <= w.epoch < read.epoch
            ]
            fenced = self.promise.fenced_reads and not read.final
            if fenced and not self.shows(told, read, attempts, earlier):
                yield "position-back"
            elif not self.shows(told, read, attempts, before):
                yield "commit-lost" if read.final else "stale-position"

    def shows(
        self, told: int, read: Whole, attempts: Sequence[Whole], sure: Sequence[Whole]
    ) -> bool:
        if told < 0:
            return not sure
        sources = [w for w in attempts if w.position(self.partition) == told and w.inv < read.end]
        return any(not any(self.overwrites(by, w) for by in sure) for w in sources)

    def overwrites(self, by: Whole, commit: Whole) -> bool:
        other = by.member != commit.member and 0 <= commit.epoch < by.epoch
        return commit.precedes(by) or (self.promise.fenced and other)

    def owners(self) -> Iterator[str]:
        given = [op for op, _ in self.turns() if op.epoch >= 0]
        for one, two in product(given, given):
            if one.member < two.member and one.epoch == two.epoch:
                yield "double-ownership"
        for commit, owner in product(self.commits, given):
            newer = owner.member != commit.member and owner.epoch > commit.epoch >= 0
            if commit.outcome == "ok" and newer and owner.precedes(commit):
                yield "zombie-commit"

    def stuck(self) -> Iterator[str]:
        gone = {op.member for op in self.all if op.f in ("leave", "crash")}
        alive = {op.member for op in self.all if op.f == "join" and op.outcome == "ok"} - gone
        changes = [op for op in self.all if op.f in ("join", "leave", "crash", "assign")]
        if not alive or not any(op.outcome == "ok" for op, _ in self.sent.values()):
            return
        since = max(op.inv if op.end == NEVER else op.end for op in changes)
        polls = [op for op in self.polls if op.member in alive and op.outcome == "ok"]
        polls = [op for op in polls if op.inv >= since]
        if not polls or any(stop > since for _, stop in self.turns()):
            return
        until, span_us = max(op.end for op in polls), self.promise.rebalance_ms * 1000
        marks = [since, *sorted(op.inv for op in polls), until]
        gaps = (after - before for before, after in pairwise(marks))
        if until - since >= span_us and max(gaps) * 3 <= span_us:
            yield "group-stuck"


def requeues(op: Whole) -> bool:
    return op.asked.requeue and op.said.requeue


def epochs(ops: Sequence[Whole]) -> Iterator[str]:
    stated = [
        op for op in ops if op.f in ("join", "assign") and op.outcome == "ok" and op.epoch >= 0
    ]
    for one, two in product(stated, stated):
        same = one.member == two.member or two.f == "join"
        if one.precedes(two) and two.epoch < one.epoch and same:
            yield "epoch-back"


def few(lines: Iterable[Op], promise: GroupPromise) -> set[str]:
    """Return whether the members did too little."""
    tried = [op for op in whole_operations(lines) if op.asked.group and op.outcome != "fail"]
    settling = [op for op in tried if op.f in ("ack", "nack", "commit")]
    ops = [op for op in tried if op.outcome == "ok"]
    records = {(op.member, r.partition, r.key) for op in settling for r in records_of(op)}
    settled = len(records) + sum(len(op.asked.positions) for op in settling)
    times = [r.times for op in ops if op.f == "poll" for r in records_of(op)]
    owners = {op.member for op in ops if op.f == "assign"}
    once = promise.kind == "acks" and max(times, default=0) == 1
    one = promise.kind == "positions" and len(owners) == 1
    return {"few-deliveries"} if ops and (settled < 10 or once or one) else set()


def of_states(text: bytes) -> set[str]:
    """Return the anomalies of the states of groups that replicas keep."""
    lines = [json.loads(line) for line in text.splitlines()]
    keyed = msgspec.json.encode
    log = [line for line in lines if "record" in line]
    found = set()
    for state in (line for line in lines if "live" in line):
        made: dict[bytes, int] = {}
        for line in sorted(log, key=lambda line: line.get("offset", -1)):
            if line["offset"] < state["applied"]:
                made[keyed(line["record"]["key"])] = line["record"]["value"]
        told = {keyed(key): value for key, value in state["live"]}
        if {k: v for k, v in made.items() if v is not None} != told:
            found.add("replay-differs")
    replicas = [line for line in lines if "position" in line]
    for one, two in product(replicas, replicas):
        same = all(one.get(name) == two.get(name) for name in ("group", "partition", "applied"))
        kept = [(each["position"], sorted(each.get("pending", ()))) for each in (one, two)]
        if same and kept[0] != kept[1]:
            found.add("group-replicas-differ")
    return found


def judge(lines: Iterable[Op], promise: GroupPromise) -> tuple[set[str], set[str]]:
    """Return the anomalies of all groups of a history, and what is unknown of them."""
    ops = whole_operations(lines)
    groups = sorted({op.asked.group for op in ops} - {""})
    judged = [of_group(ops, group, promise) for group in groups]
    return set().union(*(found for found, _ in judged)), set().union(*(miss for _, miss in judged))


def of_group(ops: Sequence[Whole], group: str, promise: GroupPromise) -> tuple[set[str], set[str]]:
    own = [op for op in ops if op.asked.group == group]
    sent_to = {sent.partition for op in ops for sent in op.asked.sends}
    partitions = sent_to.union(*(op.partitions for op in own))
    for named in (each for op in own for each in (op.asked, op.said)):
        partitions |= {each.partition for each in (*named.deliveries, *named.positions)}
    found, unknown = set(epochs(own)), set[str]()
    for partition in sorted(partitions):
        judged = Judge(ops, group, partition, promise)
        found |= set(judged.anomalies())
        if promise.at_least_once and partition in sent_to and not judged.quiet():
            unknown.add(f"drain:{partition}")
        final = [op for op in judged.reads if op.final and op.position(partition) is not None]
        attempts = [op for op in judged.commits if op.outcome != "fail"]
        if promise.kind == "positions" and promise.durable and attempts and not final:
            unknown.add(f"positions:{partition}")
        if judged.strange():
            unknown.add(f"polls:{partition}")
    return found, unknown
