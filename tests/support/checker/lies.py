"""Lies: histories of a log that works, with one thing in them that did not happen.

The truth of a lie is known: one of the anomalies that it names shows it. If it names none, the
history still is one of a log that works; if `unknown`, nothing can be concluded. No check is known
in here. A lie that nothing in a history can show is left out."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from checker.engine.local import check_run
from checker.formats.verdict import RunResult, Verdict
from harness.formats.history import Op, Read
from tests.support.checker.agreed import compared
from tests.support.checker.correct_history import History, runs
from tests.support.checker.disguise import Disguise
from tests.support.checker.done import places, values
from tests.support.checker.history_forms import FORMS
from tests.support.checker.story import against
from tests.support.checker.weakened import judged

OWN: Final = FORMS[:2]
TRAITS: Final[dict[str, Sequence[Any]]] = {
    "dirty": ("", "", "op"),
    "weak": ("",),
    "retries": ("", "idempotent"),
    "deletes": ("",),
}
FINAL: Final = range(500, 600)  # The processes of final readers.
NOBODY: Final = 10**12 + 7
GONE: Final = "lost unseen vanished end-below-hw"
Answer = tuple[int, int, Read]
"""The line and place of an answer of one partition, and its content."""


def records_of(read: Read) -> list[tuple[int, int, int]]:
    """Return (offset, value, epoch) of each record of an answer."""
    epochs = [run.epoch for run in read.records for _ in range(run.count)]
    return [(*place, epoch) for place, epoch in zip(places(read), epochs, strict=True)]


class Record(NamedTuple):
    """An acknowledged record: by which line, and where, if it says so; when its send began."""

    ack: Op
    partition: str
    value: int
    at: int
    t0: int


class Told:
    """A history to lie about."""

    def __init__(self, seed: str, form: str, traits: dict[str, Sequence[Any]]) -> None:
        self.rng, self.jepsen = random.Random(seed), form not in OWN
        fixed = {name: self.rng.choice(each) for name, each in (TRAITS | traits).items()}
        if self.jepsen:  # It says nothing of single operations.
            fixed |= {name: "" for name, trait in fixed.items() if trait in ("op", "send")}
        number = self.rng.randrange(1 << 30)
        self.history = History(number, jepsen=self.jepsen, turns=(30, 120), **fixed)
        self.ops = self.history.ops
        self.promise: dict[str, Any] = self.history.traits.promise()
        self.begun = {op.op: op for op in self.ops if op.type == "invoke"}
        self.ended = {op.op: op for op in self.ops if op.type != "invoke"}

    def one(self, found: Iterable[Any]) -> Any:
        """Return one of these; None if there is none."""
        made = list(found)
        return self.rng.choice(made) if made else None

    def answers(self, *, final: bool | None = None) -> Iterator[Answer]:
        """Yield ok answers: all, or final ones, or the others."""
        for line, op in enumerate(self.ops):
            if op.type == "ok" and final in (None, op.process in FINAL):
                yield from ((line, nth, read) for nth, read in enumerate(op.reads))

    def some(self) -> Answer | None:
        """Return an answer with records."""
        return self.one(each for each in self.answers() if each[2].records)  # type: ignore[no-any-return]

    def answer(self, to: Answer, records: Any = None, **more: Any) -> bool:
        """Let an answer be another one."""
        line, nth, read = to
        more |= {} if records is None else {"records": runs(records)}
        reads = list(self.ops[line].reads)
        reads[nth] = replace(read, **more)
        self.ops[line] = replace(self.ops[line], reads=tuple(reads))
        return True

    def everywhere(
        self, partition: str, change: Callable[[int], int | None], *, final: bool | None = None
    ) -> bool:
        """Let each value of a partition in any answer be another one, or not be there."""
        before = list(self.ops)
        for line, op in enumerate(self.ops):
            for nth, read in enumerate(op.reads):
                if read.partition == partition and final in (None, op.process in FINAL):
                    made = [(o, change(v), e) for o, v, e in records_of(read)]
                    self.answer((line, nth, read), [r for r in made if r[1] is not None])
        return self.ops != before

    def forget(self, partition: str, value: int, *, final: bool | None = None) -> bool:
        return self.everywhere(partition, lambda v: None if v == value else v, final=final)

    def places(self, partition: str) -> list[tuple[int, int]]:
        """Return (offset, value) of all that the log of a partition got."""
        return [(o, slot.value) for o, slot in enumerate(self.history.partitions[partition].slots)]

    def is_followed(self, partition: str, value: int) -> bool:
        """Return whether final readers got a record behind this one, and none began there."""
        at = max((o for o, v in self.places(partition) if v == value), default=NOBODY)
        finals = [r for *_, r in self.answers(final=True) if r.partition == partition]
        begun = any(r.start == at + 1 for r in finals)
        return not begun and any(offset > at for r in finals for offset, _ in places(r))

    def acked(self) -> Iterator[Record]:
        """Yield the records of operations that are ok."""
        for op in self.ended.values():
            for send in op.sends if op.type == "ok" else ():
                for k, value in enumerate(values(send)):
                    at = send.offset + k if send.offset >= 0 else -1
                    yield Record(op, send.partition, value, at, self.begun[op.op].t_us)

    def single(self) -> list[Record]:
        """Return the acknowledged records that an operation sent alone, and that were read, each
        where it was read."""
        read = {(r.partition, v): o for *_, r in self.answers() for o, v in places(r)}
        return [
            each._replace(at=read[each.partition, each.value])
            for each in self.acked()
            if len(each.ack.sends) == each.ack.sends[0].count == 1 and not each.ack.reads
            if (each.partition, each.value) in read
        ]

    def seen(self) -> list[tuple[int, str, int, int]]:
        """Return time, partition, offset and value of each record in an answer."""
        return [
            (op.t_us, r.partition, o, v) for op in self.ops for r in op.reads for o, v in places(r)
        ]

    def exchange(self, partition: str, one: int, other: int) -> bool:
        """Let two records stand in each other's places, in answers and in acknowledgements."""
        swap = {one: other, other: one}
        where = {v: o for _, name, v, o, _ in self.acked() if name == partition}
        self.everywhere(partition, lambda value: swap.get(value, value))
        for line, op in enumerate(self.ops):
            if op.type != "invoke":
                there = [where.get(swap.get(s.value, -1), s.offset) for s in op.sends]
                sends = (replace(s, offset=o) for s, o in zip(op.sends, there, strict=True))
                self.ops[line] = replace(op, sends=tuple(sends))
        return True

    def replaced(self, line: Op, **fields: Any) -> bool:
        """Let a line have other fields."""
        self.ops[self.ops.index(line)] = replace(line, **fields)
        return True


