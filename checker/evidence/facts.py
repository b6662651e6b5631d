"""The kinds of facts that checks are made on.

A fact is a row about one partition of a run, or with the partition "" about the whole run. Each
kind names its columns. If a reader does not give a column, it holds -1, "unknown"; columns that
count something, and flags, then hold 0. Offsets are 0-based, ends are exclusive, times are
microseconds on the clock of the run, and a hash of 0 is no hash.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import ClassVar, Final, get_args

import msgspec

from checker.evidence.columns import Facts, Flag, Name, Numbers, Text
from checker.evidence.sorting import I64
from harness.formats.history import OpKind

OP_KINDS: Final[tuple[str, ...]] = get_args(OpKind)
"""The operations that clients record; `GroupOps.what` is a place here."""


ENOUGH_SETTLED: Final = 10
"""So many records settled or positions committed show that the members of a group worked."""


class Outcome(IntEnum):
    """The outcome of an operation. INFO is an unknown outcome, as of one that never completed."""

    OK = 0
    INFO = 1
    FAIL = 2


class FaultAction(IntEnum):
    """The actions that lines of faults.jsonl report."""

    INJECT = 0
    HEAL = 1
    SKIPPED = 2
    MISSED = 3
    EFFECT = 4


class RunFacts(Facts):
    """The metadata of the run (`checker.evidence.run_meta`) as JSON, for each of its partitions."""

    text = Text()


class NoteFacts(Facts):
    """Remarks about files of the run that do not change the verdict. `source` is the number of the
    kind of file, `seq` the number of the remark about it."""

    order_by = ("source", "node", "seq")
    source, seq, node = Numbers(), Numbers(0), Name()
    text = Text()


class ProblemFacts(NoteFacts):
    """Problems of files of the run, in sentences; each makes the verdict unknown. `damage`: the
    evidence was changed after it was written, so that nothing in it is believed."""

    damage = Flag()


class FaultLines(Facts):
    """Lines of faults.jsonl, for each of the partitions: `fault` is the number of the fault in the
    schedule, `affected` counts what the action affected. `whole`: the fault stops its nodes, or
    cuts them off from all other nodes and from clients."""

    order_by = ("line",)
    line, fault, t_us, done_us = Numbers(), Numbers(), Numbers(), Numbers()
    action, affected = Numbers(0), Numbers(0)
    node, whole = Name(), Flag()
    text = Text()


class Exits(Facts):
    """Lines of exits.jsonl, each the end of a process, for each of the partitions. `expected`: a
    fault or the harness ended it; `said`: the last lines of its output."""

    order_by = ("line",)
    line, t_us, incarnation, code, node = Numbers(), Numbers(), Numbers(0), Numbers(), Name()
    by, said = Text(), Text()
    expected = Flag()


class Served(Facts):
    """Moments at which a node began to serve, or ceased to: its process began and took a role in a
    partition, or answers to probes named it as leader or in sync, and did not any more."""

    order_by = ("t_us", "node", "serves")
    t_us, node, serves = Numbers(), Name(), Flag()


class HistoryParts(Facts):
    """Parts of the history. `whole`: every line was read; `transactions`: operations of several
    sends, or of sends and reads; `final_reads`: any were invoked; `clock_back`: the clock of a
    process goes back; `overlap`: a process had several operations under way; `groups`: members of
    groups did any."""

    whole, transactions, final_reads, clock_back, overlap = Flag(), Flag(), Flag(), Flag(), Flag()
    groups = Flag()


class SampledOps(Facts):
    """Operations, each of which stands for `count` of them (`checker.ingest.read_tables`).
    `progress`: if it ended ok, clients made progress; `step`: its number among the operations that
    the schedule itself names, or -1."""

    order_by = ("op",)
    op, step, invoke_us, complete_us = Numbers(), Numbers(0), Numbers(), Numbers()
    outcome, count = Numbers(0), Numbers(0)
    progress = Flag()


class _OfProcess(Facts):
    """The columns of an operation of a process. `turn` is the place of the operation among all, by
    time and line; it is there only if the numbers of the operations of a process do not rise in
    that order."""

    op, seq, process, turn = Numbers(), Numbers(0), Numbers(), Numbers()
    invoke_us, complete_us = Numbers(), Numbers()

    @property
    def order(self) -> I64:
        """The column that orders the operations of a process: `turn` if it is there, else `op`."""
        return self.turn if self.has("turn") else self.op


class Sends(_OfProcess):
    """Sends of `count` records with the values from `value` on, at the offsets from `offset` on
    (-1: unknown). `proved_us`: when a committed read of another partition first returned a record
    of its operation, which proves that the operation took effect. `transaction`: the operation may
    abort after its records were appended."""

    order_by = ("op", "seq")
    client, outcome, acks = Name(), Numbers(0), Numbers(0)
    offset, value, count, proved_us = Numbers(), Numbers(), Numbers(0), Numbers()
    transaction = Flag()


class _RunsOfRecords(Facts):
    """Runs of `count` records from `offset` on."""

    offset, count = Numbers(), Numbers(0)

    @property
    def end(self) -> I64:
        """The offset after the last record of each row."""
        return self.offset + self.count


class Contents(_RunsOfRecords):
    """Runs of records that reads returned, if downsampling left out polls
    (`checker.engine.read_downsampling`). Each run is there once, with its earliest read; `read_as`
    joins the flags of all its reads (READ_OK and others of `checker.evidence.contents`)."""

    op, seq, idx, process = Numbers(), Numbers(0), Numbers(0), Numbers()
    client, node, outcome, complete_us = Name(), Name(), Numbers(0), Numbers()
    value, epoch = Numbers(), Numbers()
    read_as = Numbers(0)
    final = Flag()


class Polls(_OfProcess, _RunsOfRecords):
    """Runs of records that a read returned, numbered by `idx`; an answer without records is one row
    with count 0. `start`: the offset at which the read was asked to begin. `rebalanced`: the
    partition was assigned to the reader or taken from it while the operation ran. `uncommitted`:
    the reader may get records of operations that abort. `at_end`: the answer states that the log
    ends there. `log_start`: the offset at which the answer states that the log begins."""

    order_by = ("process", "op", "seq", "idx")
    idx, client, node, outcome = Numbers(0), Name(), Name(), Numbers(0)
    value, epoch = Numbers(), Numbers()
    hw, start, log_start = Numbers(), Numbers(), Numbers()
    final, rebalanced, uncommitted, at_end = Flag(), Flag(), Flag(), Flag()


class Unplaced(Contents):
    """The same of what polls of groups were given without its offsets: `offset` is unknown."""


class Marks(Contents):
    """Reads whose answers state a HW that is higher than those of all before, if downsampling left
    out polls."""

    hw = Numbers()


class SkippedPolls(Facts):
    """Gaps in the polls of a process, made by downsampling: the polls between the operations
    `first` and `last` were left out, because each began where the one before it ended. `count`: the
    rows that these had."""

    order_by = ("process", "first", "last")
    process, first, last, count = Numbers(), Numbers(), Numbers(), Numbers(0)


class Resets(_OfProcess):
    """Assignments and crashes of a process, which drop its position in a partition, unless they
    name the partition (`named`). `subscribed`: the process subscribed, so that rebalances may move
    it."""

    order_by = ("op",)
    subscribed, named = Flag(), Flag()


class Shape(IntEnum):
    """The subject of a row of `GroupOps`: the operation itself, or something that it names."""

    OPERATION = 0
    RECORDS = 1
    POSITION = 2
    PARTITION = 3


class GroupOps(Facts):
    """Operations of members of groups (`checker.ingest.group_rows`). `what`: the number of the
    operation's name among all; `shape`: what the row is about. Of a record run it has `count`
    records, from `value`, `offset` and `id` on; `times`: how often these were delivered. Of a
    position it has `offset` and `pending`. `low_us`: no record of the answer left the system
    before. `requeue`: a nack gives its records back. Of an operation `count` is the number of
    partitions that it names; of an ack or commit that of records that its member did not settle
    before, or of positions."""

    order_by = ("op", "seq")
    op, seq, what, shape = Numbers(), Numbers(0), Numbers(0), Numbers(0)
    process, client, group, member = Numbers(), Name(), Name(), Name()
    outcome, epoch = Numbers(0), Numbers()
    invoke_us, complete_us, low_us = Numbers(), Numbers(), Numbers()
    value, count, offset, id, times = Numbers(), Numbers(0), Numbers(), Numbers(), Numbers(0)
    pending = Numbers()
    final, requeue = Flag(), Flag()


class GroupStates(Facts):
    """Lines of `group-states.jsonl`, each as JSON: states of groups that replicas keep, or records
    of the log from which they are made."""

    order_by = ("line",)
    line = Numbers()
    text = Text()


class OfNode(Facts):
    """A kind of facts from the log or trace of a node. `what` describes a row in a few words;
    `place` is the column with its offset, "" if it has none."""

    what: ClassVar[str]
    place: ClassVar[str]
    node = Name()


class LogFiles(Facts):
    """The dumps of the logs of nodes. `finished`: the dump was written to its end."""

    order_by = ("node",)
    node, finished = Name(), Flag()


class LogHeads(OfNode):
    """The logs of a partition: start, HW and end. `complete`: all of the dump could be read."""

    order_by = ("node",)
    what, place = "log", "start"
    start, hw, leo, complete = Numbers(), Numbers(), Numbers(), Flag()


class EpochEntries(Facts):
    """Entries of the epoch cache of a node's log: the offset at which each leader epoch starts;
    `nth` is the number of the entry."""

    order_by = ("node", "nth")
    node, nth, epoch, start = Name(), Numbers(0), Numbers(), Numbers()


class Batches(OfNode, _RunsOfRecords):
    """Batches of a node's log. `hash` is the prefix hash recomputed from the bytes, `stored_hash`
    the one stored beside them. `listed`: how many of its records the dump has; `control`: a batch
    that the leader wrote for itself. `producer`, `producer_epoch` and `sequence` are those of an
    idempotent producer."""

    order_by = ("node", "offset", "count", "hash")
    what, place = "batch in the log", "offset"
    listed, epoch = Numbers(), Numbers()
    hash, stored_hash, control = Numbers(0), Numbers(0), Flag()
    producer, producer_epoch, sequence = Numbers(), Numbers(), Numbers()


class LogRecords(Facts):
    """Runs of `count` records in a node's log, with the values from `value` on."""

    order_by = ("node", "offset", "count", "value")
    node, offset, value, count, epoch = Name(), Numbers(), Numbers(), Numbers(0), Numbers()


