"""Idempotent producers number their batches, and a log has them in that order (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from checker.checks.cases import Cases, Examined
from checker.checks.findings import node_witness
from checker.checks.registry import Check
from checker.evidence.columns import Mask
from checker.evidence.contents import by_node, evidence
from checker.evidence.facts import Batches, LogHeads
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.sorting import I64, order_of
from checker.formats.anomalies import LOG

SEQUENCES = Check(LOG, (Need.LOGS, Need.PRODUCERS))


@SEQUENCES.finds("out-of-order-sequence")
def out_of_order_sequence(group: Group) -> Iterator[Cases | Examined]:
    """Find `out-of-order-sequence`: a batch in a log does not begin with the sequence that follows
    the previous batch of the same producer and producer epoch, or with 0 if it is the first; or it
    has a lower producer epoch than the producer's previous batch. A sequence that is too high
    counts only if every batch in between is known."""
    heads, logs = group.of(LogHeads), group.of(Batches)
    complete = by_node(logs.node, heads, heads.complete) == 1
    logs = logs.take(complete & (logs.end > evidence(group).deleted_below))
    named = np.flatnonzero(logs.producer >= 0)
    if not len(named):
        return
    yield Examined(len(named))
    named = named[order_of((logs.node[named], logs.producer[named]))]
    rows, last = _out_of_order(logs, named)

    def due(at: int) -> dict[str, object]:
        words, before = "a producer begins with sequence 0", last[0]
        if before >= 0:
            end, epoch = logs.sequence[before] + logs.count[before], logs.producer_epoch[before]
            words = f"the batch before it ends at sequence {end} of epoch {epoch}"
        columns = {"producer": logs.producer, "sequence": logs.sequence}
        own = {name: column[at] for name, column in columns.items()}
        return {**own, "epoch": logs.producer_epoch[at], "due": words}

    yield Cases(
        "{n:time} a batch in a log of {partition} does not follow its producer's batch before it: "
        "at offset {a.offset} on {a.node} producer {producer} has sequence {sequence} of epoch "
        "{epoch}, and {due}.",
        rows,
        lambda row: [node_witness(logs, row)],
        due,
    )


def _out_of_order(logs: Batches, named: I64) -> tuple[I64, I64]:
    """Return the batches out of order, by log and offset, and the previous batch of the same
    producer for each (-1: none). `named` are those with a producer, by log and producer."""
    node, producer = logs.node[named], logs.producer[named]
    sequence, epoch = logs.sequence[named], logs.producer_epoch[named]
    follows = np.append(False, (node[1:] == node[:-1]) & (producer[1:] == producer[:-1]))
    before = np.where(follows, np.roll(named, 1), -1)
    same = follows & (logs.producer_epoch[before] == epoch)
    due = np.where(same, logs.sequence[before] + logs.count[before], 0)
    since = np.where(follows, before, np.searchsorted(logs.node, node) - 1)
    doubt = np.maximum.accumulate(np.where(_doubtful(logs), np.arange(len(logs)), -1))
    wrong = (sequence < due) | ((sequence > due) & (doubt[named] <= since))
    wrong |= follows & (logs.producer_epoch[before] > epoch)
    order = np.argsort(named[wrong])
    return named[wrong][order], before[wrong][order]


def _doubtful(logs: Batches) -> Mask:
    """Select the batches before which one may be missing, and those that may be of any producer."""
    same = logs.node[1:] == logs.node[:-1]
    due = np.append(0, np.where(same, logs.end[:-1], 0))
    found: Mask = (logs.offset != due) | ((logs.producer < 0) & ~logs.control)
    return found
