"""Reading of a history into the tables ops, sends and reads: each operation is joined with its
completion.

One pass, which holds only the operations that have not completed. Others become columns, some
thousand at a time (`checker.ingest.joined`). A line that cannot be read, a completion without an
invocation, a second completion, a clock that goes back: each is reported in a sentence, and the
rest is read.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, get_args

import msgspec
import numpy as np
import pyarrow as pa

from checker.evidence.columns import Rows, rows
from checker.evidence.facts import HistoryParts, Outcome, Polls, Resets, Sends
from checker.ingest import joined, tables
from checker.ingest.counts import tallied
from checker.ingest.downsampling import downsample_operations
from checker.ingest.group_rows import GroupRows, group_facts
from checker.ingest.joined import Columns, HistoryColumns, Joined
from checker.ingest.lines import Line
from checker.ingest.row_group import whole
from checker.ingest.source import FileReader, Ingested, LineNumbers, Source, why
from harness.formats.history import (
    GROUP_KINDS,
    Delivered,
    GroupPosition,
    Op,
    OpKind,
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
_KINDS: Final = get_args(OpKind)
_MOVES: Final = ("assign", "subscribe", "crash")
LATE_KINDS: Final = ("send", "poll", "txn")
"""The operations that may take effect late, so that their process must not go on after an info."""
JOINED_AT_A_TIME: Final = 20_000
ROWS_A_PART: Final = 1_000_000
_PARTS: Final = ("ops", "sends", "reads")


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


class MetNumbers:
    """The numbers of operations that were met: all below `below`, and `others`."""

    def __init__(self) -> None:
        self.below, self.others = 0, set[int]()

    def __contains__(self, number: int) -> bool:
        return 0 <= number < self.below or number in self.others

    def add(self, number: int) -> None:
        """Note that a number was met."""
        if number == self.below:
            self.below += 1
        else:
            self.others.add(number)
        while self.others and self.below in self.others:
            self.others.remove(self.below)
            self.below += 1


class Reader(FileReader[Op]):
    """A reader of single lines, which joins them into operations and collects rows of tables."""

    form = strict

    def __init__(self, source: Source, into: Ingested) -> None:
        super().__init__(source, into)
        # If lines are lost, half an operation may be missing, which is no further mistake.
        self.lines_lost = False
        self.numbers = LineNumbers()
        self.open: dict[int, Op] = {}
        # the line of each operation in flight
        self.lines: dict[int, int] = {}
        self.seen = MetNumbers()
        self.last_us: dict[int, int] = {}
        # partitions a process ever used, to know which of them an assignment drops
        self.used: dict[int, set[str]] = {}
        # operations of unknown outcome that sent to several partitions
        self.unknown: dict[int, list[Send]] = {}
        # what shows in the history: names of flags of `HistoryParts`
        self.marks: set[str] = set()
        # processes whose last operation has not ended, or ended with an unknown outcome
        self.busy: dict[int, int] = {}
        self.retired: set[int] = set()
        # an operation of an unknown kind, and what follows it
        self.strange: Strange | None = None
        self.held: list[tuple[int, Op] | Strange] = []
        # the time and number of every invocation, in order of line; by process the last operation;
        # whether their numbers rise in that order
        self.invoked_us, self.invoked_op = array("q"), array("q")
        self.last_op: dict[int, int] = {}
        self.in_turn = True
        self.joined: list[Joined] = []
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
                if (found := _any_kind.decode(line.data)).f not in _KINDS:
                    self.meet(Strange(line.number, f'"{found.f}"', found.type, found.op))
                    return
            self.lines_lost = True
            if line.whole:
                self.problem("line", f"line {line.number} is not an operation: {why(reason)}.")
            else:
                self.problem("line", f"ends in half a line (line {line.number}), left out.")
            return
        self.into.problems.note(f"{self.name} line {line.number}: ignored: {why(error)}.")
        self.take(line.number, op)

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
        self.lines_lost = True
        self.held.clear()
        self.problem(
            "kind",
            f"line {found.line} is an operation that the checker does not know, {found.f}: what it "
            "does to a log is unknown, so nothing behind it is judged.",
        )

    def take(self, number: int, op: Op) -> None:
        """Take the operation on one line; an invocation waits for its completion."""
        if self.strange is not None:
            self.held.append((number, op))
            return
        if op.seq == self.numbers.next and op.seq >= 0:
            self.numbers.next = op.seq + 1
        elif gap := self.numbers.gap(op.seq):
            self.damage(f"line {number}: {gap}.")
        last = self.last_us.get(op.process, op.t_us)
        if op.t_us < last:
            self.marks.add("clock_back")
            self.problem(
                "time",
                f"line {number}: time goes back by {last - op.t_us} us within "
                f"process {op.process}.",
            )
        self.last_us[op.process] = op.t_us
        if op.type == "invoke":
            self.note_turn(number, op)
            if op.op in self.seen:
                self.problem("twice", f"line {number}: operation {op.op} is invoked twice.")
                self.lines_lost = True
            else:
                self.seen.add(op.op)
                self.open[op.op] = op
                self.lines[op.op] = number
            return
        invoked = self.open.pop(op.op, None)
        if invoked is None:
            if op.op in self.seen:
                self.problem(
                    "twice",
                    f"line {number}: operation {op.op} is completed twice; "
                    "the first completion counts.",
                )
                return
            self.seen.add(op.op)
            if not self.lines_lost:
                message = f"line {number}: operation {op.op} ends but was never invoked."
                self.problem("orphan", message)
        elif (invoked.process, invoked.f) != (op.process, op.f):
            self.problem(
                "other",
                f"line {number}: operation {op.op} ends as {op.f} of process {op.process}, "
                f"but was invoked as {invoked.f} of process {invoked.process}.",
            )
        if self.busy.get(op.process) == op.op:
            del self.busy[op.process]
        if op.type == "info" and op.f in LATE_KINDS:
            self.retired.add(op.process)
        self.add(invoked, op, number)

    def note_turn(self, number: int, op: Op) -> None:
        """Note that a process invoked an operation, to know the order of its operations. Report one
        that goes on although its last operation has not ended, or has an unknown outcome."""
        self.invoked_us.append(op.t_us)
        self.invoked_op.append(op.op)
        if self.last_op.get(op.process, op.op) > op.op:
            self.in_turn = False
        last = self.busy.get(op.process)
        if last is None and op.process in self.retired:
            last = self.last_op.get(op.process)
        if last is not None and last != op.op and not self.lines_lost:
            self.marks.add("overlap")
            how = "its outcome is unknown" if op.process in self.retired else "it has not ended"
            self.problem(
                "overlap",
                f"line {number}: process {op.process} invokes operation {op.op} after operation "
                f"{last}, and {how}. A process does one operation after another: give each thread "
                "a process number of its own, and a new one after an info.",
            )
        self.last_op[op.process] = self.busy[op.process] = op.op

    def judge_whole(self, numbered: bool) -> None:
        """Report missing lines that only the whole history shows, such as a missing operation
        number; `numbered`: the operations have all numbers from 0 on. Not for histories of other
        tools."""
        phases = self.into.meta.phases
        # The clients ended before the cluster, even if the harness was killed later.
        whole = self.into.meta.state == "finished" or phases.end_us > 0
        if self.into.meta.source or not whole or self.lines_lost:
            return
        if not numbered:
            self.problem("number", "lacks an operation: the numbers of its operations have a gap.")
        if not self.last_us:
            return  # That it is empty has a sentence of its own.
        last_us = max(self.last_us.values())
        # If the end is not known either, the final reads may have been made.
        if last_us < phases.final_us and (not phases.end_us or phases.final_us < phases.end_us):
            self.problem(
                "cut",
                f"ends {(phases.final_us - last_us) / 1e6:.3f} s before the final reads began.",
            )

    def add(self, invoked: Op | None, done: Op | None, line: int = 0) -> None:
        """Add one operation, with or without its completion (on the line `line`)."""
        op = invoked or done
        assert op is not None
        sends = _sends(invoked, done)
        if sends is None:
            self.problem("other", f"operation {op.op} ends with sends that it did not invoke.")
            sends, done = op.sends, None
        outcome = done.type if done else "info"
        reads = (done or op).reads
        if len(sends) > 1 or (sends and reads):
            self.marks.add("transactions")
        if op.f in ("poll", "txn") and (op.final or (done is not None and done.final)):
            self.marks.add("final_reads")
        if outcome == "info" and len(sends) > 1 and len({send.partition for send in sends}) > 1:
            self.unknown[op.op] = list(sends)
        used = self.used.get(op.process)
        if used is None:
            used = self.used[op.process] = set()
        used.update(send.partition for send in sends)
        used.update(read.partition for read in reads)
        lines = (
            self.lines.pop(op.op, 0) or (invoked.seq + 1 if invoked else 0),
            line or (done.seq + 1 if done else 0),
        )
        self.joined.append(Joined(invoked, done, lines, sends))
        self.found += 1
        if len(self.joined) >= JOINED_AT_A_TIME:
            self.end_part()
        begun = invoked.t_us if invoked else joined.NO_TIME
        ended = done.t_us if done else joined.NO_TIME
        if op.group:
            self.add_of_group(op, done, (op.process, op.client, outcome, begun, ended), line)
            return
        if op.f in GROUP_KINDS:
            self.problem("group", f"operation {op.op} is a {op.f} of no group: name its group.")
        if op.f in _MOVES or (done and done.rebalanced):
            moved = frozenset(done.rebalanced if done else ())
            if outcome == "ok":
                # Behind records that it returned its position is known again.
                moved = moved.difference(read.partition for read in reads if read.records)
            self.note_move(op, outcome, (begun, ended), moved)

    def end_part(self) -> None:
        """Turn the operations that are joined into columns."""
        made = HistoryColumns(self.joined, self.isolation, self.origin_us)
        self.joined.clear()
        for name in _PARTS:
            self.parts[name].append(getattr(made, name))
        if self.write is not None and self.found - self.written >= ROWS_A_PART:
            for name, parts in self.parts.items():
                self.write(name, joined.joint(parts))
                parts.clear()
            self.written = self.found

    def add_of_group(self, op: Op, done: Op | None, common: tuple[Any, ...], line: int) -> None:
        """Add what a member of a group did; report what no member can do."""
        begun, ended = common[3:]
        since_us = done.since_us if done and done.since_us >= 0 else op.since_us
        for wrong, words in (
            (not op.member, "names no member"),
            (done and (done.group, done.member) != (op.group, op.member), "ends as of another"),
            (since_us > ended >= 0, "was given records that left the system after its end"),
        ):
            if wrong:
                where = f"line {line}: " if line else ""
                self.problem("group", f"{where}operation {op.op} of group {op.group} {words}.")
        if self.into.meta.promise.groups is None and not self.groups.rows:
            self.into.problems.note(
                f"{self.name} tells of group {op.group}, and the promise says nothing of groups: "
                "what they were given is not judged. State `groups` in the promise."
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


def _sends(invoked: Op | None, done: Op | None) -> Sequence[Send] | None:
    """Return the sends as invoked, with the completion's offsets; None if its sends differ."""
    if invoked is None or done is None or not done.sends:
        return invoked.sends if invoked else done.sends if done else ()
    if len(invoked.sends) == len(done.sends) == 1:
        (asked,), (sent,) = invoked.sends, done.sends
        if (asked.partition, asked.value, asked.count) != (sent.partition, sent.value, sent.count):
            return None
        return done.sends if sent.offset >= 0 and asked.acks == sent.acks else _with(asked, sent)
    offsets = {(send.partition, send.value, send.count): send.offset for send in done.sends}
    made = []
    for send in invoked.sends:
        offset = offsets.pop((send.partition, send.value, send.count), -1)
        made.append(msgspec.structs.replace(send, offset=offset) if offset >= 0 else send)
    return made if not offsets else None