class TraceFiles(Facts):
    """The traces of nodes. `whole`: every line could be read; `incarnation`: the number of the last
    start of the node that the trace has; `stopped`: that process traced that it stops."""

    order_by = ("node",)
    node, whole, stopped, incarnation = Name(), Flag(), Flag(), Numbers()


class Events(OfNode):
    """Trace events of one kind, with the lines on which they are."""

    order_by = ("t_us", "node", "line")
    line, t_us = Numbers(), Numbers()


class HighWatermarks(Events):
    """Moves of a replica's high watermark. `hash` is the prefix hash at `batch_end`; `leads`: the
    replica was the leader."""

    what, place = "high watermark", "batch_end"
    epoch, hw, leo = Numbers(), Numbers(), Numbers()
    batch_end, hash, leads = Numbers(), Numbers(0), Flag()


class Appends(Events):
    """Appends of a batch to a replica's log, which then ends at `leo`; `hash` is the prefix hash
    there, and `leads` says that the replica was the leader."""

    what, place = "append", "base_offset"
    epoch, leo = Numbers(), Numbers()
    base_offset, hash, leads = Numbers(), Numbers(0), Flag()


class Truncations(Events):
    """Truncations of a replica's log: `leo` and `hw` are its end and its HW afterwards."""

    what, place = "truncation", ""
    hw, leo = Numbers(), Numbers()