class Lie(NamedTuple):
    """One lie: `tell` returns whether there was room for it, one of `shows` shows it."""

    tell: Callable[[Told], object]
    shows: frozenset[str]
    forms: tuple[str, ...]
    traits: dict[str, Sequence[Any]]


LIES: Final[dict[str, Lie]] = {}
Tell = Callable[[Told], object]


def lie(
    shows: str, forms: tuple[str, ...] = FORMS, **traits: Sequence[Any]
) -> Callable[[Tell], Tell]:
    """Enter a lie; `traits` are those of the histories that it changes."""

    def enter(tell: Tell) -> Tell:
        LIES[tell.__name__] = Lie(tell, frozenset(shows.split()), forms, traits)
        return tell

    return enter


@lie(
    "",
    dirty=("", "op", "promise"),
    weak=("", "", "send", "promise"),
    retries=("", "idempotent", "at-least-once"),
    deletes=("", "", "", "retention", "compaction"),
)
def nothing_is_told(told: Told) -> object:
    return True


@lie(f"{GONE} inconsistent-offsets unknown", weak=("promise",))
def what_is_lost_had_been_promised(told: Told) -> object:
    """Let the promise be strict, though the log lost what had been acknowledged."""
    there = {name: {v for _, v in told.places(name)} for name in told.history.partitions}
    told.promise.clear()
    return any(each.value not in there[each.partition] for each in told.acked())


@lie(GONE)
def an_acknowledged_record_is_nowhere(told: Told) -> object:
    """Take a record out of all answers, in front of others that final readers got."""
    found = told.one(
        each[1:3]
        for each in told.acked()
        if (each.at >= 0 or told.jepsen) and told.is_followed(*each[1:3])
    )
    return found and told.forget(*found)


@lie(GONE)
def final_readers_lack_what_was_read(told: Told) -> object:
    acked = {each[1:3] for each in told.acked()}
    read = {(r.partition, v) for *_, r in told.answers(final=False) for _, v in places(r)}
    found = told.one(each for each in sorted(acked & read) if told.is_followed(*each))
    return found and told.forget(*found, final=True)


