"""The order in which records are delivered: `delivery-order` and `group-skip`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from checker.checks.delivery.operations import Case, GroupView, highest_before
from checker.checks.findings import plural
from checker.evidence.contents import Evidence
from checker.evidence.sorting import I64


def first_order(view: GroupView) -> Iterator[Case]:
    """Find `delivery-order`: a record comes for the first time after one with a
    higher offset did."""
    d = view.delivered
    d = d.take((d.times == 1) & (d.offset >= 0))
    if view.promise.order != "first" or not len(d):
        return
    one = np.zeros(len(d), np.int64)
    before = highest_before(one, d.end, d.offset, one, d.low)
    op = view.ops.op[d.row]
    in_answer = highest_before(op, d.place, d.offset, op, d.place)
    rows = np.flatnonzero(np.maximum(before, in_answer) > d.offset)
    if len(rows):
        first = int(rows[0])
        yield Case(
            "delivery-order",
            len(rows),
            f"operation {op[first]} got offset {d.offset[first]} for the first time after offset "
            f"{max(before[first], in_answer[first])} had come for the first time",
            d.row[rows].tolist(),
            int(d.offset[first]),
            int(d.value[first]),
        )


def owner_order(view: GroupView, known: Evidence) -> Iterator[Case]:
    """Find `group-skip`: in the turn of an owner records are passed over, between two deliveries or
    between the stated start and the first; an offset that is not above the one before breaks
    the order."""
    if view.promise.order != "owner" or not len(view.turns) or not len(view.delivered):
        return
    d = view.delivered
    turn = _turns(view)
    mine = np.flatnonzero((turn >= 0) & (d.offset >= 0))
    op = view.ops.op[d.row[mine]]
    mine = mine[np.lexsort((d.place[mine], op, turn[mine]))]
    offset, turn = d.offset[mine], turn[mine]
    at = np.append(-1, offset[:-1] + 1)
    begins = np.append(True, turn[1:] != turn[:-1])[: len(turn)]
    at[begins] = view.turns.start[turn[begins]]
    places = known.kept_offsets
    passed = np.searchsorted(places, offset) - np.searchsorted(places, at)
    for name, rows in (
        ("delivery-order", np.flatnonzero(offset < at)),
        ("group-skip", np.flatnonzero((at >= 0) & (offset > at) & (passed > 0))),
    ):
        if not len(rows):
            continue
        first = int(rows[0])
        row = int(d.row[mine[first]])
        member = view.ops.name(int(view.ops.member[row]))
        if name == "group-skip":
            what = f"passed over {plural(passed[first], 'record')} from offset {at[first]} on"
        else:
            what = f"was at offset {at[first]} already"
        yield Case(
            name,
            int(passed[rows].sum()) if name == "group-skip" else len(rows),
            f"operation {view.ops.op[row]} gave offset {offset[first]} to {member}, the owner, "
            f"which {what}",
            d.row[mine[rows]].tolist(),
            int(at[first] if name == "group-skip" else offset[first]),
        )


def _turns(view: GroupView) -> I64:
    """Return the turn in which each delivery was polled, -1 if in none."""
    d, turns = view.delivered, view.turns
    member = view.ops.member[d.row]
    found = np.full(len(d), -1)
    for code in np.unique(turns.member).tolist():
        own = np.flatnonzero(turns.member == code)
        rows = np.flatnonzero(member == code)
        at = np.searchsorted(turns.begin[own], d.inv[rows], "right") - 1
        inside = (at >= 0) & (d.inv[rows] < turns.stop[own[np.maximum(at, 0)]])
        found[rows[inside]] = own[at[inside]]
    return found