class Deletions(Events):
    """Deletions of the head of a log, which then starts at `start`."""

    what, place = "log start", "start"
    start, epoch, leo = Numbers(), Numbers(), Numbers()


class RoleChanges(Events):
    """Changes of a node's role in a partition: it became leader (`leads`) or follower."""

    what, place = "role", ""
    epoch, hw, leo, leads = Numbers(), Numbers(), Numbers(), Flag()


class PartitionChanges(Events):
    """Committed changes of a partition; `members` is a `PartitionMembers` as JSON."""

    what, place = "partition change", ""
    epoch, partition_epoch = Numbers(), Numbers()
    members = Text()


class Controllers(Events):
    """Voters that became the active controller of a term (`active`), or ceased to be."""

    what, place = "controller", ""
    term, active = Numbers(), Flag()


class PartitionMembers(msgspec.Struct, frozen=True):
    """The leader and the sets of brokers that a committed change gives a partition."""

    leader: str
    isr: tuple[str, ...]
    elr: tuple[str, ...]
    last_known_elr: tuple[str, ...]
    replicas: tuple[str, ...]
    removing: tuple[str, ...] = ()
    fenced: tuple[str, ...] = ()


HAVE_LEO: Final = (HighWatermarks, Appends, RoleChanges, Truncations)
"""The events that state the end of a log."""


@lru_cache(maxsize=1 << 12)
def hash_number(text: str) -> int:
    """Return a hash of 16 hexadecimal digits as a signed number, 0 for "". Raises ValueError."""
    if not text:
        return 0
    number = int(text, 16)
    if len(text) > 16 or number < 0:
        raise ValueError(f"'{text}' is not a hash of 16 hexadecimal digits")
    return number - (1 << 64) if number >= 1 << 63 else number


def hash_text(number: int) -> str:
    """Return a prefix hash as 16 hexadecimal digits, "" for 0."""
    return f"{int(number) & (1 << 64) - 1:016x}" if number else ""
