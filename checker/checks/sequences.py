"""Idempotent producers number their batches, and a log has them in that order (KIP-98)."""

from __future__ import annotations

import numpy as np

from checker.checks.findings import Finding, anomaly, node_witness, plural
from checker.checks.registry import per_partition
from checker.evidence.columns import Mask
from checker.evidence.contents import by_node, evidence
from checker.evidence.facts import Batches, LogHeads
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.sorting import I64, order_of
from checker.formats.anomalies import LOG


@per_partition("out-of-order-sequence", needs=(Need.LOGS, Need.PRODUCERS))
def out_of_order_sequence(group: Group) -> Finding:
    """Find `out-of-order-sequence`: a batch in a log does not begin with the sequence that follows
    the previous batch of the same producer and producer epoch, or with 0 if it is the first; or it
    has a lower producer epoch than the producer's previous batch. A sequence that is too high
    counts only if every batch in between is known."""
    heads, logs = group.of(LogHeads), group.of(Batches)
    complete = by_node(logs.node, heads, heads.complete) == 1
    logs = logs.take(complete & (logs.end > evidence(group).deleted_below))
    named = np.flatnonzero(logs.producer >= 0)
    if not len(named):
        return Finding(property=LOG)
    named = named[order_of((logs.node[named], logs.producer[named]))]
    rows, last = _out_of_order(logs, named)
    if not len(rows):
        return Finding(property=LOG, examined=len(named))
    witnesses = [node_witness(logs, int(row)) for row in rows]
    of, at = witnesses[0], int(rows[0])
    due = "a producer begins with sequence 0"
    if last[0] >= 0:
        end = logs.sequence[last[0]] + logs.count[last[0]]
        due = f"the batch before it ends at sequence {end} of epoch {logs.producer_epoch[last[0]]}"
    message = (
        f"{plural(len(rows), 'time')} a batch in a log of {group.partition} does not follow its "
        f"producer's batch before it: at offset {of.offset} on {of.node} producer "
        f"{logs.producer[at]} has sequence {logs.sequence[at]} of epoch "
        f"{logs.producer_epoch[at]}, and {due}."
    )
    found = anomaly(group, "out-of-order-sequence", message, witnesses)
    return Finding(property=LOG, examined=len(named), anomalies=(found,))


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