def _with(asked: Send, sent: Send) -> Sequence[Send]:
    """Return a send as invoked, with the offset of the completion if it says one."""
    return (msgspec.structs.replace(asked, offset=sent.offset) if sent.offset >= 0 else asked,)


def finish(reader: Reader) -> None:
    """Judge a history that was read to its end; add its tables and facts to `reader.into`."""
    source, into = reader.source, reader.into
    end(reader)
    if not reader.found and not reader.damaged:
        reader.problem("empty", "has no operation in it: there is nothing to judge.")
    columns = all_columns(reader)
    wanted = {"ops"} if into.counts or into.whole_tables else set()
    if into.whole_tables or (into.counts and into.injected):
        wanted.add("sends")
    if into.whole_tables:
        wanted |= {"reads", "assigns"}
        if reader.groups.rows:
            into.tables["groups"] = group_table(reader, into.meta.run)
    run = into.meta.run
    for name in wanted:
        into.tables[name] = joined.table(name, run, columns[name])
    if into.counts:
        counted = {name: whole(into.tables[name]) for name in wanted}
        into.tables |= tallied(run, counted, into.injected)
    into.facts.extend(_facts(source.run, reader, columns))


def end(reader: Reader) -> None:
    """Add what has no completion, when all lines are read; report what only the whole shows."""
    reader.give_up()
    reader.judge_whole(not reader.seen.others)
    for invoked in reader.open.values():
        reader.add(invoked, None)
    reader.end_part()


