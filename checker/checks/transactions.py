"""Reads of transactions: an operation that reads its own sends, or sends that had not begun. Also
collects the dependencies between operations, which `checker.checks.cycles` judges."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from checker.checks.cases import Cases, excused
from checker.checks.findings import (
    ALLOWED_UNCOMMITTED,
    Graph,
    read_witness,
    record_witness,
    send_witness,
)
from checker.checks.registry import Check
from checker.evidence.contents import Evidence, evidence, expand, first_of
from checker.evidence.facts import Contents, Outcome, Polls, Unplaced
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.sorting import I64
from checker.formats.anomalies import OFFSETS
from checker.formats.verdict import Witness

TRANSACTIONS = Check(OFFSETS, (Need.HISTORY,))


def _seen(known: Evidence, reads: Polls | Contents) -> tuple[I64, I64, I64, I64]:
    """Return each record of reads that was sent here: row of the read, value, offset, its send."""
    reads_run, place = expand(reads.count)
    value = np.where(reads.value[reads_run] >= 0, reads.value[reads_run] + place, -1)
    writer = known.writer(value)
    kept = writer >= 0
    run = reads_run[kept]
    offset = np.where(reads.offset[run] >= 0, reads.offset[run] + place[kept], -1)
    return run, value[kept], offset, writer[kept]


@TRANSACTIONS.finds("future-read")
def future_read(group: Group) -> Iterator[Cases]:
    """Find `future-read`: a read of a value, or its delivery to a group, completed before its send
    was invoked, whatever its outcome."""
    known = evidence(group)
    read, writer, begun = known.read_records, known.writer_of_read, known.sends.invoke_us
    rows = np.flatnonzero(np.append(begun, -1)[writer] > known.read_at)
    parts: list[tuple[I64, ...]] = [(rows, read.value[rows], read.offset[rows], writer[rows])]
    placed = (known.polls, group.of(Contents))
    failed = [each.take((each.outcome != Outcome.OK) & (each.count > 0)) for each in placed]
    others = (*failed, group.of(Unplaced))
    for reads in others:
        run, *seen = _seen(known, reads)
        early = (reads.complete_us[run] >= 0) & (begun[seen[-1]] > reads.complete_us[run])
        parts.append((run[early], *(column[early] for column in seen)))
    table = np.concatenate([[np.full(len(p[0]), n), *p] for n, p in enumerate(parts)], axis=1)
    table = table[:, ~known.is_shared(table[2])]
    table = table[:, np.unique(table[2], return_index=True)[1]]
    table = table[:, np.lexsort((table[2], table[3]))]

    def pair(nth: int) -> Iterator[Witness]:
        part, row, value, offset, send = table[:, nth].tolist()
        if part:
            yield read_witness(others[part - 1], row, offset=offset, value=value)
        else:
            yield record_witness(known, offset, value)
        yield send_witness(known.sends, send, value=value)

    yield Cases(
        "{n:record} of {partition} read before being sent: {a:op} got value {a.value}, "
        "{a:when}, and {b:op} began to send it at {began:seconds}.",
        np.arange(table.shape[1]),
        pair,
        lambda nth: {"began": begun[table[4, nth]]},
    )


@TRANSACTIONS.finds("precommitted-read")
def precommitted_read(group: Group) -> Iterator[Cases | dict[str, Graph]]:
    """Find `precommitted-read`: an operation read its own sends. Allowed with read_uncommitted."""
    if not group.has_transactions:
        return
    known = evidence(group)
    reads = known.polls.take(np.isin(known.polls.op, known.sends.op))
    run, value, offset, writer = _seen(known, reads)
    own = np.flatnonzero((reads.op[run] == known.sends.op[writer]) & ~known.is_shared(value))
    for rows, allowed in excused(own, reads.uncommitted[run[own]], ALLOWED_UNCOMMITTED):
        yield Cases(
            "{n:operation} on {partition} read own records before the commit: {a:op} got its own "
            "value {a.value} at offset {a.offset}.",
            rows[np.unique(reads.op[run[rows]], return_index=True)[1]],
            lambda i: [read_witness(reads, int(run[i]), offset=offset[i], value=value[i])],
            allowed=allowed,
        )
    yield {"graph": _graph(known)}


def _graph(known: Evidence) -> Graph:
    """Pair the operations that wrote adjacent records or read a record of another."""
    uncommitted = known.polls.uncommitted
    ww, wr = _write_write(known), _write_read(known, known.polls.take(~uncommitted))
    dirty = _write_read(known, known.polls.take(uncommitted))
    ops = np.unique(np.concatenate([pairs[:2].ravel() for pairs in (ww, wr, dirty)]))
    about = []
    for facts in (known.sends, known.polls):
        _, first = np.unique(facts.op, return_index=True)
        rows = first[np.isin(facts.op[first], ops)]
        ops = np.setdiff1d(ops, facts.op[rows])
        columns = (facts.op, facts.process, facts.client, facts.invoke_us, facts.complete_us)
        every = (*columns, facts.outcome, facts.order)
        for op, process, client, *rest in zip(*(c[rows].tolist() for c in every), strict=True):
            about.append((op, process, facts.name(client), *rest))
    return Graph(
        ops=tuple(about),
        **{
            name: tuple(map(tuple, pairs.T.tolist()))
            for name, pairs in (("ww", ww), ("wr", wr), ("dirty", dirty))
        },
        timed=known.group.clocks_sound,
        in_order=known.group.processes_sound,
    )


def _write_write(known: Evidence) -> I64:
    """Return adjacent records of different operations: writer, next writer, offset of the next."""
    placed = known.placed.take(known.placed.value >= 0)
    placed = placed.take(first_of(placed.offset))
    writer = known.writer(placed.value)
    sure = (writer >= 0) & ~known.is_shared(placed.value)
    op, offset = known.sends.op[writer[sure]], placed.offset[sure]
    differ = np.flatnonzero(op[1:] != op[:-1])
    return _pairs(op[differ], op[differ + 1], offset[differ + 1])


def _write_read(known: Evidence, reads: Polls) -> I64:
    """Return writer, reader and offset of every record that an operation read of another."""
    run, value, offset, writer = _seen(known, reads)
    source, target = known.sends.op[writer], reads.op[run]
    other = (source != target) & ~known.is_shared(value)
    return _pairs(source[other], target[other], offset[other])


def _pairs(source: I64, target: I64, offset: I64) -> I64:
    """Return distinct pairs, each with its lowest offset."""
    order = np.lexsort((offset, target, source))
    table = np.stack((source, target, offset))[:, order]
    if not table.shape[1]:
        return table
    new = np.concatenate(([True], (table[:2, 1:] != table[:2, :-1]).any(axis=0)))
    return table[:, new]
