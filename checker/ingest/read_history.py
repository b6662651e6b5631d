"""Reading of a history into the tables ops, sends and reads.

One pass, which holds only the operations that have not completed. Some thousand lines at a time
are joined into operations (`checker.ingest.join`) and become columns (`checker.ingest.join`). A
line that cannot be read, and lines that break a rule of a history, are reported in a sentence, and
the rest is read.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from checker.evidence.columns import Rows, rows
from checker.evidence.facts import OP_KINDS, HistoryParts, Outcome
from checker.ingest import join, tables
from checker.ingest.counts import tallied
from checker.ingest.group_rows import GroupRows, group_facts
from checker.ingest.join import DAMAGE, HistoryColumns, Joined, OperationJoin, Said
from checker.ingest.lines import Line
from checker.ingest.read_tables import facts_in
from checker.ingest.source import FileReader, Ingested, Source, why
from checker.ingest.tables import Columns
from harness.formats.history import (
    GROUP_KINDS,
    Delivered,
    GroupPosition,
    Op,
    OpType,
    Read,
    RecordRun,
    Send,
)
from node.formats.json_input import JsonReader, Unreadable
from node.formats.trace import METADATA_PARTITION


class _StrictRun(RecordRun, frozen=True, array_like=True, forbid_unknown_fields=True): ...


class _StrictSend(Send, frozen=True, kw_only=True, forbid_unknown_fields=True): ...


class _StrictRead(Read, frozen=True, kw_only=True, forbid_unknown_fields=True):
    records: tuple[_StrictRun, ...] = ()


class _StrictDelivered(Delivered, frozen=True, kw_only=True, forbid_unknown_fields=True): ...


class _StrictPosition(GroupPosition, frozen=True, kw_only=True, forbid_unknown_fields=True): ...


class StrictOp(Op, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sends: tuple[_StrictSend, ...] = ()
    reads: tuple[_StrictRead, ...] = ()
    deliveries: tuple[_StrictDelivered, ...] = ()
    positions: tuple[_StrictPosition, ...] = ()


strict = JsonReader(StrictOp, keys_once=True)
"""The decoder of lines without unknown fields."""
_lenient = JsonReader(Op, keys_once=True)
NOTE: Final = "note"
_MOVES: Final = ("assign", "subscribe", "crash")
JOINED_AT_A_TIME: Final = 50_000
ROWS_A_PART: Final = 1_000_000
_PARTS: Final = ("ops", "sends", "reads")
_BEHIND: Final = 1 << 62
"""The row of a sentence behind all rows of a part."""


class Strange(NamedTuple):
    """A line of an operation of a kind that no check knows. `doer` is what pairs its two lines: its
    number, or its process."""

    line: int
    f: str
    type: str
    doer: int | None


class _AnyKind(msgspec.Struct, frozen=True):
    op: int
    type: OpType
    f: str


_any_kind = JsonReader(_AnyKind)


class Reader(FileReader[Op]):
    """A reader of single lines, which joins them into operations and collects rows of tables."""

    form = strict

    def __init__(self, source: Source, into: Ingested) -> None:
        super().__init__(source, into)
        self.join = OperationJoin(partial=source.range is not None)
        # lines that wait to be joined, and the first of them in front of which lines are missing
        self.pending: list[Op] = []
        self.numbers: list[int] = []
        self.lost_at: int | None = None
        # sentences about lines in front of a row of those
        self.said: list[Said] = []
        # partitions a process ever used, to know which of them an assignment drops
        self.used: dict[int, set[str]] = {}
        # operations of unknown outcome that sent to several partitions
        self.unknown: dict[int, list[Send]] = {}
        # an operation of an unknown kind, and what follows it
        self.strange: Strange | None = None
        self.held: list[tuple[int, Op] | Strange] = []
        # columns of the operations that were joined, by table
        self.parts: dict[str, list[Columns]] = {name: [] for name in _PARTS}
        # how many were found; a large history writes them in parts
        self.found = self.written = 0
        self.write: Callable[[str, Columns], None] | None = None
        # assignments and crashes with the partitions that are kept, and other operations with
        # those that a rebalance moved while the operation read nothing of them
        self.moves: list[tuple[Op, int, int, tuple[str, ...], frozenset[str]]] = []
        promise = into.meta.promise
        self.isolation = promise.isolation
        self.groups = GroupRows(promise.groups.rebalance_ms if promise.groups else 0)
        phases = into.meta.phases
        self.origin_us = phases.storm_us or phases.start_us

    def refuse(self, line: Line, error: Unreadable) -> None:
        """Take an operation without its unknown fields; report a line that is no operation."""
        try:
            op = _lenient.decode(line.data)
        except Unreadable as reason:
            with contextlib.suppress(Unreadable):
                if (found := _any_kind.decode(line.data)).f not in OP_KINDS:
                    self.meet(Strange(line.number, f'"{found.f}"', found.type, found.op))
                    return
            if line.whole:
                self.lose("line", f"line {line.number} is not an operation: {why(reason)}.")
            else:
                self.lose("line", f"ends in half a line (line {line.number}), left out.")
            return
        self.say(NOTE, f"line {line.number}: ignored: {why(error)}.")
        self.take(line.number, op)

    def lose(self, kind: str, sentence: str) -> None:
        """Report a line that is left out."""
        self.say(kind, sentence)
        if self.lost_at is None:
            self.lost_at = len(self.pending)

    def say(self, kind: str, sentence: str) -> None:
        """Report something in front of the next line."""
        self.said.append(Said(len(self.pending), kind, sentence))

    def meet(self, found: Strange) -> None:
        """Take a line of an operation of an unknown kind. What follows it may be an effect of it
        and waits, until it is known to have failed."""
        if self.strange is None:
            if found.type != "fail":
                self.strange = found
            return
        if found.doer != self.strange.doer:
            self.held.append(found)
        elif found.type != "fail":
            self.strange = self.strange._replace(doer=None)
        else:
            held, self.held, self.strange = self.held, [], None
            for each in held:
                if isinstance(each, Strange):
                    self.meet(each)
                else:
                    self.take(*each)

    def give_up(self) -> None:
        """Leave out what follows an operation of an unknown kind."""
        if (found := self.strange) is None:
            return
        self.held.clear()
        self.lose(
            "kind",
            f"line {found.line} is an operation that the checker does not know, {found.f}: what it "
            "does to a log is unknown, so nothing behind it is judged.",
        )

    def take(self, number: int, op: Op) -> None:
        """Take the operation on one line."""
        if self.strange is not None:
            self.held.append((number, op))
            return
        self.pending.append(op)
        self.numbers.append(number)
        if len(self.pending) >= JOINED_AT_A_TIME:
            self.end_part()

    def take_all(self, entries: Sequence[Op], first: int = 1, text: bytes = b"") -> None:
        """Take the operations on successive lines."""
        self.take_some(range(first, first + len(entries)), entries)

    def take_some(self, numbers: Sequence[int], ops: Sequence[Op]) -> None:
        """Take the operations on the lines with these numbers."""
        if self.strange is not None:
            for each in zip(numbers, ops, strict=True):
                self.take(*each)
            return
        self.pending.extend(ops)
        self.numbers.extend(numbers)
        if len(self.pending) >= JOINED_AT_A_TIME:
            self.end_part()

    def problem(self, kind: str, sentence: str) -> None:
        """Report a problem, after those of the lines in front of it."""
        self.end_part()
        super().problem(kind, sentence)

    def end_part(self, *, last: bool = False) -> None:
        """Join the operations on the lines that wait, and turn them into columns; if they are the
        `last`, also those that never end."""
        said, self.said = self.said, []
        if self.pending or last:
            ops, numbers, lost = self.pending, self.numbers, self.lost_at
            self.pending, self.numbers, self.lost_at = [], [], None
            found, more = self.join.take(ops, numbers, lost, last=last)
            said += more
            self.add(found, said)
        elif self.lost_at is not None:
            self.join.lines_lost, self.lost_at = True, None
        for _, kind, sentence in sorted(said, key=lambda each: each.row):
            if kind == NOTE:
                self.into.problems.note(f"{self.name} {sentence}")
            elif kind == DAMAGE:
                self.damage(sentence)
            else:
                super().problem(kind, sentence)

    def judge_whole(self, numbered: bool) -> None:
        """Report missing lines that only the whole history shows, such as a missing operation
        number; `numbered`: the operations have all numbers from 0 on. Not for histories of other
        tools."""
        phases = self.into.meta.phases
        # The clients ended before the cluster, even if the harness was killed later.
        whole = self.into.meta.state == "finished" or phases.end_us > 0
        if self.into.meta.source or not whole or self.join.lines_lost:
            return
        if not numbered:
            self.problem("number", "lacks an operation: the numbers of its operations have a gap.")
        if not self.join.last_us:
            return  # That it is empty has a sentence of its own.
        last_us = max(self.join.last_us.values())
        # If the end is not known either, the final reads may have been made.
        if last_us < phases.final_us and (not phases.end_us or phases.final_us < phases.end_us):
            self.problem(
                "cut",
                f"ends {(phases.final_us - last_us) / 1e6:.3f} s before the final reads began.",
            )

    def add(self, found: Joined, said: list[Said]) -> None:
        """Add operations to the columns, and what is wrong with them to `said`."""
        self.found += len(found)
        made = HistoryColumns(found, self.isolation, self.origin_us)
        self.note_marks(found, made)
        for table in (made.sends, made.reads):
            process, named = table["process"].tolist(), table["partition"]
            for each, code in set(zip(process, named.codes.tolist(), strict=True)):
                self.used.setdefault(each, set()).add(named.words[code])
        lines = found.lines
        asks = lines.are("f", *GROUP_KINDS, *_MOVES) | ~lines.are("group", "")
        moved = ~lines.are("rebalanced", ())
        more = asks[found.first] | (moved[found.last] & (found.ended >= 0))
        for nth in np.flatnonzero(more).tolist():
            self.add_other(found, nth, said)
        for name in _PARTS:
            self.parts[name].append(getattr(made, name))
        if self.write is not None and self.found - self.written >= ROWS_A_PART:
            for name, parts in self.parts.items():
                self.write(name, join.joint(parts))
                parts.clear()
            self.written = self.found

    def note_marks(self, found: Joined, made: HistoryColumns) -> None:
        """Note what shows in these operations."""
        sent, lines = found.sent, found.lines
        if ((sent > 1) | ((sent > 0) & (made.reads_of_op > 0))).any():
            self.join.marks.add("transactions")
        if (made.ops["final"] & lines.are("f", "poll", "txn")[found.first]).any():
            self.join.marks.add("final_reads")
        unknown = (found.ended < 0) | lines.are("type", "info")[found.last]
        for nth in np.flatnonzero(unknown & (sent > 1)).tolist():
            begin = int(sent[:nth].sum())
            sends = found.sends[begin : begin + int(sent[nth])]
            if len({send.partition for send in sends}) > 1:
                self.unknown[int(made.ops["op"][nth])] = sends

    def add_other(self, found: Joined, nth: int, said: list[Said]) -> None:
        """Add what one of these operations did beside sending and reading."""
        ops = found.lines.ops
        op, end = ops[found.first[nth]], int(found.ended[nth])
        done = ops[end] if end >= 0 else None
        outcome = done.type if done else "info"
        begun = ops[found.begun[nth]].t_us if found.begun[nth] >= 0 else join.NO_TIME
        ended = done.t_us if done else join.NO_TIME
        # One that never ends is known to do so behind the last line only.
        row, line = int(found.last[nth]) if done else _BEHIND, int(found.end_line[nth])
        if op.group:
            common = (op.process, op.client, outcome, begun, ended)
            said.extend(Said(row, *each) for each in self.add_of_group(op, done, common, line))
            return
        if op.f in GROUP_KINDS:
            what = f"operation {op.op} is a {op.f} of no group: name its group."
            said.append(Said(row, "group", what))
        if op.f in _MOVES or (done and done.rebalanced):
            moved = frozenset(done.rebalanced if done else ())
            if outcome == "ok":
                # Behind records that it returned its position is known again.
                reads = (done or op).reads
                moved = moved.difference(read.partition for read in reads if read.records)
            self.note_move(op, outcome, (begun, ended), moved)

    def add_of_group(
        self, op: Op, done: Op | None, common: tuple[Any, ...], line: int
    ) -> Iterator[tuple[str, str]]:
        """Add what a member of a group did; yield what no member can do."""
        begun, ended = common[3:]
        since_us = done.since_us if done and done.since_us >= 0 else op.since_us
        for wrong, words in (
            (not op.member, "names no member"),
            (done and (done.group, done.member) != (op.group, op.member), "ends as of another"),
            (since_us > ended >= 0, "was given records that left the system after its end"),
        ):
            if wrong:
                where = f"line {line}: " if line else ""
                yield "group", f"{where}operation {op.op} of group {op.group} {words}."
        if self.into.meta.promise.groups is None and not self.groups.rows:
            yield (
                NOTE,
                f"tells of group {op.group}, and the promise says nothing of groups: "
                "what they were given is not judged. State `groups` in the promise.",
            )
        self.groups.add(op, done, common, since_us if since_us >= 0 else begun)

    @property
    def partitions(self) -> set[str]:
        """The partitions that any operation used or that run.json names."""
        return set().union(self.into.meta.partitions, *self.used.values())

    def note_move(self, op: Op, outcome: str, when: tuple[int, int], moved: frozenset[str]) -> None:
        """Note an assignment that may have worked, or a crash: positions are dropped, also those
        in partitions that were `moved` while it ran."""
        if op.f == "crash" or (op.f in ("assign", "subscribe") and outcome != "fail"):
            kept = () if op.f == "crash" else op.partitions
            kept = tuple(name for name in kept if name not in moved)
            self.moves.append((op, *when, kept, frozenset()))
        elif moved:
            self.moves.append((op, *when, (), moved))

    def resets(self) -> Iterator[tuple[int, str, int, int, int, int, int]]:
        """Yield `assigns`: a row for each assignment or crash and partition of its process, and for
        each partition that a rebalance moved while its process did something else."""
        subscribed: dict[int, int] = {}
        for op, begun, ended, kept, moved in self.moves:
            if op.f in ("assign", "subscribe", "crash"):
                subscribed[op.process] = int(op.f == "subscribe")
            of_process = (op.process, begun, ended, subscribed.get(op.process, 0))
            for partition in sorted(moved or self.used.get(op.process, set()).union(kept)):
                yield op.op, partition, *of_process, int(partition in kept)


def finish(reader: Reader) -> None:
    """Judge a history that was read to its end; add its tables and facts to `reader.into`."""
    source, into = reader.source, reader.into
    end(reader)
    if not reader.found and not reader.damaged:
        reader.problem("empty", "has no operation in it: there is nothing to judge.")
    columns = all_columns(reader)
    run = into.meta.run
    if into.whole_tables:
        into.tables |= {n: tables.from_columns(n, run, own) for n, own in columns.items()}
        if reader.groups.rows:
            into.tables["groups"] = group_table(reader, run)
    if into.counts:
        wanted = ("ops", "sends") if into.whole_tables or into.injected else ("ops",)
        into.tables |= tallied(run, {name: columns[name] for name in wanted}, into.injected)
    into.facts.extend(_facts(source.run, reader, columns))


def end(reader: Reader) -> None:
    """Add what has no completion, when all lines are read; report what only the whole shows."""
    reader.give_up()
    reader.end_part(last=True)
    reader.judge_whole(not reader.join.seen.have_gaps())


def all_columns(reader: Reader) -> dict[str, Columns]:
    """Return the columns of all operations by table."""
    made = {name: join.joint(parts) for name, parts in reader.parts.items()}
    if certain := implied_commits(reader, made["reads"]):
        proved = [certain.get(op, -1) for op in made["sends"]["op"].tolist()]
        made["sends"] = {**made["sends"], "proved_us": join.numbers(proved)}
    resets = [*reader.resets()]
    names = ("op", "partition", "process", "invoke_us", "complete_us", "subscribed", "named")
    found = dict(zip(names, zip(*resets, strict=True), strict=True)) if resets else {}
    reader.groups.close(reader.partitions)
    made["assigns"] = {
        name: join.words(found.get(name, ()))
        if name == "partition"
        else np.array(found.get(name, ()), bool if name in names[-2:] else np.int64)
        for name in names
    }
    return made


def _facts(run: int, reader: Reader, columns: Mapping[str, Columns]) -> Iterator[Rows]:
    """Yield the facts of a history."""
    seen = {word for name in ("sends", "reads") for word in columns[name]["partition"].words}
    # Also a partition that was only ever assigned, or moved, has a history.
    seen = seen.union(reader.groups.partitions, *({*k, *m} for *_, k, m in reader.moves))
    partitions = sorted(seen | {*reader.into.meta.partitions, METADATA_PARTITION, ""})
    marks = reader.join.marks | ({"groups"} if reader.groups.rows else set())
    about = dict.fromkeys(marks, 1)
    yield rows(HistoryParts, run, partitions, whole=not reader.damaged, **about)
    if turns := _turns(reader):
        places = {n: [turns.get(op, -1) for op in own["op"].tolist()] for n, own in columns.items()}
        columns = {n: {**own, "turn": join.numbers(places[n])} for n, own in columns.items()}
    for name, own in columns.items():
        yield from facts_in(name, run, own, reader.into.meta)
    if reader.groups.rows:
        yield from group_facts(run, tables.all_columns_of(group_table(reader, "")))


def _turns(reader: Reader) -> dict[int, int]:
    """Return the place of each operation by time and line; nothing if the numbers of each process's
    operations rise in that order."""
    if reader.join.in_turn:
        return {}
    t_us, ops = map(np.concatenate, zip(*reader.join.invoked, strict=True))
    in_order = ops[np.argsort(t_us, kind="stable")].tolist()
    return {op: place for place, op in enumerate(in_order)}


def group_table(reader: Reader, run: str) -> pa.Table:
    """Return what members of groups did as a table of the run `run`."""
    return tables.from_rows("groups", ((run, *row) for row in reader.groups.rows))


def implied_commits(reader: Reader, reads: Columns) -> dict[int, int]:
    """Return the operations of unknown outcome that took effect, each with the time when the first
    committed read or delivery of a record of theirs ended: one record proves its whole operation
    (inside a partition `checker.evidence.contents` sees this)."""
    claims: dict[str, list[tuple[int, int]]] = {}
    for op, sends in reader.unknown.items():
        for send in sends:
            claimed = claims.setdefault(send.partition, [])
            claimed.extend((send.value + k, op) for k in range(send.count))
    # With read_uncommitted a record may be of an operation that aborts.
    clean = (join.outcomes(reads["outcome"]) == Outcome.OK) & ~reads["uncommitted"]
    codes, words = reads["partition"]
    clean &= np.array([word in claims for word in words], bool)[codes]
    names = [words[code] for code in codes[clean].tolist()]
    columns = (reads[name][clean].tolist() for name in ("value", "count", "complete_us"))
    for claimed in claims.values():
        claimed.sort()
    found: dict[int, int] = {}
    for partition, value, count, t_us in chain(
        reader.groups.delivered, zip(names, *columns, strict=True)
    ):
        claimed = claims.get(partition, [])
        end = bisect_left(claimed, (value + count,))
        for _, op in claimed[bisect_left(claimed, (value,)) : end]:
            found[op] = min(t_us, found.get(op, t_us))
    return found
