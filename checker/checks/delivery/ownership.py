"""Owners of partitions: `double-ownership`, `zombie-commit`, `epoch-back` and `group-stuck`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from checker.checks.delivery.operations import Case, GroupView, highest_before
from checker.evidence.contents import NEVER, Evidence
from checker.evidence.facts import Outcome
from checker.evidence.sorting import I64


def double_ownership(view: GroupView) -> Iterator[Case]:
    """Find `double-ownership`: assignments of one epoch give the partition to two members."""
    ops = view.ops
    rows = view.owners[ops.epoch[view.owners] >= 0]
    if not len(rows):
        return
    rows = rows[np.lexsort((ops.member[rows], ops.epoch[rows]))]
    epoch, member = ops.epoch[rows], ops.member[rows]
    twice = np.flatnonzero((epoch[1:] == epoch[:-1]) & (member[1:] != member[:-1]))
    if len(twice):
        first = int(twice[0])
        names = " and ".join(ops.name(int(m)) for m in member[first : first + 2])
        yield Case(
            "double-ownership",
            len(np.unique(epoch[twice])),
            f"in epoch {epoch[first]} {names} both own it",
            rows[first : first + 2].tolist(),
        )


def zombie_commit(view: GroupView) -> Iterator[Case]:
    """Find `zombie-commit`: a commit was confirmed to a member although another member had learned
    before, in a higher epoch, that it owns the partition."""
    ops, commits = view.ops, view.positions("commit")
    commits = commits.take(commits.ok & (commits.epoch >= 0))
    given = view.owners[ops.epoch[view.owners] >= 0]
    if not len(commits) or not len(given):
        return
    zero = np.zeros(len(given), np.int64)
    any_ = highest_before(
        zero, view.end[given], ops.epoch[given], np.zeros(len(commits), np.int64), commits.inv
    )
    found = []
    for n in np.flatnonzero(any_ > commits.epoch).tolist():
        newer = (ops.epoch[given] > commits.epoch[n]) & (view.end[given] < commits.inv[n])
        newer &= ops.member[given] != commits.member[n]
        if newer.any():
            found.append((n, int(given[np.argmax(newer)])))
    if found:
        n, row = found[0]
        yield Case(
            "zombie-commit",
            len(found),
            f"operation {ops.op[commits.row[n]]} of {ops.name(int(commits.member[n]))} committed "
            f"position {commits.offset[n]} in epoch {commits.epoch[n]}, after "
            f"{ops.name(int(ops.member[row]))} owned it in epoch {ops.epoch[row]}",
            [int(commits.row[n]), row],
            int(commits.offset[n]),
        )


def epoch_back(view: GroupView) -> Iterator[Case]:
    """Find `epoch-back`: a member is given an epoch below one that it was given before; or a member
    that joins is given one below any that was stated before."""
    ops = view.ops
    rows = view.events("join", "assign")
    rows = rows[(ops.outcome[rows] == Outcome.OK) & (ops.epoch[rows] >= 0)]
    if not len(rows):
        return
    end, epoch, inv = view.end[rows], ops.epoch[rows], ops.invoke_us[rows]
    own = highest_before(ops.member[rows], end, epoch, ops.member[rows], inv)
    one = np.zeros(len(rows), np.int64)
    anybody = highest_before(one, end, epoch, one, inv)
    before = np.where(np.isin(rows, view.events("join")), np.maximum(own, anybody), own)
    back = np.flatnonzero(before > epoch)
    if len(back):
        first = int(back[0])
        yield Case(
            "epoch-back",
            len(back),
            f"operation {ops.op[rows[first]]} of {ops.name(int(ops.member[rows[first]]))} was told "
            f"epoch {epoch[first]}, after epoch {before[first]}",
            rows[back].tolist(),
        )


def group_stuck(view: GroupView, known: Evidence, heal_us: int) -> Iterator[Case]:
    """Find `group-stuck`: long after the last change of members no member owns a partition that has
    records, though a member polls all the time. `heal_us`: when the last fault was healed."""
    ops = view.ops
    joins = view.events("join")
    events = view.events("join", "leave", "crash", "assign")
    alive = ops.member[joins[ops.outcome[joins] == Outcome.OK]]
    alive = np.setdiff1d(alive, ops.member[view.events("leave", "crash")])
    if not len(alive) or view.promise.kind != "positions":
        return
    ended = np.where(view.end[events] == NEVER, ops.invoke_us[events], view.end[events])
    since = max(int(ended.max()), heal_us)
    polls = view.events("poll")
    polls = polls[np.isin(ops.member[polls], alive) & (ops.outcome[polls] == Outcome.OK)]
    polls = polls[ops.invoke_us[polls] >= since]
    if not len(polls) or (view.turns.stop > since).any():
        return
    if not (known.sends.outcome == Outcome.OK).any():
        return
    until, span_us = int(view.end[polls].max()), view.promise.rebalance_ms * 1000
    marks: I64 = np.concatenate(([since], np.sort(ops.invoke_us[polls]), [until]))
    if until - since >= span_us and 3 * np.diff(marks).max() <= span_us:
        yield Case(
            "group-stuck",
            1,
            f"for {(until - since) / 1e6:g} s nobody owned it, though members polled all the time",
            [int(events[np.argmax(ended)])],
        )
