"""Records that are delivered again: `acked-redelivered`, `over-delivered`, `delivery-count` and
`early-redelivery`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from checker.checks.delivery.operations import Case, GroupView, Handled, highest_before
from checker.checks.findings import plural
from checker.evidence.contents import NEVER, find
from checker.evidence.facts import Outcome


def acked_redelivered(view: GroupView) -> Iterator[Case]:
    """Find `acked-redelivered`: a record was delivered after a confirmed attempt to settle it,
    though no member gave it back meanwhile."""
    keys, index = view.keys
    delivered, settled = view.delivered, view.settled
    ok = np.flatnonzero(view.ops.outcome[settled.row] == Outcome.OK)
    at = find(keys, settled.key[ok])
    ok, at = ok[at >= 0], at[at >= 0]
    done, last = np.full(len(keys), NEVER), np.full(len(keys), -1)
    np.minimum.at(done, at, settled.end[ok])
    np.maximum.at(last, index, delivered.low)
    again = np.flatnonzero(done < last)
    given_back = set(view.requeued.key.tolist())
    found = [
        key for key in again.tolist() if int(keys[key]) not in given_back or _closed(view, key)
    ]
    if not found:
        return
    first = min(found, key=lambda key: (int(last[key]), key))
    acks = ok[at == first]
    ack = int(settled.row[acks[np.argmin(settled.end[acks])]])
    back = np.flatnonzero((index == first) & (delivered.low > done[first]))
    row = int(delivered.row[back[0]])
    yield Case(
        "acked-redelivered",
        len(found),
        f"operation {view.ops.op[ack]} was told that value {delivered.named(back[0])} is settled, "
        f"and operation {view.ops.op[row]} got it again",
        [ack, row],
        int(delivered.offset[back[0]]),
        int(delivered.value[back[0]]),
    )


def _closed(view: GroupView, key: int) -> bool:
    """Return whether a confirmed settling of a record, which was also given back, holds against a
    later delivery: no attempt to give it back may have come after it."""
    keys, index = view.keys
    settled, delivered, requeued = view.settled, view.delivered, view.requeued
    settled = settled.take(view.ops.outcome[settled.row] == Outcome.OK)
    mine = settled.take(settled.key == keys[key])
    deliveries = delivered.take(index == key)
    back = requeued.take(requeued.key == keys[key])
    back = back.take(back.inv < deliveries.end.max())
    for inv, end in zip(mine.inv.tolist(), mine.end.tolist(), strict=True):
        if (back.end < inv).all() and (deliveries.low > end).any():
            return True
    return False


def over_delivered(view: GroupView) -> Iterator[Case]:
    """Find `over-delivered`: more deliveries of a record than `max_deliver`, distinct by their
    number, else by poll."""
    limit, delivered = view.promise.max_deliver, view.delivered
    keys, index = view.keys
    if limit < 0 or not len(keys):
        return
    which = np.where(delivered.id >= 0, delivered.id, -2 - view.ops.op[delivered.row])
    pairs = np.unique(np.stack((index, which)), axis=1)
    times = np.bincount(pairs[0], minlength=len(keys))
    rows = np.flatnonzero(times > limit)
    if not len(rows):
        return
    mine = np.flatnonzero(index == rows[0])
    yield Case(
        "over-delivered",
        len(rows),
        f"value {delivered.named(mine[0])} was delivered {plural(times[rows[0]], 'time')}, though "
        f"the limit is {limit}",
        delivered.row[mine].tolist(),
        int(delivered.offset[mine[0]]),
        int(delivered.value[mine[0]]),
    )


def delivery_count(view: GroupView) -> Iterator[Case]:
    """Find `delivery-count`: a later delivery of a record states a count that is not above that of
    an earlier one."""
    delivered, (_, index) = view.delivered, view.keys
    stated = np.flatnonzero((delivered.times > 0) & view.repeated)
    d, key = delivered.take(stated), index[stated]
    if not len(d):
        return
    by_time, by_id = highest_before(key, d.end, d.times, key, d.low), np.full(len(d), -1)
    numbered = d.id >= 0
    by_id[numbered] = highest_before(
        key[numbered], d.id[numbered], d.times[numbered], key[numbered], d.id[numbered]
    )
    rows = np.flatnonzero(np.maximum(by_time, by_id) >= d.times)
    if not len(rows):
        return
    # Numbers may start over in a failover, so that times say more.
    timed = rows[by_time[rows] >= d.times[rows]]
    among = timed if len(timed) else rows
    first = int(among[np.argmin(d.low[among])])
    earlier = d.end < d.low[first] if len(timed) else numbered & (d.id < d.id[first])
    counted = np.flatnonzero((key == key[first]) & (d.times >= d.times[first]) & earlier)[0]
    yield Case(
        "delivery-count",
        len(np.unique(key[rows])),
        f"operation {view.ops.op[d.row[counted]]} got value {d.named(first)} as delivery "
        f"{d.times[counted]} of it, and operation {view.ops.op[d.row[first]]} got it later, as "
        f"delivery {d.times[first]}",
        d.row[key == key[first]].tolist(),
        int(d.offset[first]),
        int(d.value[first]),
    )


def early_redelivery(view: GroupView) -> Iterator[Case]:
    """Find `early-redelivery`: a record was delivered again before `ack_wait_ms` had passed, though
    no member gave it back and its holder had not gone."""
    wait = view.promise.ack_wait_ms * 1000
    repeated = np.flatnonzero(view.repeated)
    index, d = view.keys[1][repeated], view.delivered.take(repeated)
    if not wait or not len(d):
        return
    latest = highest_before(index, d.end, np.maximum(d.low, 0), index, d.low)
    numbered = np.flatnonzero(d.id >= 0)
    by_id = highest_before(
        *(index[numbered], d.id[numbered], np.maximum(d.low, 0)[numbered]),
        *(index[numbered], d.id[numbered]),
    )
    latest[numbered] = np.maximum(latest[numbered], by_id)
    soon = np.flatnonzero((latest >= 0) & (d.end < latest + wait))
    given_back = {*view.requeued.key.tolist()}
    found = [row for row in soon.tolist() if int(d.key[row]) not in given_back]
    found = [row for row in found if _held(view, d, row)]
    if found:
        first = found[0]
        yield Case(
            "early-redelivery",
            len(found),
            f"operation {view.ops.op[d.row[first]]} got value {d.named(first)} again before "
            f"{view.promise.ack_wait_ms} ms had passed",
            [int(d.row[first])],
            int(d.offset[first]),
            int(d.value[first]),
        )


def _held(view: GroupView, d: Handled, row: int) -> bool:
    """Return whether an earlier holder of a delivery was there until this delivery of it."""
    ops, wait = view.ops, view.promise.ack_wait_ms * 1000
    same = np.flatnonzero(d.key == d.key[row])
    earlier = (d.end[same] < d.low[row]) | ((d.id[same] >= 0) & (d.id[same] < d.id[row]))
    earlier &= d.end[row] < d.low[same] + wait
    gone = view.events("leave", "crash")
    gone = gone[ops.invoke_us[gone] < d.end[row]]
    holders = ops.member[d.row[same[earlier]]]
    return bool((~np.isin(holders, ops.member[gone])).any())
