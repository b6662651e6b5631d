"""Invariants of one replica's log: no holes, rising leader epochs, unchanged bytes, an epoch cache
that matches the batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from checker.checks.cases import Cases
from checker.checks.findings import node_witness, plural
from checker.checks.registry import Check
from checker.evidence.contents import evidence, first_of
from checker.evidence.facts import Batches, EpochEntries, LogHeads, OfNode, Truncations
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.sorting import I64
from checker.formats.anomalies import LOG, WITNESS_CAP
from checker.formats.verdict import Witness

LOGS = Check(
    LOG, (Need.LOGS,), examined=lambda group: len(group.of(LogHeads)) + len(group.of(Batches))
)


class _Log(NamedTuple):
    """The log of one replica: its row in `heads`, its node, and its batches."""

    heads: LogHeads
    row: int
    node: str
    batches: Batches


class _Wrong(NamedTuple):
    """A fault of one log, with its sentence and its witnesses."""

    words: str
    witnesses: list[Witness]
    offset: int
    number: int


_Find = Callable[[Group], Iterator[_Wrong]]


def _finds(name: str) -> Callable[[_Find], _Find]:
    """Return a decorator that registers a function which finds faults of logs."""

    def add(find: _Find) -> _Find:
        LOGS.finds(name)(lambda group: iter([_cases([*find(group)])]))
        return find

    return add


def _logs(group: Group) -> list[_Log]:
    """Return the logs of a partition. A record missing from a broken dump is no hole in a log."""
    heads, batches = group.of(LogHeads), group.of(Batches)
    return [
        _Log(heads, row, heads.name(int(heads.node[row])), batches.take(batches.node == node))
        for row, node in enumerate(heads.node)
        if heads.complete[row]
    ]


def _wrong(facts: OfNode, rows: I64, words: str, **known: int) -> _Wrong:
    witnesses = [node_witness(facts, row) for row in rows.tolist()]
    return _Wrong(words, witnesses, **{"offset": witnesses[0].offset, "number": len(rows)} | known)


def _head(log: _Log, words: str, **known: int) -> _Wrong:
    return _wrong(log.heads, np.array([log.row]), words, **known)


def _cases(parts: list[_Wrong]) -> Cases:
    """Return faults of several logs, in the words of the first."""
    if not parts:
        return Cases("", ())
    most = WITNESS_CAP if len(parts) == 1 else WITNESS_CAP // 2
    return Cases(
        "{words}",
        parts,
        lambda part: part.witnesses[:most],
        lambda part: {"words": part.words},
        count=sum(part.number for part in parts),
        offset=min(part.offset for part in parts),
        t_us=next((w.t_us for w in parts[0].witnesses[:WITNESS_CAP] if w.t_us >= 0), -1),
    )


@_finds("log-hole")
def log_hole(group: Group) -> Iterator[_Wrong]:
    """Find `log-hole`: the batches of a log are not contiguous, do not end at the log end that the
    dump states, or begin above an offset that had a record."""
    for log in group.memo(_logs):
        yield from _holes(group, log)


def _holes(group: Group, log: _Log) -> Iterator[_Wrong]:
    heads, row, node, batches = log
    of, start, leo = group.partition, int(heads.start[row]), int(heads.leo[row])
    expected = np.append(start, batches.end[:-1])[: len(batches)]
    holes = np.flatnonzero(batches.offset != expected)
    if len(holes):
        words = (
            f"The log of {of} on {node} is not contiguous: a batch begins at "
            f"{batches.offset[holes[0]]} where {expected[holes[0]]} was due."
        )
        yield _wrong(batches, holes, words)
    known = evidence(group).offsets
    early = int(np.searchsorted(known, start))
    if early and node in group.replicas and not group.meta.promise.retention:
        words = (
            f"The log of {of} on {node} begins at {start}, and {plural(early, 'offset')} below it "
            f"had a record, the first {known[0]}."
        )
        yield _head(log, words, number=early, offset=int(known[0]))
    end = int(batches.end[-1]) if len(batches) else start
    if end != leo >= 0:
        words = f"The log of {of} on {node} is said to end at {leo}, and its batches end at {end}."
        yield _head(log, words)


@_finds("hw-beyond-log")
def hw_beyond_log(group: Group) -> Iterator[_Wrong]:
    """Find `hw-beyond-log`: the HW of a replica is above its log end, at the end of the run or
    after a truncation, if only until the leader's next answer. If the replica leads or stops before
    that, it holds for committed what it does not have."""
    for log in group.memo(_logs):
        hw, leo = log.heads.hw[log.row], log.heads.leo[log.row]
        if hw > leo >= 0:
            of = f"{group.partition} on {log.node}"
            yield _head(log, f"The high watermark of {of} is {hw}, and its log ends at {leo}.")
    cuts = group.of(Truncations)
    rows = np.flatnonzero((cuts.leo >= 0) & (cuts.hw > cuts.leo)).tolist()
    if rows:
        leo, hw = (int(column[rows[0]]) for column in (cuts.leo, cuts.hw))
        witnesses = [node_witness(cuts, row, offset=int(cuts.leo[row])) for row in rows]
        words = (
            f"{witnesses[0].node} truncated its log of {group.partition} to {leo}, "
            f"{group.seconds(witnesses[0].t_us)} into the storm, and left its high watermark at "
            f"{hw}."
        )
        yield _Wrong(words, witnesses, leo, len(rows))


@_finds("epoch-regression")
def epoch_regression(group: Group) -> Iterator[_Wrong]:
    """Find `epoch-regression`: a batch has a lower leader epoch than the one before it."""
    for _, _, node, log in group.memo(_logs):
        back = np.flatnonzero((log.epoch[1:] < log.epoch[:-1]) & (log.epoch[1:] >= 0)) + 1
        if len(back):
            at = int(back[0])
            words = (
                f"Leader epochs go back along the log of {group.partition} on {node}: from "
                f"{log.epoch[at - 1]} to {log.epoch[at]} at offset {log.offset[at]}."
            )
            yield _wrong(log, back, words)


@_finds("corrupt-batch")
def corrupt_batch(group: Group) -> Iterator[_Wrong]:
    """Find `corrupt-batch`: the prefix hash that is kept beside a batch is not that of its stored
    bytes."""
    for _, _, node, log in group.memo(_logs):
        corrupt = np.flatnonzero((log.stored_hash != 0) & (log.stored_hash != log.hash))
        if len(corrupt):
            words = (
                f"{plural(len(corrupt), 'stored hash value')} of {group.partition} on {node} not "
                f"that of the stored bytes, first of the batch at offset {log.offset[corrupt[0]]}: "
                "bytes changed after they were written."
            )
            yield _wrong(log, corrupt, words)


@_finds("epoch-cache-mismatch")
def epoch_cache_mismatch(group: Group) -> Iterator[_Wrong]:
    """Find `epoch-cache-mismatch`: the epoch cache is not the one recomputed from the batches."""
    cache = group.of(EpochEntries)
    for log in group.memo(_logs):
        own = cache.take(cache.node == log.heads.node[log.row])
        if wrong := _cache_mismatch(log.batches, own, int(log.heads.start[log.row])):
            yield _head(log, f"The epoch cache of {group.partition} on {log.node} {wrong}.")


def _cache_mismatch(log: Batches, cache: EpochEntries, log_start: int) -> str | None:
    """Return how the epoch cache differs from one recomputed from the batches, or None. A leader
    enters its epoch before it has a record in it (KAFKA-7415), so entries at the end of the log
    need no batch. A batch without an epoch is damaged, or of a message format that has none: that
    clears the cache."""
    if not (log.epoch >= 0).any() or not len(cache):
        return None
    wrong = _differs(log.take(log.epoch >= 0), int(log.end[-1]), cache, log_start)
    bare = np.flatnonzero(log.epoch < 0)
    if wrong and len(bare):
        later = log.take(np.arange(bare[-1] + 1, len(log)))
        wrong = wrong if _differs(later, int(log.end[-1]), cache, log_start) else None
    return wrong


def _differs(stamped: Batches, leo: int, cache: EpochEntries, log_start: int) -> str | None:
    """Return how the epoch cache differs from one recomputed from these batches, or None. For a
    deleted head the cache may keep the epoch of its last record, at that offset; the first batch
    may be of the same epoch."""
    starts = first_of(stamped.epoch)
    due = list(zip(stamped.epoch[starts].tolist(), stamped.offset[starts].tolist(), strict=True))
    kept = [
        (epoch, start)
        for epoch, start in zip(cache.epoch.tolist(), cache.start.tolist(), strict=True)
        if start < leo
    ]
    if kept and kept[0][1] == log_start - 1:
        if due and due[0][0] == kept[0][0]:
            del due[0]
        del kept[0]
    if kept == due:
        return None
    differ = next((i for i, (a, b) in enumerate(zip(kept, due, strict=False)) if a != b), None)
    at = min(len(kept), len(due)) if differ is None else differ
    has = f"epoch {kept[at][0]} from {kept[at][1]}" if at < len(kept) else "no more entries"
    should = f"epoch {due[at][0]} from {due[at][1]}" if at < len(due) else "no more entries"
    return f"has {has} where its batches have {should}"
