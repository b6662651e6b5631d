"""Slow definitions of everything clients can show, word by word after docs/checks.md.

Every record stands alone, every pair is compared: nothing here is fast, sorted or clever. Counts
are by anomaly, those that are allowed included. The order of
reads and of sends is judged in `order_definitions`, replicas' logs in `log_definitions`."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.formats.history import Read
from harness.formats.run_info import Promise
from tests.support.checker.done import (
    Done,
    Logs,
    Place,
    end_of,
    ended,
    places,
    strong_components,
    values,
)
from tests.support.checker.order_definitions import OrderDefinitions

Edge = tuple[int, int]

EXCUSED = (
    "lost",
    "tail-lost",
    "unseen",
    "inconsistent-offsets",
    "int-poll-skip",
    "poll-skip",
    "nonmonotonic-poll",
    "nonmonotonic-send",
    "realtime-order",
)


OF_ABSENCE = ("phantom", "misrouted", "poll-skip", "nonmonotonic-poll")


@dataclass
class Definitions:
    """All anomalies of one history that its clients could see."""

    ops: list[Done]
    logs: dict[str, Logs] = field(default_factory=dict)
    staleness_us: int = -1
    final_reads_due: bool = False
    complete_reads: bool = False
    finished: bool = True
    """Whether the run went through all its phases, so that no final read is cut off."""
    whole: bool = True
    """Whether every line of the history could be read."""
    established: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """HW events (time, HW) of a partition, where the traces of all its replicas are whole."""
    promise: Promise = field(default_factory=Promise)
    starts_known: frozenset[str] = frozenset()
    """Partitions of which the logs, or the traces of all replicas, say where the log begins."""
    flaws: frozenset[str] = frozenset()
    """What cannot be relied on: "times", "processes", "ends"."""
    by_time: bool = False
    """Whether the numbers of operations do not follow each other in time."""
    external: bool = False
    jepsen: bool = False

    def __post_init__(self) -> None:
        touched = {s.partition for op in self.ops for s in op.sends}
        touched |= {r.partition for op in self.ops for r in op.reads}
        self.partitions = sorted(touched | set(self.logs))

    def counts(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for partition in self.partitions:
            one = OnePartition(self, partition)
            for name, count in one.counts():
                found[name] += count
        found.update(self.components())
        return +self.without_absence(found)

    def excused(self) -> Counter[str]:
        """Count those that are allowed for reasons of their own, whatever the run promises."""
        found: Counter[str] = Counter()
        for partition in self.partitions:
            one = OnePartition(self, partition)
            found.update(one.missing(weak_only=True))
            found.update(one.weak_conflicts())
            found.update(one.polls_excused())
            found["nonmonotonic-send"] += one.sends_of_processes(weak_only=True)
            found["realtime-order"] += one.realtime() - one.realtime(strong_only=True)
        return +self.without_absence(Counter({name: found[name] for name in EXCUSED}))

    def without_absence(self, found: Counter[str]) -> Counter[str]:
        """Return counts without those that rest on absence, if not every line could be read."""
        return Counter({n: c for n, c in found.items() if self.whole or n not in OF_ABSENCE})

    def start_open(self, partition: str) -> bool:
        """Return whether records may have been deleted, and nothing says where the log began."""
        if self.promise.compaction:
            return True
        return self.promise.retention and partition not in self.starts_known

    def clocks_sound(self) -> bool:
        """Return whether the clock of no process goes back."""
        return "times" not in self.flaws

    def processes_sound(self) -> bool:
        """Return whether every process does one thing after another."""
        return "processes" not in self.flaws

    def in_turn(self) -> list[Done]:
        """Return the operations in order of time."""
        return sorted(self.ops, key=lambda op: op.t0) if self.by_time else self.ops

    def committed(self, op: Done) -> bool:
        if op.outcome != "info":
            return op.outcome == "ok"
        return any(
            v in op.values(partition)
            for other in self.ops
            if other.outcome == "ok" and not self.dirty(other)
            for partition in self.partitions
            for _, v in other.polled(partition)
        )

    def dirty(self, op: Done) -> bool:
        """Return whether the reads of an operation may return records of others that abort."""
        return (op.isolation or self.promise.isolation) == "read_uncommitted"

    def places(self, partition: str) -> set[Place]:
        """Return the placed values: of all reads, and of committed sends at known offsets."""
        found = {place for op in self.ops for place in op.polled(partition)}
        for op in self.ops:
            if self.committed(op):
                for send in op.sent(partition):
                    if send.offset >= 0:
                        found |= {(send.offset + k, v) for k, v in enumerate(values(send))}
        return found

    # -- cycles of transactions

    def components(self) -> Counter[str]:
        """Count components by name, each once, under the first name that fits."""
        found: Counter[str] = Counter()
        if not any(len(op.sends) > 1 or (op.sends and op.reads) for op in self.ops):
            return found
        ww, wr = self._ww(), self._wr()
        bound = [op for op in self.ops if any(op.number in edge for edge in ww | wr)]
        process, time = set(), set()
        turn = {op: place for place, op in enumerate(self.in_turn())}
        for a, b in itertools.permutations(bound, 2):
            between = any(turn[a] < turn[c] < turn[b] and c.process == a.process for c in bound)
            if a.process == b.process and turn[a] < turn[b] and not between:
                process.add((a.number, b.number))
            if a.outcome != "info" and a.t1 is not None and a.t1 < b.t0:
                time.add((a.number, b.number))
        # What rests on nothing that is known takes no component from what does.
        process = process if self.processes_sound() else set()
        time = time if self.clocks_sound() else set()
        told: list[set[int]] = []
        for name, *kinds in (
            ("g1c", wr),
            ("g1c-process", wr, process),
            ("g1c-realtime", wr, time),
            ("g0", ww),
            ("g1c", ww, wr),
            ("g0-process", ww, process),
            ("g1c-process", ww, wr, process),
            ("g0-realtime", ww, time),
            ("g1c-realtime", ww, wr, time),
        ):
            # Of ww and wr together only wr must be there: ww alone has been told before.
            musts = kinds[1:] if kinds[:2] == [ww, wr] else kinds
            for cycle in strong_components({op.number for op in bound}, set().union(*kinds)):
                within = any(cycle <= other for other in told)
                if not within and all(any({a, b} <= cycle for a, b in m) for m in musts):
                    told.append(cycle)
                    found[name] += 1
        return found

    def _writer(self, partition: str, value: int) -> int | None:
        return next((op.number for op in self.ops if value in op.values(partition)), None)

    def _ww(self) -> set[Edge]:
        found = set()
        for partition in self.partitions:
            lowest: dict[int, int] = {}
            for offset, value in self.places(partition):
                if value >= 0:
                    lowest[offset] = min(value, lowest.get(offset, value))
            writers = [self._writer(partition, lowest[offset]) for offset in sorted(lowest)]
            known = [writer for writer in writers if writer is not None]
            found |= {(a, b) for a, b in itertools.pairwise(known) if a != b}
        return found

    def _wr(self) -> set[Edge]:
        found = set()
        for op in self.ops:
            for partition in self.partitions:
                for _, value in op.polled(partition):
                    writer = self._writer(partition, value)
                    if writer is not None and writer != op.number:
                        found.add((writer, op.number))
        return found


class OnePartition(OrderDefinitions):
    """The anomalies of one partition."""

    def counts(self) -> Iterator[tuple[str, int]]:
        yield from self.missing().items()
        # Neither read to the end nor committed in a log: nothing shows that they are still there.
        yield "no-lost-acknowledged-write unknown", int(bool([*self.not_shown()]))
        yield "vanished", len(self.vanished())
        yield from self.contents().items()
        yield from self.polls().items()
        yield "offset-hole", self.holes()
        yield from self.sends_inside().items()
        yield "nonmonotonic-send", self.sends_of_processes()
        yield "realtime-order", self.realtime()
        yield "future-read", len(self.future())
        yield "precommitted-read", self.precommitted()
        yield from self.watermarks().items()

    def absent(self, value: int) -> bool:
        if self.all.promise.compaction or (
            self.logs.deleted_below
            and self.logs.deleted_below > min(self.at.get(value, ()), default=-1)
        ):
            return False
        return self.logs.complete and all(value != v for _, v in self.logs.records)

    def deleted(self, value: int) -> bool:
        """Return whether retention may have deleted the record, wherever it is known to be."""
        known = self.at.get(value, [])
        return bool(known) and known[-1] < self.logs.deleted_below

    def missing(self, *, weak_only: bool = False) -> Counter[str]:
        found: Counter[str] = Counter()
        for op, send, value, offset in self.required():
            if value not in self.read and not (weak_only and send.acks == -1):
                found[self.fate(op, value, offset)] += 1
        del found[""]
        return found

    def fate(self, op: Done, value: int, offset: int) -> str:
        """Return the fate of a required record that was never read; "" if unknown."""
        highest = max((self.at[v][0] for v in self.read), default=-1)
        known = self.at[value]
        passed = bool(known) and known[-1] <= highest and self.passed(known[-1]) and self.all.whole
        below = bool(known) and known[-1] <= highest and self.absent(value)
        if passed or below:
            return "lost"
        if self.absent(value):
            return "lost" if offset in {o for o, _ in self.logs.records} else "tail-lost"
        committed = self.logs.committed
        if offset in {o for o, _ in committed} and value not in {v for _, v in committed}:
            return "lost"
        if self.deleted(value):
            return ""
        unseen = self.reads_over() and self.all.whole and self.asked_after(op, value)
        return "unseen" if unseen else ""

    def reads_over(self) -> bool:
        """Return whether what no final read returned would not have been returned later either."""
        if self.all.complete_reads:
            return True
        if self.all.final_reads_due:
            return any(op.final and op.f in ("poll", "txn") for op in self.ops)
        return self.all.finished and any(self.finals())

    def stands(self) -> Iterator[tuple[Done, Read, int]]:
        """Every ok read of the partition, in the order of its process, with where it stood; -1 if
        that is not known."""
        position: dict[int, int] = {}
        origin: dict[int, int] = {}
        self.origins = {}
        self.overtaken = {}
        subscribed: set[int] = set()
        for op in self.all.in_turn():
            self.move(op, position, subscribed)
            if op.outcome != "ok":
                continue
            if op.process in subscribed and not op.final:
                position.pop(op.process, None)
            for read in [r for r in op.reads if r.partition == self.partition]:
                moved = self.partition in op.rebalanced
                stood = -1 if moved else position.get(op.process, -1)
                begin = self.begins[id(read)]
                if stood < 0 or begin not in (-1, stood):
                    origin[op.process] = begin
                stood = begin if begin >= 0 else stood
                self.origins[id(read)] = origin[op.process]
                arrived = op.final and stood > origin[op.process]
                self.overtaken[id(read)] = not arrived and stood < self.undeleted_from(op, read)
                yield op, read, stood
                if places(read):
                    position[op.process] = places(read)[-1][0] + 1
                elif begin >= 0:
                    position[op.process] = max(begin, position.get(op.process, -1))

    def gaps(self) -> Iterator[tuple[Done, int, int]]:
        """Offsets from .. to that a read passed over before a record that it returned, though they
        had not been deleted."""
        for op, read, stood in self.stands():
            for nth, (offset, _) in enumerate(places(read)):
                low = max(stood, self.undeleted_from(op, read, nth))
                if stood >= 0 and low < offset:
                    yield op, low, offset
                stood = offset + 1 if self.partition not in op.rebalanced else -1

    def passed(self, offset: int) -> bool:
        """Return whether an ok read returned another value there, or passed over it."""
        if any(o == offset for op in self.ok for o, _ in op.polled(self.partition)):
            return True
        if not self.all.processes_sound():
            return False
        return any(low <= offset < high for _, low, high in self.gaps())

    def committed_us(self, op: Done, *, here: bool = False) -> float:
        """Return when an operation certainly had taken effect."""
        if op.outcome == "ok" and not here:
            return op.t1 or 0
        return min(
            (
                other.t1 or 0
                for other in self.ok
                if not self.all.dirty(other)
                for partition in ([self.partition] if here else self.all.partitions)
                if any(v in op.values(partition) for _, v in other.polled(partition))
            ),
            default=math.inf,
        )

    def reached(self, *, by_final: bool) -> int:
        """Return the end of the records that ok reads returned, or only final ones."""
        readers = [op for op in self.ok if op.final or not by_final]
        return max((o + 1 for op in readers for o, _ in op.polled(self.partition)), default=0)

    def asked_after(self, op: Done, value: int) -> bool:
        """Return whether a read was to return the value, had it been there."""
        if self.all.promise.compaction or not self.all.clocks_sound():
            return False
        at = max(self.at[value], default=0)
        by_final = [row for row in self.stands() if row[0].final]
        if self.start_open:
            return bool(self.at[value]) and any(
                0 <= self.ended(read, stood) <= min(at, end_of(read, stood))
                and reader.t0 >= self.committed_us(op)
                for reader, read, stood in by_final
            )
        if self.all.external:
            return any(
                (0 <= stood <= at if self.at[value] else self.origins[id(read)] == 0 <= stood)
                and reader.t0 >= self.committed_us(op)
                for reader, read, stood in by_final
                if self.waited_at_end(read, stood)
                or 0 <= self.ended(read, stood) <= end_of(read, stood)
            )
        finals = [
            (reader, read)
            for reader in self.ops
            if reader.final
            for read in reader.reads
            if read.partition == self.partition
        ]
        if (
            not finals
            or self.finals_say_nothing()
            or at < min(max(read.start, 0) for _, read in finals)
        ):
            return False
        here = self.committed_us(op, here=True) if op.outcome == "info" else math.inf
        return (
            max(reader.t0 for reader, _ in finals) >= self.committed_us(op)
            or max(reader.t1 if reader.t1 is not None else -1 for reader, _ in finals) >= here
        )

    def ended(self, read: Read, stood: int) -> int:
        """Return the end of the log that an answer states, or -1; where all behind it may have been
        deleted, a reader that got nothing has seen no end, unless it is a final one that had read
        up to there."""
        nothing = not read.records and read.hw < 0 and self.overtaken[id(read)]
        return -1 if nothing and self.start_open else ended(read, stood)

    def waited_at_end(self, read: Read, stood: int) -> bool:
        """Return whether a reader of Jepsen's got nothing from where others got nothing either."""
        nothing = not read.records and stood >= self.reached(by_final=stood > 0)
        return self.all.jepsen and nothing

    def finals_say_nothing(self) -> bool:
        """Return whether final reads were answered, always without a record and without an end."""
        finals = list(self.finals())
        return bool(finals) and not any(r.records or r.hw >= 0 or r.at_end for r in finals)

    def ended_below(self, value: int) -> bool:
        """Return whether a final read states that the log ends at or below the value, and was
        invoked later than all those that returned a record there."""
        at = max(self.at[value])
        if not self.all.clocks_sound():
            return False
        finals = [(op.t0, read, stood) for op, read, stood in self.stands() if op.final]
        had = [t0 for t0, read, _ in finals if any(o == at for o, _ in places(read))]
        return any(
            0 <= self.ended(read, stood) <= at and t0 > max(had, default=-1)
            for t0, read, stood in finals
        )

    def not_shown(self) -> Iterator[int]:
        """Values that are required, and of which nothing shows that they are there at the end."""
        finals = list(self.finals())
        again = {v for read in finals for _, v in places(read)}
        gone = self.vanished()
        committed = {v for o, v in self.logs.committed if o < self.logs.majority_hw}
        for op, send, value, offset in self.required():
            was_read = value in self.read
            if not was_read and self.fate(op, value, offset):
                continue
            promise = self.all.promise
            owed = promise.committed_stays if was_read else promise.durable_acks
            deleted = self.deleted(value) and value not in again
            if send.acks != -1 or not owed or value in gone or deleted:
                continue
            if (value in again and not self.ended_below(value)) or (
                self.all.external and not finals and was_read
            ):
                continue
            everywhere = self.logs.finished and all(value in of for of in self.logs.of_replicas)
            if value not in committed and not everywhere:
                yield value

    def finals(self) -> Iterator[Read]:
        for op in self.ok:
            if op.final:
                yield from (r for r in op.reads if r.partition == self.partition)

    def vanished(self) -> set[int]:
        """Read by an ok read and in no log; or a final read that was invoked later passed over its
        place, or states an end at or below that. With read_uncommitted only of operations that
        certainly took effect."""
        clean = {
            v for op in self.ok if not self.all.dirty(op) for _, v in op.polled(self.partition)
        }
        committed = {v for _, _, v, _ in self.required()}
        return {
            value
            for value in self.read & self.sent & (clean | committed)
            if self.absent(value) or (self.all.whole and self.denied(value))
        }

    def denied(self, value: int) -> bool:
        if not self.all.clocks_sound() or not self.all.processes_sound():
            return False
        first = min(o for op in self.ok for o, v in op.polled(self.partition) if v == value)
        readers = [op for op in self.ok if any(v == value for _, v in op.polled(self.partition))]
        clean = [op for op in readers if not self.all.dirty(op)]
        read_us = min(op.t1 or 0 for op in clean or readers)
        finals = [(op, read, stood) for op, read, stood in self.stands() if op.final]
        had = [op.t0 for op, read, _ in finals if any(o == first for o, _ in places(read))]
        again = any(v == value for _, read, _ in finals for _, v in places(read))
        passed = [op.t0 for op, low, high in self.gaps() if op.final and low <= first < high]
        if any(t0 >= read_us and (not again or t0 > max(had, default=-1)) for t0 in passed):
            return True
        if again:
            return False
        if first >= self.logs.deleted_below and any(t0 >= read_us for t0 in had):
            return True
        end = max((ended(read, stood) for _, read, stood in finals), default=-1)
        reached = max((o + 1 for _, r, _ in finals for o, _ in places(r)), default=0)
        if end < reached or end < 0 or not self.reads_over() or first < end:
            return False
        logged = {v for _, v in self.logs.records}
        return value not in logged and any(
            0 <= self.ended(read, stood) <= first and op.t0 >= read_us for op, read, stood in finals
        )

    def contents(self) -> Counter[str]:
        """Count the values that stand where they should not."""
        found: Counter[str] = Counter()
        readable = {(o, v) for o, v in self.placed if v >= 0}
        for offset in self.offsets:
            found["inconsistent-offsets"] += sum(o == offset for o, _ in readable) > 1
        everywhere = {*self.at} | {v for log in self.logs.committed_of for _, v in log if v >= 0}
        found["duplicate"] = sum(map(self.doubled, everywhere))
        seen = {p for op in self.ops for p in op.polled(self.partition)}
        for offset in {o for o, _ in seen}:
            # Of reads only; epochs and replicas' logs are in `log_definitions`.
            found["divergence"] += sum(o == offset and v >= 0 for o, v in seen) > 1
        for offset in {o for o, v in seen | self.logs.records if v < 0}:
            found["unreadable-record"] += 1
            assert offset >= 0
        failed = {v for op in self.ops if op.outcome == "fail" for v in op.values(self.partition)}
        was_read = {v for _, v in seen}
        logged = {v for _, v in self.logs.records}
        found["aborted-read"] = len(failed & was_read)
        # Records of a transaction are in the log before it aborts.
        plain = {
            v
            for op in self.ops
            if op.f != "txn" and len(op.sends) == 1
            for send in op.sent(self.partition)
            if send.offset < 0
            for v in values(send)
        }
        found["aborted-write"] = len(failed & plain & logged - was_read)
        elsewhere = {v for op in self.ops for s in op.sends for v in values(s)}
        for value in (was_read | logged) - self.sent:
            if value >= 0:
                misrouted = value in elsewhere and not self.all.jepsen
                found["misrouted" if misrouted else "phantom"] += 1
        return found

    def doubled(self, value: int) -> bool:
        """Return whether a value is placed at two offsets, or twice in the committed part of one
        log, or only elsewhere there than where it is placed."""
        at = {*self.at.get(value, ())}
        in_logs = [{o for o, v in log if v == value} for log in self.logs.committed_of]
        anywhere = set[int]().union(*in_logs)
        if any(len(offsets) > 1 for offsets in (at, *in_logs)):
            return True
        return bool(at and anywhere) and not at & anywhere

    def weak_conflicts(self) -> dict[str, int]:
        """Offsets whose second value is only an acknowledgement with acks 0 or 1."""
        sure = {place for op in self.ops for place in op.polled(self.partition)}
        for op, send, value, offset in self.required():
            if offset >= 0 and (send.acks == -1 or op.outcome == "info"):
                sure.add((offset, value))
        every = Counter(o for o, v in self.placed if v >= 0)
        certain = Counter(o for o, v in sure if v >= 0)
        return {"inconsistent-offsets": sum(n > 1 >= certain[o] for o, n in every.items())}

    def precommitted(self) -> int:
        return sum(
            bool({v for _, v in op.polled(self.partition)} & set(op.values(self.partition)))
            for op in self.ops
        )

    # -- what answers state

    def watermarks(self) -> Counter[str]:
        found: Counter[str] = Counter()
        before: dict[int, int] = {}
        for op in self.all.in_turn():
            for read in op.reads if op.outcome == "ok" else ():
                if read.partition != self.partition:
                    continue
                limit = self._limit(op, read)
                found["read-beyond-hw"] += sum(o >= limit for o, _ in places(read))
                if read.hw >= 0:
                    found["hw-regression"] += read.hw < before.get(op.process, 0)
                    before[op.process] = read.hw
        for op, read, stood in self.stands():
            found["stale-read"] += self._stale(op, self.ended(read, stood))
            found["end-below-hw"] += self._end_below_hw(op, read, end_of(read, stood))
        return found

    def _end_below_hw(self, op: Done, read: Read, end: int) -> bool:
        """Return whether an answer says that the log ends below its own HW and a known record."""
        if not read.at_end or end < 0 or self.all.promise.compaction:
            return False
        low = max(end, self.undeleted_from(op, read, len(read.records) - 1))
        under_way = any(
            other.t0 <= (op.t1 or 0)
            and (other.outcome == "info" or (other.t1 or 0) >= op.t0)
            and other.sent(self.partition)
            for other in self.ops
        )
        transactions = any(len(each.sends) > 1 or (each.sends and each.reads) for each in self.ops)
        if transactions and under_way and not self.all.dirty(op):
            return False
        return any(
            t < op.t0 and low <= o < read.hw and acks == -1 for t, o, acks in self.known_at()
        )

    def _limit(self, op: Done, read: Read) -> float:
        """Return the HW that the answer states, or the highest in any trace until then."""
        limit = float(read.hw) if read.hw >= 0 else math.inf
        if self.partition in self.all.established and op.t1 is not None:
            told = self.all.established[self.partition]
            limit = min(limit, max((hw for t, hw in told if t <= op.t1), default=0))
        return limit

    def _stale(self, op: Done, end: int) -> bool:
        if self.all.staleness_us < 0:
            return False
        return end >= 0 and any(
            t < op.t0 - self.all.staleness_us and offset >= end and acks == -1
            for t, offset, acks in self.known_at()
        )