@lie(f"{GONE} poll-skip")
def a_final_reader_lacks_the_head(told: Told) -> object:
    first: dict[tuple[int, str], Answer] = {}
    for each in told.answers(final=True):
        if each[2].records:
            first.setdefault((told.ops[each[0]].process, each[2].partition), each)
    read = {(r.partition, v) for *_, r in told.answers(final=False) for _, v in places(r)}
    known = {each[1:3] for each in told.acked() if each.at >= 0 or each[1:3] in read}
    found = told.one(
        each
        for each in first.values()
        if len(places(each[2])) > 1 and (each[2].partition, places(each[2])[0][1]) in known
    )
    return found and told.answer(found, records_of(found[2])[1:])


@lie("int-poll-skip poll-skip lost vanished", deletes=("", "retention"))
def an_answer_lacks_a_record_inside(told: Told) -> object:
    read = [(name, v) for _, name, _, v in told.seen()]
    found = told.one(
        (each, k)
        for each in told.answers()
        for k, (_, value) in [*enumerate(places(each[2]))][1:-1]
        if read.count((each[2].partition, value)) > 1
    )
    if not found:
        return False
    (answer, k), records = found, records_of(found[0][2])
    return told.answer(answer, records[:k] + records[k + 1 :])


@lie(GONE, OWN, deletes=("", "retention"))
def final_readers_end_early(told: Told) -> object:
    """Let final answers say that the log ends in front of what was acknowledged and read."""
    acked = {each[1:3] for each in told.acked()}
    read = [(r.partition, p) for *_, r in told.answers(final=False) for p in places(r)]
    first = {
        (name, min(o for o, _ in places(r)))
        for *_, r in told.answers(final=True)
        for name in [r.partition]
        if r.records
    }
    found = told.one(
        (name, o)
        for name, (o, v) in read
        if (name, v) in acked and sum(n == name and at < o for n, at in first)
    )
    if not found:
        return False
    name, end = found
    states = told.rng.choice([{"hw": end, "at_end": False}, {"hw": -1, "at_end": True}])
    for each in list(told.answers(final=True)):
        if each[2].partition == name:
            kept = [r for r in records_of(each[2]) if r[0] < end]
            start = min(each[2].start, end)
            told.answer(each, kept, start=start if kept or start < 0 else end, **states)
    return told.ops


@lie("unknown", OWN)
def final_readers_may_all_have_waited_in_vain(told: Told) -> object:
    found = told.one(sorted({each.partition for each in told.single()}))
    for each in list(told.answers(final=True)):
        if each[2].partition == found:
            told.answer(each, [], hw=-1, at_end=False)
    return found


@lie("")
def what_may_never_have_happened_did_not(told: Told) -> object:
    """Take away what has an unknown outcome, and is not a part of more."""
    found = told.one(
        op
        for op in told.begun.values()
        if op.f == "send" and getattr(told.ended.get(op.op), "type", "info") == "info"
    )
    for partition, value in (
        ((s.partition, v) for s in found.sends for v in values(s)) if found else ()
    ):
        told.forget(partition, value)
    return found


@lie("realtime-order")
def a_record_stands_in_front_of_one_that_was_acknowledged_before(told: Told) -> object:
    singles = told.single()
    found = told.one(
        (a.partition, a.value, b.value)
        for a in singles
        for b in singles
        if a.partition == b.partition and a.ack.t_us < b.t0
    )
    return found and told.exchange(*found)


@lie("")
def two_sends_at_once_come_the_other_way_round(told: Told) -> object:
    """Exchange neighbours whose sends overlap, if neither was known before both had begun."""
    singles = told.single()
    known = [(op.t_us, r.partition, r.hw - 1) for op in told.ops for r in op.reads]
    known += [each[:3] for each in told.seen()]
    known += [(each.ack.t_us, each.partition, each.at) for each in told.acked()]
    found = told.one(
        (a.partition, a.value, b.value)
        for a in singles
        for b in singles
        if a.partition == b.partition and b.at == a.at + 1
        if max(a.t0, b.t0) < min(a.ack.t_us, b.ack.t_us)
        if not any(
            name == a.partition and t <= max(a.t0, b.t0) and at >= a.at for t, name, at in known
        )
    )
    return found and told.exchange(*found)


@lie("int-nonmonotonic-send")
def an_operation_is_the_other_way_round(told: Told) -> object:
    """Exchange two records that one operation sent to one partition, where they were read."""
    read = {(name, v) for _, name, _, v in told.seen()}
    found = told.one(
        (a.partition, a.value, b.value)
        for a in told.acked()
        for b in told.acked()
        if a.ack is b.ack and a.partition == b.partition and a.value < b.value and a.at < 0
        if {a[1:3], b[1:3]} <= read
    )
    return found and told.exchange(*found)


