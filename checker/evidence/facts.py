"""The kinds of facts that all checks of a run are made on.

A fact is a row about one (run, partition); facts about a whole run have the partition "". Each kind
names its columns. A column that a reader does not give holds -1, "unknown"; numbers that count
something, and flags, hold 0. Offsets are 0-based, ends are exclusive, times are microseconds of the
clock of the run, and a hash of 0 is none.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import ClassVar, Final

import msgspec

from checker.evidence.columns import Facts, Flag, Name, Numbers, Text
from checker.evidence.sorting import I64


class Outcome(IntEnum):
    """The outcome of an operation; an invocation without completion is INFO."""

    OK = 0
    INFO = 1
    FAIL = 2


class FaultAction(IntEnum):
    """The action of a line of faults.jsonl."""

    INJECT = 0
    HEAL = 1
    SKIPPED = 2
    MISSED = 3
    EFFECT = 4


class RunFacts(Facts):
    """The metadata of the run (`checker.evidence.run_meta`), for each of its partitions."""

    text = Text()


class NoteFacts(Facts):
    """Sentences about a file that are no reason to doubt the verdict; `source` is its kind."""

    order_by = ("source", "node", "seq")
    source, seq, node = Numbers(), Numbers(0), Name()
    text = Text()


class ProblemFacts(NoteFacts):
    """Sentences that make the verdict unknown; after damage nothing in the evidence is believed."""

    damage = Flag()


class FaultLines(Facts):
    """Lines of faults.jsonl: the fault of the schedule, its action, how much was affected."""

    order_by = ("line",)
    line, fault, t_us, done_us = Numbers(), Numbers(), Numbers(), Numbers()
    action, affected = Numbers(0), Numbers(0)
    node = Name()
    text = Text()


class Exits(Facts):
    """Lines of exits.jsonl."""

    order_by = ("line",)
    line, t_us, incarnation, code, node = Numbers(), Numbers(), Numbers(0), Numbers(), Name()
    by, said = Text(), Text()
    expected = Flag()


class HistoryParts(Facts):
    """A part of the history: whether every line of it was read; whether it has transactions
    (operations of several sends, or of sends and reads) or final reads, answered or not; whether
    the clock of a process goes back, or a process has several operations under way."""

    whole, transactions, final_reads, clock_back, overlap = Flag(), Flag(), Flag(), Flag(), Flag()


class SampledOps(Facts):
    """Operations that stand for `count` of them (`checker.ingest.downsampling`). `progress`: they
    show it if they end ok. `step`: the number among the schedule's own operations, or -1."""

    order_by = ("op",)
    op, step, invoke_us, complete_us = Numbers(), Numbers(0), Numbers(), Numbers()
    outcome, count = Numbers(0), Numbers(0)
    progress = Flag()


class _OfProcess(Facts):
    """The columns of one process. `turn` is the place of its operation among all, in order of time
    and of line; it is there only if the numbers of the operations of a process do not rise in that
    order."""

    op, seq, process, turn = Numbers(), Numbers(0), Numbers(), Numbers()
    invoke_us, complete_us = Numbers(), Numbers()

    @property
    def order(self) -> I64:
        """The order of the operations of a process: their numbers, or their turns."""
        return self.turn if self.has("turn") else self.op


class Sends(_OfProcess):
    """Sends of `count` records whose values begin with `value`, at `offset` if that is known.
    `proved_us`: when a read of another partition first proved the operation."""

    order_by = ("op", "seq")
    client, outcome, acks = Name(), Numbers(0), Numbers(0)
    offset, value, count, proved_us = Numbers(), Numbers(), Numbers(0), Numbers()


class _RunsOfRecords(Facts):
    """Runs of `count` records from `offset` on."""

    offset, count = Numbers(), Numbers(0)

    @property
    def end(self) -> I64:
        """The offset after the last record of each row."""
        return self.offset + self.count


class Contents(_RunsOfRecords):
    """Runs of records that reads returned, each once with its earliest read, where polls were left
    out (`checker.engine.read_downsampling`). `read_as`: how all reads of it read it, as the flags
    of `checker.evidence.contents`."""

    op, seq, idx, process = Numbers(), Numbers(0), Numbers(0), Numbers()
    client, node, outcome, complete_us = Name(), Name(), Numbers(0), Numbers()
    value, epoch = Numbers(), Numbers()
    read_as = Numbers(0)
    final = Flag()


class Polls(_OfProcess, _RunsOfRecords):
    """Runs of records (`idx`) that a read returned, one after another; an empty answer is one row
    with count 0. `start`: where the read was asked to begin. `rebalanced`: the partition was taken
    or given while the operation ran. `uncommitted`: it may see records of operations that abort.
    `at_end`: the answer says that the log ends there."""

    order_by = ("process", "op", "seq", "idx")
    idx, client, node, outcome = Numbers(0), Name(), Name(), Numbers(0)
    value, epoch = Numbers(), Numbers()
    hw, start = Numbers(), Numbers()
    final, rebalanced, uncommitted, at_end = Flag(), Flag(), Flag(), Flag()