def all_columns(reader: Reader) -> dict[str, Columns]:
    """Return the columns of all operations by table."""
    made = {name: joined.joint(parts) for name, parts in reader.parts.items()}
    if certain := implied_commits(reader, made["reads"]):
        proved = [certain.get(op, -1) for op in made["sends"]["op"].tolist()]
        made["sends"] = {**made["sends"], "proved_us": joined.numbers(proved)}
    resets = [*reader.resets()]
    names = ("op", "partition", "process", "invoke_us", "complete_us", "subscribed", "named")
    found = dict(zip(names, zip(*resets, strict=True), strict=True)) if resets else {}
    reader.groups.close(reader.partitions)
    made["assigns"] = {
        name: joined.words(found.get(name, ()))
        if name == "partition"
        else np.array(found.get(name, ()), bool if name in names[-2:] else np.int64)
        for name in names
    }
    return made


def _facts(run: int, reader: Reader, columns: Mapping[str, Columns]) -> Iterator[Rows]:
    """Yield the facts of a history."""
    ops = columns["ops"]
    seen = {word for name in ("sends", "reads") for word in columns[name]["partition"].words}
    # Also a partition that was only ever assigned, or moved, has a history.
    seen = seen.union(reader.groups.partitions, *({*k, *m} for *_, k, m in reader.moves))
    partitions = sorted(seen | {*reader.into.meta.partitions, METADATA_PARTITION, ""})
    marks = {*reader.marks} | ({"groups"} if reader.groups.rows else set())
    about = dict.fromkeys(marks, 1)
    yield rows(HistoryParts, run, partitions, whole=not reader.damaged, **about)
    given = {name: ops[name] for name in ("invoke_us", "complete_us", "sent", "polled", "step")}
    outcome = joined.outcomes(ops["outcome"])
    yield from downsample_operations(run, reader.into.meta, outcome=outcome, **given)
    if reader.groups.rows:
        yield from group_facts(run, whole(group_table(reader, "")))
    turns = _turns(reader)
    for kind, table in ((Sends, "sends"), (Polls, "reads"), (Resets, "assigns")):
        own = dict(columns[table])
        if not len(own["op"]):
            continue
        if "outcome" in own:
            own["outcome"] = joined.outcomes(own["outcome"])
        if turns:
            own["turn"] = joined.numbers([turns.get(op, -1) for op in own["op"].tolist()])
        partition = own.pop("partition")
        yield rows(kind, run, partition, **{n: own[n] for n in kind.columns.keys() & own.keys()})