@lie("nonmonotonic-poll inconsistent-offsets")
def a_final_reader_goes_back(told: Told) -> object:
    last: dict[tuple[int, str], Read] = {}
    found = []
    for each in told.answers(final=True):
        reader = (told.ops[each[0]].process, each[2].partition)
        found += [(each, last[reader])] if reader in last else []
        last |= {reader: each[2]} if each[2].records else {}
    chosen = told.one(found)
    return chosen and told.answer(chosen[0], records_of(chosen[1]), start=-1)


@lie("duplicate")
def a_record_is_read_twice(told: Told) -> object:
    if not (found := told.some()):
        return False
    records = records_of(found[2])
    again = (records[-1][0] + 1, *told.rng.choice(records)[1:])
    return told.answer(found, [*records, again], hw=-1)


@lie("duplicate inconsistent-offsets")
def an_acknowledgement_names_the_place_of_another(told: Told) -> object:
    found = told.one(
        (a, b.at)
        for a in told.acked()
        for b in told.acked()
        if a.partition == b.partition and min(a.at, b.at) >= 0 and a.at != b.at
        if len(a.ack.sends) == a.ack.sends[0].count == 1
    )
    return found and told.replaced(
        found[0].ack, sends=(replace(found[0].ack.sends[0], offset=found[1]),)
    )


@lie("future-read")
def a_record_is_sent_after_it_was_read(told: Told) -> object:
    """Let a send of unknown outcome begin behind a read of its record."""
    found = told.one(
        (op, t)
        for op in told.begun.values()
        if op.op not in told.ended and op.f == "send" and len(op.sends) == 1
        for t, name, _, value in told.seen()
        if (name, value) == (op.sends[0].partition, op.sends[0].value)
    )
    if found:
        op, t_us = found
        told.ops.remove(op)
        place = max(n for n, line in enumerate(told.ops) if line.t_us <= t_us) + 1
        told.ops.insert(place, replace(op, t_us=t_us + 1))
        told.ops.sort(key=lambda line: line.t_us)
    return found


def _instead(told: Told, value: Callable[[Read], int | None]) -> object:
    """Let an answer have another value in the place of one."""
    found = told.some()
    if not found or (other := value(found[2])) is None:
        return False
    records = records_of(found[2])
    at = told.rng.randrange(len(records))
    records[at] = (records[at][0], other, records[at][2])
    return told.answer(found, records)


@lie("phantom")
def a_value_that_nobody_sent_is_read(told: Told) -> object:
    return _instead(told, lambda read: NOBODY)


@lie("misrouted phantom")
def a_value_of_another_partition_is_read(told: Told) -> object:
    sent = [s for op in told.begun.values() for s in op.sends]
    return _instead(
        told, lambda read: told.one(s.value for s in sent if s.partition != read.partition)
    )


@lie("aborted-read", dirty=("",))
def what_was_read_was_refused(told: Told) -> object:
    found = told.one(told.single())
    if not found:
        return False
    sends = tuple(replace(s, offset=-1) for s in found.ack.sends)
    return told.replaced(found.ack, type="fail", sends=sends)


@lie("aborted-read", dirty=("",))
def a_record_of_an_aborted_transaction_is_read(told: Told) -> object:
    failed = (s for op in told.ended.values() if op.type == "fail" for s in op.sends)
    aborted = {(s.partition, v) for s in failed for v in values(s)}
    found = told.one(
        (each, (at, value, -1))
        for each in told.answers()
        for at, value in told.places(each[2].partition)
        if (each[2].partition, value) in aborted and len(places(each[2])) > 1
        if places(each[2])[0][0] < at < places(each[2])[-1][0]
    )
    return found and told.answer(found[0], sorted([*records_of(found[0][2]), found[1]]))


@lie("precommitted-read", dirty=("",))
def a_transaction_reads_its_own_record(told: Told) -> object:
    found = told.one(
        (each, (s.offset, s.value, -1))
        for each in told.answers()
        for s in told.ops[each[0]].sends
        if s.partition == each[2].partition and s.offset > max([-1, *dict(places(each[2]))])
    )
    return found and told.answer(found[0], [*records_of(found[0][2]), found[1]], hw=-1)


