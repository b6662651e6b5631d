"""The evidence that a check needs before it can call a property valid, and whether it is there.

A check declares its needs where it registers (`checker.checks.registry`). The evidence of a need
may be there. Or the run did not promise it and has none: then the checks that use it examine
nothing. Or the run promises it, by a capability in run.json or because a part of it is there, and
something is missing: then the property is unknown unless an anomaly was found, and a sentence says
what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

import numpy as np

from checker.evidence.columns import Mask
from checker.evidence.contents import evidence
from checker.evidence.facts import (
    Batches,
    Exits,
    HighWatermarks,
    LogHeads,
    Outcome,
    PartitionChanges,
    PartitionMembers,
    Polls,
    Sends,
    TraceFiles,
)
from checker.evidence.group import Group
from checker.evidence.sorting import I64
from checker.formats.anomalies import KINDS, Knows
from harness.formats.history import GROUP_PREFIX
from node.formats.json_input import decode
from node.formats.trace import INTERNAL_PARTITIONS


class Need(Enum):
    """A kind of evidence that checks can need; the table in docs/checks.md has the same names."""

    HISTORY = "history"
    """Every operation, from the first to the last."""
    LOGS = "logs"
    """The finished log of every replica."""
    RECORDS = "records"
    """The records of every batch of those logs."""
    CONTENTS = "contents"
    """A prefix hash of every batch of those logs, or its records."""
    PRODUCERS = "producers"
    """The producer of every batch of those logs, if all producers are idempotent."""
    TRACES = "traces"
    """The whole trace of every replica and every voter."""
    WATERMARKS = "watermarks"
    """Every HW event of every replica."""
    EXITS = "exits"
    """An end of every process that a trace, or the end of the run, shows to have ended."""
    DELETIONS = "deletions"
    """The same, if the promise says how many committed records a deletion keeps: HW events show
    what was committed."""


def missing(group: Group, needs: tuple[Need, ...]) -> str:
    """Describe what is missing of the first need that the run promises and does not meet, without a
    full stop; "" if it meets all."""
    if group.partition in INTERNAL_PARTITIONS:
        return ""  # no client writes to it or reads it
    if group.partition.startswith(GROUP_PREFIX):
        needs = (Need.HISTORY,) if Need.HISTORY in needs else ()  # it has no log
    return next((lack for need in needs if (lack := group.memo(_LACKS[need]))), "")


def withheld(group: Group, name: str) -> str:
    """Say why the anomaly `name` cannot be concluded from the history of this group, "" if it can.
    What may be known of some records only (see `checker.formats.anomalies.Knows`) is left to the
    checks."""
    if name in _BY_OTHER_EVIDENCE:
        return ""
    for known in KINDS[name].knows:
        match known:
            case Knows.TIMES if not group.clocks_sound:
                return "the clock of a process goes back, so that it is not known what came first"
            case Knows.PROCESSES if not group.processes_sound:
                return (
                    "a process has several operations under way, so that their order is not known: "
                    "each thread needs a process number of its own"
                )
    return ""


def absence_proved(group: Group) -> bool:
    """Return whether a value that no log has is certainly gone: the logs of all replicas are there
    with all records, and the run does not promise compaction."""
    return group.logs_complete and not group.memo(_records) and not group.meta.promise.compaction


def _history(group: Group) -> str:
    if group.history_whole:
        return ""
    return "the history has holes, so that what is not in it may have happened all the same"


def logs_expected(group: Group) -> bool:
    """Return whether logs of this partition are promised by the run, or any are there."""
    return bool(group.partition) and ("logs" in group.meta.capabilities or bool(group.dumped))


def _logs(group: Group) -> str:
    if not logs_expected(group):
        return ""
    if lack := _replicas(group):
        return lack
    if group.partition not in group.meta.partitions:
        if group.meta.source or not len(group.of(Sends)):
            return ""
        return f"run.json does not say which brokers have {group.partition}"
    for node in group.logs_lacking:
        match group.dumps.get(node):
            case None:
                return f"the log of {group.partition} on {node} is missing"
            case False:
                return f"the dump of the logs of {node} is damaged or was not finished"
            case True:
                return (
                    f"the dump of the logs of {node} leaves {group.partition} out, "
                    f"though {node} is one of its replicas"
                )
    return ""


def _replicas(group: Group) -> str:
    """Name a replica that the traces tell of and run.json does not."""
    changes = group.of(PartitionChanges)
    if not len(changes) or group.partition not in group.meta.partitions:
        return ""
    members = decode(str(changes.members[-1]), PartitionMembers)
    for node in members.replicas:
        if node not in group.replicas and node not in members.removing:
            return (
                f"run.json does not say that {node} has {group.partition}, though the trace of "
                f"{changes.name(int(changes.node[-1]))} names it as a replica"
            )
    return ""


def _records(group: Group) -> str:
    """Find batches that list too few records, or none at offsets where a record is known."""
    return _unlisted(group, group.of(Batches))


def _contents(group: Group) -> str:
    """Find batches with neither prefix hash nor records, or with no hash though others have one."""
    logs = group.of(Batches)
    bare = (logs.hash == 0) & ~_damaged(logs)
    if not bare.any():
        return ""
    if not (bare | _damaged(logs)).all():
        row = int(np.flatnonzero(bare)[0])
        return f"{_batch(group, logs, row)} has no prefix hash, though other batches have one"
    return _unlisted(group, logs)


def _producers(group: Group) -> str:
    """Find batches that do not name their producer among others that do."""
    logs = group.of(Batches)
    rows = np.flatnonzero((logs.producer < 0) & (logs.listed > 0))
    if not group.meta.promise.idempotent or not len(rows) or (logs.producer < 0).all():
        return ""
    return (
        f"{_batch(group, logs, int(rows[0]))} does not name its producer, though other batches do"
    )


def _unlisted(group: Group, logs: Batches) -> str:
    """Return the first of these batches that does not list all of its records; "" if all do."""
    # A batch without records may be a leader's own, even if the dump does not say so.
    listed = (logs.listed == logs.count) | logs.control | _damaged(logs)
    wrong = ~listed & (logs.listed != 0)
    empty = np.flatnonzero(~listed & (logs.listed == 0))
    if len(empty):
        wrong[empty] = _known_inside(group, logs.offset[empty], logs.end[empty])
    rows = np.flatnonzero(wrong)
    if not len(rows):
        return ""
    row = int(rows[0])
    count = int(logs.count[row])
    listed = f"lists {logs.listed[row]} of {count:,} record{'s' * (count != 1)}"
    return f"{_batch(group, logs, row)} {listed}"


def _batch(group: Group, logs: Batches, row: int) -> str:
    node = logs.name(int(logs.node[row]))
    return f"the batch of {group.partition} at offset {logs.offset[row]} on {node}"


def _damaged(logs: Batches) -> Mask:
    """Select the batches that the dump found damaged: a hash is stored but none could be
    recomputed, and no record could be read. Nothing of them was left out of the dump: it is
    gone."""
    found: Mask = (logs.hash == 0) & (logs.stored_hash != 0) & (logs.listed == 0)
    return found


def _known_inside(group: Group, begin: I64, end: I64) -> I64:
    """Return a mask of the ranges in which an acknowledgement, read or log has a record."""
    known = evidence(group)
    inside = np.zeros(len(begin), dtype=bool)
    for offsets in (known.placed.offset, known.log_records.offset):
        inside |= np.searchsorted(offsets, begin) < np.searchsorted(offsets, end)
    return inside


def _traces(group: Group) -> str:
    if "trace" not in group.meta.capabilities:
        return ""
    if group.partition and group.partition not in group.meta.partitions:
        return ""  # its replicas are not known
    due = (*group.replicas, *group.meta.voters) if group.partition else group.meta.nodes()
    for node in due:
        if node not in group.traced:
            return f"the trace of {node} is missing or damaged"
    cut = sorted(set(due) & group.memo(_cut_traces))
    return f"the trace of {cut[0]} ends before its process, which was stopped" if cut else ""


def _cut_traces(group: Group) -> frozenset[str]:
    """Return the brokers whose last process ended on request, and did not trace that."""
    exits, traces = group.of(Exits), group.of(TraceFiles)
    last = zip(traces.node.tolist(), traces.incarnation.tolist(), traces.stopped, strict=True)
    # The first incarnation that a trace does not show to have stopped.
    upto = {traces.name(node): incarnation + bool(ends) for node, incarnation, ends in last}
    each = zip(exits.node.tolist(), exits.incarnation.tolist(), exits.by, exits.code, strict=True)
    return frozenset(
        name
        for node, incarnation, by, code in each
        if (name := exits.name(node)) in group.meta.brokers
        and (by, code) == ("stop", 0)
        and name in upto
        and incarnation >= upto[name]
    )


def _watermarks(group: Group) -> str:
    """Find a trace without which the highest HW of a moment is not known. A broker traces each move
    of its HW. If it stated a HW, in an answer or in its log, and its trace has none, part of the
    trace is lost."""
    if "hw" not in group.meta.capabilities:
        return ""
    if lack := _traces(group):
        return lack
    events, heads, reads = group.of(HighWatermarks), group.of(LogHeads), group.of(Polls)
    told = np.zeros(len(events.names), dtype=bool)
    told[events.node] = True
    answers = (reads.hw > 0) & (reads.outcome == Outcome.OK)
    stated = np.zeros(len(told), dtype=bool)
    stated[heads.node[heads.hw > 0]] = True
    stated[reads.node[answers]] = True
    highest = np.full(len(told), -1, np.int64)
    np.maximum.at(highest, events.node, events.hw)
    above = np.flatnonzero(answers & told[reads.node] & (reads.hw > highest[reads.node]))
    above = above[reads.hw[above] == reads.hw[above].max(initial=-1)]
    # Of answers that prove nothing more the highest is kept: name it, of several nodes the first.
    for node, row in sorted((reads.name(int(reads.node[row])), row) for row in above.tolist())[:1]:
        if node in group.replicas:
            return (
                f"the trace of {node} has no high watermark of {group.partition} above "
                f"{highest[reads.node[row]]}, though an answer of it states {reads.hw[row]}"
            )
    unnamed = np.flatnonzero(answers & (reads.node == 0) & (reads.hw > highest.max(initial=-1)))
    if len(unnamed) and told.any():
        return (
            f"no trace has a high watermark of {group.partition} above {highest.max()}, though an "
            f"answer states {reads.hw[unnamed].max()}"
        )
    for code in np.flatnonzero(stated & ~told).tolist():
        if heads.name(code) in group.replicas:
            return (
                f"the trace of {heads.name(code)} has no high watermark of {group.partition}, "
                "though its log or its answers state one"
            )
    if not told.any() and (reads.count > 0).any():
        return f"no trace has a high watermark of {group.partition}, though it was read"
    return ""


def _exits(group: Group) -> str:
    """Name the first end of a process that is missing: of each incarnation before the last one of a
    trace, and, of a cluster that was stopped, of every node and the last incarnation too."""
    exits, traces, meta = group.of(Exits), group.of(TraceFiles), group.meta
    each = zip(exits.node.tolist(), exits.incarnation.tolist(), strict=True)
    ended = {(exits.name(node), incarnation) for node, incarnation in each}
    was_stopped = meta.world == "real" and meta.phases.end_us > 0 and not meta.impaired
    for node, last in zip(traces.node.tolist(), traces.incarnation.tolist(), strict=True):
        for incarnation in range(1, last + was_stopped):
            if (traces.name(node), incarnation) not in ended:
                goes_on = ", whose trace goes on with the next one" * (incarnation < last)
                return (
                    f"exits.jsonl does not say how incarnation {incarnation} of "
                    f"{traces.name(node)} ended{goes_on}"
                )
    if not was_stopped:
        return ""
    nodes = {node for node, _ in ended}
    gone = [node for node in meta.nodes() if node not in nodes]
    return (
        f"exits.jsonl does not say how {gone[0]} ended, though the run was stopped" if gone else ""
    )


def _deletions(group: Group) -> str:
    return group.memo(_watermarks) if group.meta.promise.retention_records else ""


_BY_OTHER_EVIDENCE: Final = ("lost", "vanished", "unseen")
"""Anomalies that logs can show as well: their check looks after each clause itself."""
_LACKS: Final[dict[Need, Callable[[Group], str]]] = {
    Need.HISTORY: _history,
    Need.LOGS: _logs,
    Need.RECORDS: _records,
    Need.CONTENTS: _contents,
    Need.PRODUCERS: _producers,
    Need.TRACES: _traces,
    Need.WATERMARKS: _watermarks,
    Need.DELETIONS: _deletions,
    Need.EXITS: _exits,
}
