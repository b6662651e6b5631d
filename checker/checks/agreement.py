"""Committed-prefix agreement: all replicas have the same record at each committed offset, always.

Three sources state a part of the committed prefix: every HW event of a trace (with the prefix hash
at a batch end), every final log up to the HW of its replica, and every record that a read returned.
Two replicas have equal logs below an offset if and only if their prefix hashes there are equal. So
the check groups the sources by offset and compares no logs. Replicas copy whole batches, so they
also have to agree on where a batch ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from checker.checks.cases import Cases
from checker.checks.findings import (
    listing,
    node_witness,
    node_witness_at,
    op_name,
    plural,
    record_witness,
)
from checker.checks.registry import Check
from checker.evidence.columns import Mask
from checker.evidence.contents import NEVER, Records, by_node, evidence, find, first_of
from checker.evidence.facts import Appends, Batches, HighWatermarks, LogHeads, RoleChanges
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.sorting import I64
from checker.formats.anomalies import AGREEMENT
from checker.formats.verdict import Witness
from harness.formats.history import show_value


class _Conflicts(NamedTuple):
    """Offsets on which two sources disagree, with a sentence and witnesses for the first."""

    offsets: I64
    offset: int
    message: str
    witnesses: list[Witness]


@dataclass(frozen=True)
class _Prefixes:
    """Known prefix hashes: each of everything below `end`, as the log of `node` has it."""

    end: I64
    hash: I64
    node: I64
    row: I64
    from_log: I64


def _examined(group: Group) -> int:
    """Count the logs and known prefixes, and if there are any the records that reads returned:
    without replicas there is nothing that reads could agree with."""
    examined = len(group.of(LogHeads)) + len(group.memo(_committed).end)
    return examined + len(evidence(group).read_records) if examined else 0


AGREEING = Check(AGREEMENT, (Need.LOGS, Need.CONTENTS, Need.WATERMARKS), examined=_examined)


@AGREEING.finds("divergence")
def divergence(group: Group) -> Iterator[Cases]:
    """Find `divergence`: two sources contradict each other below a HW, in the prefix hash at a
    batch end, in the value or leader epoch at an offset, or in where a batch ends."""
    yield _cases(group.memo(_divergences))


def _divergences(group: Group) -> list[_Conflicts]:
    committed, heads = group.memo(_committed), group.of(LogHeads)
    conflicts = (
        _contents(group),
        _hashes(group, committed, "committed prefix"),
        _boundaries(group, committed.end, heads, heads.hw, "committed"),
    )
    return [found for found in conflicts if found]


def _cases(conflicts: Sequence[_Conflicts]) -> Cases:
    """Return conflicts in the words of the most concrete one."""
    if not conflicts:
        return Cases("", ())
    return Cases(
        "{message}",
        conflicts,
        lambda each: each.witnesses,
        lambda each: {"message": each.message},
        count=len(np.unique(np.concatenate([c.offsets for c in conflicts]))),
        offset=min(c.offset for c in conflicts),
    )


def _committed(group: Group) -> _Prefixes:
    """Return the prefix hashes of HW events and of batches below the HW of final logs."""
    logs, heads = group.of(Batches), group.of(LogHeads)
    hw = by_node(logs.node, heads, heads.hw)
    events = group.of(HighWatermarks)
    event = np.flatnonzero(events.hash != 0)
    batch = np.flatnonzero((logs.end <= hw) & (logs.hash != 0))
    return _prefixes(events, event, logs, batch)


def _prefixes(events: HighWatermarks, event: I64, logs: Batches, batch: I64) -> _Prefixes:
    end = np.concatenate((events.batch_end[event], logs.end[batch]))
    hashes = np.concatenate((events.hash[event], logs.hash[batch]))
    node = np.concatenate((events.node[event], logs.node[batch]))
    row = np.concatenate((event, batch))
    from_log = np.concatenate((np.zeros_like(event), np.ones_like(batch)))
    order = np.argsort(end, kind="stable")
    return _Prefixes(end[order], hashes[order], node[order], row[order], from_log[order])


def _hashes(group: Group, known: _Prefixes, what: str) -> _Conflicts | None:
    """Find ends at which two prefix hashes differ."""
    starts = first_of(known.end)
    lowest = np.minimum.reduceat(known.hash, starts)
    highest = np.maximum.reduceat(known.hash, starts)
    ends = known.end[starts][lowest != highest]
    if not len(ends):
        return None
    here = np.flatnonzero(known.end == ends[0])
    sides = [here[known.hash[here] == h] for h in np.unique(known.hash[here])]
    events, logs = group.of(HighWatermarks), group.of(Batches)
    witnesses = []
    for side in sides:
        for i in side[np.unique(known.node[side], return_index=True)[1]]:
            row, end = int(known.row[i]), int(known.end[i])
            facts = logs if known.from_log[i] else events
            witnesses.append(node_witness(facts, row, offset=end))
    nodes = [sorted({events.names[n] for n in known.node[side]}) for side in sides]
    agreed = _agreed_below(group, [set(n) for n in nodes[:2]], int(ends[0]))
    when = [w.t_us for w in witnesses if w.t_us >= 0]
    seen = f", seen {group.seconds(min(when))} into the storm" if when else ""
    parties = " against ".join(listing(n) for n in nodes)
    same = " at different times" if nodes[0] == nodes[1] else ""
    return _Conflicts(
        ends,
        agreed,
        f"The {what} of {group.partition} diverges in [{agreed}, {ends[0]}): "
        f"{parties}{same} have different contents below offset {ends[0]}{seen}, "
        f"and agree below {agreed}.",
        witnesses,
    )


def _agreed_below(group: Group, sides: list[set[str]], end: int) -> int:
    """Return the highest batch end below `end` at which both sides ever had equal hashes."""
    events, appends, logs = group.of(HighWatermarks), group.of(Appends), group.of(Batches)
    known: tuple[tuple[HighWatermarks | Appends | Batches, I64], ...] = (
        (events, events.batch_end),
        (appends, appends.leo),
        (logs, logs.end),
    )
    found: list[set[tuple[int, int]]] = []
    for side in sides:
        pairs: set[tuple[int, int]] = set()
        for facts, ends in known:
            codes = [c for c, name in enumerate(facts.names) if name in side]
            mine = np.isin(facts.node, codes) & (ends < end) & (facts.hash != 0)
            pairs.update(zip(ends[mine].tolist(), facts.hash[mine].tolist(), strict=True))
        found.append(pairs)
    return max((e for e, _ in found[0] & found[1]), default=0)


def _boundaries(
    group: Group, ends: I64, heads: LogHeads, up_to: I64, what: str
) -> _Conflicts | None:
    """Find the batch ends that one of these logs, if complete, has inside a batch of its own."""
    logs = group.of(Batches)
    ends = np.unique(ends)
    offsets, parties, witnesses = [], [], []
    for row in np.flatnonzero(heads.complete):
        limit = min(int(up_to[row]), int(heads.leo[row]))
        own = np.sort(logs.end[logs.node == heads.node[row]])
        reach = ends[(ends <= limit) & (ends > heads.start[row])]
        if len(missed := reach[find(own, reach) < 0]):
            offsets.append(missed)
            parties.append(heads.name(int(heads.node[row])))
            witnesses.append(node_witness(heads, int(row), offset=int(missed[0])))
    if not offsets:
        return None
    every = np.unique(np.concatenate(offsets))
    first = int(every[0])
    return _Conflicts(
        every,
        first,
        f"The batches of {group.partition} differ: a {what} batch ends at offset {first}, and no "
        f"batch does in the log of {listing(parties)}.",
        witnesses,
    )


def _contents(group: Group) -> _Conflicts | None:
    """Find the offsets at which reads and committed log records differ in value or epoch."""
    known = evidence(group)
    reads, logged = known.read_records, known.committed_log_records
    pairs = zip(vars(reads).values(), vars(logged).values(), strict=True)
    both = Records(*map(np.concatenate, pairs))
    both = both.take(np.argsort(both.offset, kind="stable"))
    both = both.take(both.value >= 0)
    starts = first_of(both.offset)
    if not len(starts) or not (wrong := _differ(both, starts)).any():
        return None
    conflicts = both.offset[starts][wrong]
    return _report_contents(group, conflicts)


def _report_contents(group: Group, conflicts: I64) -> _Conflicts:
    """Return the first conflicting offset, and the record that each source has there."""
    known, first = evidence(group), int(conflicts[0])
    reads, logged = known.read_records, known.log_records
    witnesses, words = [], []
    for i in np.flatnonzero(reads.offset == first):
        value = int(reads.value[i])
        if value < 0:
            continue
        witnesses.append(record_witness(known, first, value))
        words.append(f"{op_name(witnesses[-1])} read {_record(value, int(reads.epoch[i]))}")
    heads = group.of(LogHeads)
    hw = dict(zip(heads.node.tolist(), heads.hw.tolist(), strict=True))
    by_record: dict[tuple[int, int], list[str]] = {}
    for i in np.flatnonzero(logged.offset == first):
        if hw.get(int(logged.node[i]), -1) > first:
            witnesses.append(node_witness_at(known.logs, logged, int(i)))
            key = (int(logged.value[i]), int(logged.epoch[i]))
            by_record.setdefault(key, []).append(witnesses[-1].node)
    words += [
        f"the committed log of {listing(nodes)} has {_record(*record)}"
        for record, nodes in by_record.items()
    ]
    return _Conflicts(
        conflicts,
        first,
        f"The committed prefix of {group.partition} differs at offset {first} "
        f"({plural(len(conflicts), 'offset')} in all): {'; '.join(words)}.",
        witnesses,
    )


def _record(value: int, epoch: int) -> str:
    return f"value {show_value(value)}" + (f" of epoch {epoch}" if epoch >= 0 else "")


@AGREEING.finds("divergent-tail")
def divergent_tail(group: Group) -> Iterator[Cases]:
    """Find `divergent-tail`: the complete logs of the replicas differ above the HW although the
    replicas had the time to converge. Not beside `divergence`, which tells of the same logs."""
    if not group.memo(_divergences):
        yield _cases(group.memo(_tails))


def _tails(group: Group) -> list[_Conflicts]:
    """Return how the complete logs of replicas differ that had the time to converge."""
    phases = group.meta.phases
    due = phases.heal_us > 0 and phases.end_us >= group.meta.convergence_due_us
    if not (group.logs_complete and due):
        return []
    logs, heads, nothing = group.of(Batches), group.replica_heads, np.zeros(0, np.int64)
    held = by_node(logs.node, heads, heads.complete) == 1
    batch = np.flatnonzero(held & (logs.hash != 0))
    known = _prefixes(group.of(HighWatermarks), nothing, logs, batch)
    ends = _boundaries(group, known.end, heads, heads.leo, "replicated")
    contents = _log_contents(group, evidence(group).log_records)
    return [c for c in (contents, _hashes(group, known, "log"), ends) if c]


@AGREEING.finds("replicas-differ")
def replicas_differ(group: Group) -> Iterator[Cases]:
    """Find `replicas-differ`: two complete logs differ at the end of the run below the HW of both.
    Even a run that does not promise to keep committed records must end with one log."""
    if not group.memo(_tails):
        return  # if whole logs are equal, so are their prefixes
    logs, heads, nothing = group.of(Batches), group.replica_heads, np.zeros(0, np.int64)
    below = np.flatnonzero((logs.end <= by_node(logs.node, heads, heads.hw)) & (logs.hash != 0))
    known = _prefixes(group.of(HighWatermarks), nothing, logs, below)
    what = "final committed prefix"
    ends = _boundaries(group, known.end, heads, heads.hw, "committed")
    contents = _log_contents(group, evidence(group).committed_log_records)
    yield _cases([c for c in (contents, _hashes(group, known, what), ends) if c])


def _log_contents(group: Group, logged: Records) -> _Conflicts | None:
    """Find the offsets at which records of final logs differ, for logs without prefix hashes."""
    heads, known = group.replica_heads, evidence(group)
    if (group.of(Batches).hash != 0).all():
        return None
    held = by_node(logged.node, heads, heads.complete) == 1
    logged = logged.take(held & (logged.value >= 0))
    starts = first_of(logged.offset)
    if not len(starts):
        return None
    conflicts = logged.offset[starts][_differ(logged, starts)]
    if not len(conflicts):
        return None
    rows = np.flatnonzero(logged.offset == conflicts[0])
    witnesses = [node_witness_at(known.logs, logged, int(row)) for row in rows]
    words = [f"{w.node} has {_record(w.value, w.epoch)}" for w in witnesses]
    return _Conflicts(
        conflicts,
        int(conflicts[0]),
        f"The logs of {group.partition} differ at offset {conflicts[0]} "
        f"({plural(len(conflicts), 'offset')} in all): {listing(words)}.",
        witnesses,
    )


def _differ(records: Records, starts: I64) -> Mask:
    """Return for each group of records whether they differ in value, or in a known epoch."""
    lowest = np.where(records.epoch >= 0, records.epoch, NEVER)
    found: Mask = np.minimum.reduceat(lowest, starts) < np.maximum.reduceat(records.epoch, starts)
    found |= np.minimum.reduceat(records.value, starts) != np.maximum.reduceat(
        records.value, starts
    )
    return found


@AGREEING.finds("committed-truncated")
def committed_truncated(group: Group) -> Iterator[Cases]:
    """Find `committed-truncated`: a replica once had a HW above the ends of the complete logs of
    all replicas. The anomaly counts the records between the longest log and that HW."""
    events, heads = group.of(HighWatermarks), group.replica_heads
    if not group.logs_complete or not len(events):
        return
    longest, row = int(heads.leo.max()), int(np.argmax(events.hw))
    yield Cases(
        "{n:committed record} of {partition} gone: {a.node} had its high watermark at {a.offset}, "
        "{a:when}, and no replica's log reaches beyond {longest} at the end.",
        [row] if events.hw[row] > longest else [],
        lambda row: [node_witness(events, row, offset=int(events.hw[row]))],
        lambda row: {"longest": longest},
        count=int(events.hw[row]) - longest,
        offset=longest,
    )


@AGREEING.finds("incomplete-leader")
def incomplete_leader(group: Group) -> Iterator[Cases]:
    """Find `incomplete-leader`: a replica became leader with a log that ends below a HW that a
    replica had established before, in an earlier leader epoch (leader completeness)."""
    events, roles = group.of(HighWatermarks), group.of(RoleChanges)
    found = []
    for row in np.flatnonzero(roles.leads & (roles.leo >= 0)).tolist():
        earlier = np.searchsorted(events.t_us, roles.t_us[row], side="left")
        # Only earlier epochs: a broker may learn late of a leadership that has passed already.
        of_earlier = events.epoch[:earlier] < roles.epoch[row]
        if not of_earlier.any():
            continue
        best = int(np.flatnonzero(of_earlier)[np.argmax(events.hw[:earlier][of_earlier])])
        if events.hw[best] > roles.leo[row]:
            leader = node_witness(roles, row, "became leader", offset=int(roles.leo[row]))
            found.append((leader, node_witness(events, best, offset=int(events.hw[best]))))
    yield Cases(
        "{a.node} became leader of {partition} in epoch {a.epoch} with a log that ends at "
        "{a.offset}, {a:when}, though {b.node} had its high watermark at {b.offset} in epoch "
        "{b.epoch}.",
        found,
        lambda pair: pair,
    )