@lie("unknown", ("own", "json", "edn"))
def an_operation_ends_with_other_sends(told: Told) -> object:
    found = told.one(op for op in told.ended.values() if op.sends and op.type == "ok")
    change = told.one([{"value": NOBODY}, {"partition": "other"}])
    return found and told.replaced(
        found, sends=(*found.sends[1:], replace(found.sends[0], **change))
    )


@lie("divergence", OWN)
def a_record_has_two_epochs(told: Told) -> object:
    seen = [(name, o) for _, name, o, _ in told.seen()]
    found = told.one(
        (each, k)
        for each in told.answers()
        for k, (offset, _) in enumerate(places(each[2]))
        if seen.count((each[2].partition, offset)) > 1
    )
    if not found:
        return False
    (answer, k), records = found, records_of(found[0][2])
    records[k] = (*records[k][:2], records[k][2] + 1)
    return told.answer(answer, records)


@lie("read-beyond-hw", OWN)
def an_answer_states_a_mark_below_its_records(told: Told) -> object:
    found = told.some()
    return found and told.answer(found, hw=places(found[2])[-1][0])


@lie("realtime-order", OWN)
def an_answer_states_a_mark_beyond_the_log(told: Told) -> object:
    later = {(each.partition, each.t0) for each in told.single()}
    found = told.one(
        each
        for each in told.answers()
        if any(n == each[2].partition and t0 > told.ops[each[0]].t_us for n, t0 in later)
    )
    return found and told.answer(found, hw=NOBODY)


@lie("end-below-hw", OWN, transactions=(False,), dirty=("",))
def an_answer_ends_below_its_own_mark(told: Told) -> object:
    """Let an answer be the end of the log, though it states a HW beyond records that were read. A
    send of unknown outcome may be a transaction for which it waits."""
    over = {op.op for op in told.ended.values() if op.type in ("ok", "fail")}
    waits = {s.partition for op in told.begun.values() if op.op not in over for s in op.sends}
    read = [each for each in told.seen() if each[1] not in waits]
    found = told.one(
        (each, at + 1)
        for each in told.answers(final=True)
        if each[2].records
        for t_us, name, at, _ in read
        if name == each[2].partition and at > places(each[2])[-1][0]
        if t_us < told.begun[told.ops[each[0]].op].t_us
    )
    return found and told.answer(found[0], hw=found[1], at_end=True)


@lie("stale-read", OWN)
def an_answer_is_older_than_promised(told: Told) -> object:
    told.promise["staleness_ms"] = told.rng.choice([0, 1, 5])
    bound_us = told.promise["staleness_ms"] * 1000
    found = told.one(
        each
        for each in told.answers()
        for known in told.single()
        if known.partition == each[2].partition
        if known.ack.t_us < told.begun[told.ops[each[0]].op].t_us - bound_us
        if known.at > max([-1, *dict(places(each[2]))])
    )
    if not found:
        return False
    return told.answer(found, hw=max([0, *(o + 1 for o, _ in places(found[2]))]), at_end=False)


def judge(name: str, seed: int) -> str | None:
    """Tell a lie about a history, in any of its forms, and say what is wrong with the verdict; None
    if there is no room for it. Every other history is disguised, the rest is judged as defined."""
    one = LIES[name]
    form = one.forms[seed % len(one.forms)]
    told = Told(f"{name} {seed}", form, one.traits)
    if not one.tell(told):
        return None
    with tempfile.TemporaryDirectory() as folder:
        place, seeks = Path(folder) / "history", told.history.seeks
        if form == "tables" or seed // len(one.forms) % 2:
            fixed = {name: each[0] for name, each in one.traits.items()}
            disguise = Disguise(seed, jepsen=told.jepsen, **fixed)
            made = disguise.written(form, place, told.ops, told.promise, seeks)
            return _wrong(check_run(made), one.shows, told.promise)
        s = told.history.story()
        s.promise_only(acks=-1, contiguous_offsets=False)
        s.promise(**told.promise)
        s.history = told.ops
        result, s = judged(form, s, seeks, place)
        said = _wrong(result, one.shows, told.promise)
        return said if "unknown" in one.shows else said or compared(result, s)


def _wrong(result: RunResult, shows: Collection[str], promise: Mapping[str, Any]) -> str:
    open_ended = not shows and {"retention", "compaction"} & promise.keys() and not result.problems
    unknown = result.verdict is Verdict.UNKNOWN and not open_ended
    blamed = {*against(result)} | ({"unknown"} if unknown else set())
    if shows:
        return "" if blamed & {*shows} else f"{sorted(blamed)}: {result.sentence}"
    return "" if not blamed else result.sentence