def _turns(reader: Reader) -> dict[int, int]:
    """Return the place of each operation by time and line; nothing if the numbers of each process's
    operations rise in that order."""
    if reader.in_turn:
        return {}
    in_order = np.argsort(np.array(reader.invoked_us, np.int64), kind="stable").tolist()
    return {reader.invoked_op[row]: place for place, row in enumerate(in_order)}


def group_table(reader: Reader, run: str) -> pa.Table:
    """Return what members of groups did as a table of the run `run`."""
    return tables.from_rows("groups", ((run, *row) for row in reader.groups.rows))


def implied_commits(reader: Reader, reads: Columns) -> dict[int, int]:
    """Return the operations of unknown outcome that took effect, because a committed read or a
    delivery returned a record of theirs, each with the time when the first such read ended."""
    if not reader.unknown:
        return {}
    # With read_uncommitted a record may be of an operation that aborts.
    clean = (joined.outcomes(reads["outcome"]) == Outcome.OK) & ~reads["uncommitted"]
    partition = reads["partition"]
    names = [partition.words[code] for code in partition.codes[clean].tolist()]
    columns = (reads[name][clean].tolist() for name in ("value", "count", "complete_us"))
    runs = zip(names, *columns, strict=True)
    return _implied_commits(reader.unknown, chain(reader.groups.delivered, runs))


def _implied_commits(
    unknown: Mapping[int, Sequence[Send]], runs: Iterable[tuple[str, int, int, int]]
) -> dict[int, int]:
    """Return the operations of unknown outcome that took effect: one record that was read proves
    its whole operation. `unknown`: the sends of operations that sent to several partitions (inside
    a partition `checker.evidence.contents` sees this); `runs`: what ok reads returned, as
    partition, first value, count and time."""
    claims: dict[str, list[tuple[int, int]]] = {}
    for op, sends in unknown.items():
        for send in sends:
            claims.setdefault(send.partition, []).extend(
                (send.value + k, op) for k in range(send.count)
            )
    for claimed in claims.values():
        claimed.sort()
    found: dict[int, int] = {}
    for partition, value, count, t_us in runs:
        claimed = claims.get(partition, [])
        at = bisect_left(claimed, (value,))
        while at < len(claimed) and claimed[at][0] < value + count:
            op = claimed[at][1]
            found[op] = min(t_us, found.get(op, t_us))
            at += 1
    return found