class SkippedPolls(Facts):
    """The first and the last operation of a process between which polls were left out that go on
    where the one before ended, and how many rows of those there were."""

    order_by = ("process", "first", "last")
    process, first, last, count = Numbers(), Numbers(), Numbers(), Numbers(0)


class SkippedAnswers(Facts):
    """Answers that were left out, with the end of the log that each stated."""

    order_by = ("invoke_us", "complete_us", "log_end")
    invoke_us, complete_us, log_end = Numbers(), Numbers(), Numbers()


class Resets(_OfProcess):
    """Assignments and crashes, which reset the position of a process in a partition; those that are
    `named` keep it. `subscribed`: the process subscribed, and may be moved by rebalances."""

    order_by = ("op",)
    subscribed, named = Flag(), Flag()


class OfNode(Facts):
    """A kind of facts from the log or trace of a node: its description `what`, and the column of
    its offset, "" for none."""

    what: ClassVar[str]
    place: ClassVar[str]
    node = Name()


class LogFiles(Facts):
    """The dumps of the logs of nodes, and whether they were finished."""

    order_by = ("node",)
    node, finished = Name(), Flag()


class LogHeads(OfNode):
    """The logs of a partition; `complete`: all of the dump could be read."""

    order_by = ("node",)
    what, place = "log", "start"
    start, hw, leo, complete = Numbers(), Numbers(), Numbers(), Flag()


class EpochEntries(Facts):
    """The entries of the epoch cache of a log."""

    order_by = ("node", "nth")
    node, nth, epoch, start = Name(), Numbers(0), Numbers(), Numbers()


class Batches(OfNode, _RunsOfRecords):
    """The batches of a log, with their prefix hashes: recomputed, and as they were stored.
    `listed`: how many of its records the dump has. `control`: a leader's own. `producer`,
    `producer_epoch`, `sequence`: as an idempotent producer numbers its records."""

    order_by = ("node", "offset", "count", "hash")
    what, place = "batch in the log", "offset"
    listed, epoch = Numbers(), Numbers()
    hash, stored_hash, control = Numbers(0), Numbers(0), Flag()
    producer, producer_epoch, sequence = Numbers(), Numbers(), Numbers()


class LogRecords(Facts):
    """Runs of records of a log."""

    order_by = ("node", "offset", "count", "value")
    node, offset, value, count, epoch = Name(), Numbers(), Numbers(), Numbers(0), Numbers()


class TraceFiles(Facts):
    """The traces of nodes: whether they are whole, and the last incarnation in them."""

    order_by = ("node",)
    node, whole, incarnation = Name(), Flag(), Numbers()


class Events(OfNode):
    """Events of one name in the traces, each on its line."""

    order_by = ("t_us", "node", "line")
    line, t_us = Numbers(), Numbers()


class HighWatermarks(Events):
    """A high watermark moved: `hash` is that of everything below `batch_end`."""

    what, place = "high watermark", "batch_end"
    epoch, hw, leo = Numbers(), Numbers(), Numbers()
    batch_end, hash, leads = Numbers(), Numbers(0), Flag()


class Appends(Events):
    """A batch was appended: `hash` is that of everything below `leo`."""

    what, place = "append", "base_offset"
    epoch, leo = Numbers(), Numbers()
    base_offset, hash, leads = Numbers(), Numbers(0), Flag()


class Truncations(Events):
    """A log was truncated to `leo`."""

    what, place = "truncation", ""
    hw, leo = Numbers(), Numbers()


class Deletions(Events):
    """The head of a log was deleted, up to `start`."""

    what, place = "log start", "start"
    start, epoch, leo = Numbers(), Numbers(), Numbers()


class RoleChanges(Events):
    """A node became leader or follower of a partition."""

    what, place = "role", ""
    epoch, hw, leo, leads = Numbers(), Numbers(), Numbers(), Flag()


class PartitionChanges(Events):
    """A controller committed a change of a partition: `members` are `PartitionMembers` as JSON."""

    what, place = "partition change", ""
    epoch, partition_epoch = Numbers(), Numbers()
    members = Text()


class Controllers(Events):
    """A voter became the active controller of a term, or ceased to be."""

    what, place = "controller", ""
    term, active = Numbers(), Flag()


class PartitionMembers(msgspec.Struct, frozen=True):
    """The brokers of a partition, as a change of it states them."""

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
    """Return a prefix hash of 16 hexadecimal digits as a signed number, 0 for "". Raises
    ValueError."""
    if not text:
        return 0
    number = int(text, 16)
    if len(text) > 16 or number < 0:
        raise ValueError(f"'{text}' is not a hash of 16 hexadecimal digits")
    return number - (1 << 64) if number >= 1 << 63 else number


def hash_text(number: int) -> str:
    """Return the 16 hexadecimal digits of a hash, "" for none."""
    return f"{int(number) & (1 << 64) - 1:016x}" if number else ""
