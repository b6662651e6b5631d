"""Curves over time, records not read yet and replication lag, and the tables of a run made of them.

Each is counted by partition in steps of time, and added to those of others; docs/measures.md
defines them. Only steps with a change are kept, so a curve stays short even if times are far apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checker.evidence.contents import READ_OK, Evidence, evidence, expand, first_of
from checker.evidence.facts import HAVE_LEO, Outcome, RoleChanges
from checker.evidence.group import Group
from checker.evidence.run_meta import RunMeta
from checker.evidence.sorting import I64, any_order_of, order_of
from checker.ingest import tables

_ALL: Final = ""
_FINEST_US: Final = 100_000
_UNKNOWN_US: Final = 1_000_000
_MOST_STEPS: Final = 1_000
_MOST_COUNTERS: Final = 1 << 20


class Steps(NamedTuple):
    """The steps of time in which the curves of a run are counted, each `width_us` long."""

    origin_us: int
    width_us: int

    def of(self, t_us: I64) -> I64:
        """Return the number of the step that each time is in."""
        return (t_us - self.origin_us) // self.width_us

    def end(self, step: int) -> tuple[int, float]:
        """Return the end of a step: in microseconds, and in seconds since the storm began."""
        after_us = (step + 1) * self.width_us
        return self.origin_us + after_us, round(after_us / 1e6, 6)


def steps_of(meta: RunMeta) -> Steps:
    """Return the steps of a run, few enough to be drawn. They follow from run.json alone, so that
    all partitions have the same."""
    phases = meta.phases
    begin, end = phases.storm_us, max(phases.end_us, phases.stop_writing_us, phases.heal_us)
    if not 0 < begin < end:
        return Steps(begin or phases.start_us, _UNKNOWN_US)
    width_us = _FINEST_US
    while end - begin > _MOST_STEPS * width_us:
        width_us *= 2
    return Steps(begin, width_us)


class Curves(msgspec.Struct, frozen=True, array_like=True):
    """The part of one partition in the curves of its run, as rows. `unseen`: step, records
    acknowledged in it, acknowledged records first read in it. `lag`: follower, leader, step,
    records that the follower is behind at its end, and at most."""

    unseen: tuple[tuple[int, int, int], ...] = ()
    lag: tuple[tuple[str, str, int, int, int], ...] = ()


def curves(group: Group) -> Curves:
    steps = steps_of(group.meta)
    return Curves(_unseen(steps, evidence(group)), _lag(group, steps))


def _rows(table: list[I64]) -> tuple[tuple[int, ...], ...]:
    return tuple(zip(*(column.tolist() for column in table), strict=True))


def _unseen(steps: Steps, known: Evidence) -> tuple[tuple[int, int, int], ...]:
    """Count the records acknowledged, and read for the first time, by step."""
    sends = known.sends
    acknowledged = (sends.outcome == Outcome.OK) & (sends.complete_us >= 0)
    rows = np.flatnonzero(acknowledged & (sends.count > 0))
    run, place = expand(sends.count[rows])
    acked_us, value = sends.complete_us[rows][run], sends.value[rows][run] + place
    seen = known.read_records.take((known.read_records.flags & READ_OK) != 0)
    order = any_order_of((seen.value, seen.t_us)) if len(seen) else np.zeros(0, np.int64)
    order = order[first_of(seen.value[order])]
    values, first_us = seen.value[order], seen.t_us[order]
    if len(values):
        at = np.minimum(np.searchsorted(values, value), len(values) - 1)
        read = values[at] == value
        seen_us = np.maximum(first_us[at], acked_us)[read]
    else:
        seen_us = np.zeros(0, np.int64)
    return _rows(_counted(steps.of(acked_us), steps.of(seen_us)))  # type: ignore[return-value]


def _counted(*columns: I64) -> list[I64]:
    """Return the different numbers of all columns, and how often each is in each of them."""
    every = [column for column in columns if len(column)]
    low = min((int(column.min()) for column in every), default=0)
    width = max((int(column.max()) for column in every), default=-1) - low + 1
    if width > _MOST_COUNTERS:
        found = np.unique(np.concatenate(columns))
        places = [np.searchsorted(found, column) for column in columns]
        return [found, *(np.bincount(place, minlength=len(found)) for place in places)]
    counts = [np.bincount(column - low, minlength=width) for column in columns]
    there = np.flatnonzero(np.logical_or.reduce(counts))
    return [there + low, *(count[there] for count in counts)]


def _lag(group: Group, steps: Steps) -> tuple[tuple[str, str, int, int, int], ...]:
    """Measure how far each follower was behind its leader, at the end of each step and at most."""
    parts = [group.of(kind) for kind in HAVE_LEO]
    if not any(map(len, parts)):
        return ()
    t_us, node, leo = (
        np.concatenate([p.column(name) for p in parts]) for name in ("t_us", "node", "leo")
    )
    roles = group.of(RoleChanges)
    leads, epoch = np.zeros(len(t_us), bool), np.full(len(t_us), -1, np.int64)
    begin = sum(len(p) for p in parts[: HAVE_LEO.index(RoleChanges)])
    own = slice(begin, begin + len(roles))
    leads[own], epoch[own] = roles.leads, roles.epoch
    rows = np.flatnonzero(leo >= 0)
    rows = rows[order_of((t_us[rows], leo[rows]))] if len(rows) else rows
    t_us, node, leo, leads, epoch = (c[rows] for c in (t_us, node, leo, leads, epoch))
    if not leads.any():
        return ()
    # The leader as of each event: the last to take that role in the highest epoch so far.
    highest = np.maximum.accumulate(np.where(leads, epoch, -2))
    took = leads & (epoch == highest)
    latest = np.maximum.accumulate(np.where(took, np.arange(len(took)), -1))
    leader = np.where(latest >= 0, node[latest], -1)
    by_node = {n: _held(node == n, leo) for n in np.unique(node).tolist()}
    of_leader = np.full(len(leo), -1, np.int64)
    for n, held in by_node.items():
        of_leader[leader == n] = held[leader == n]
    found: list[tuple[str, str, int, int, int]] = []
    names = roles.names
    for n, held in by_node.items():
        lag = np.where((leader == n) | (leader < 0) | (held < 0), 0, of_leader - held)
        found += _changes(names[n], [names[i] for i in leader], steps.of(t_us), np.maximum(lag, 0))
    return tuple(found)


def _held(own: npt.NDArray[np.bool_], leo: I64) -> I64:
    """Return the log end that one node last reported, as of each event; -1 before the first."""
    last = np.maximum.accumulate(np.where(own, np.arange(len(own)), -1))
    held: I64 = np.where(last >= 0, leo[last], -1)
    return held


def _changes(
    node: str, leader: list[str], step: I64, lag: I64
) -> list[tuple[str, str, int, int, int]]:
    """Return the steps in which a follower's lag was another than before them."""
    starts = first_of(step)
    ends = np.append(starts[1:], len(step)) - 1
    # A value at the begin of a step also held in the step.
    carried = np.append(0, lag[ends[:-1]])
    highest = np.maximum(np.maximum.reduceat(lag, starts), carried)
    last = lag[ends]
    rows = np.flatnonzero((highest != carried) | (last != carried))
    return [
        (node, leader[ends[i]], int(step[starts[i]]), int(last[i]), int(highest[i]))
        for i in rows.tolist()
    ]


def curve_tables(meta: RunMeta, curves: Mapping[str, Curves]) -> dict[str, pa.Table]:
    """Return the tables, sorted by partition and time; the partition "" stands for all together."""
    at = steps_of(meta).end
    made: dict[str, list[tuple[Any, ...]]] = {"unseen": [], "lag": []}
    for partition, own in sorted({**curves, _ALL: _of_all(curves.values())}.items()):
        made["unseen"] += [
            (meta.run, partition, *at(step), acked, left)
            for step, acked, left in _running(own.unseen)
        ]
        made["lag"] += [
            (meta.run, partition, node, leader, *at(step), last, highest)
            for node, leader, step, last, highest in own.lag
        ]
    return {name: tables.from_rows(name, rows) for name, rows in made.items()}


def _of_all(curves: Iterable[Curves]) -> Curves:
    """Return the curves of all partitions as one; a lag is of one follower only."""
    unseen: dict[int, tuple[int, int]] = {}
    for own in curves:
        for step, acked, seen in own.unseen:
            a, b = unseen.get(step, (0, 0))
            unseen[step] = a + acked, b + seen
    return Curves(unseen=tuple((step, *counts) for step, counts in sorted(unseen.items())))


def _running(steps: Iterable[tuple[int, int, int]]) -> Iterable[tuple[int, int, int]]:
    """Yield what was acknowledged so far, and how much of it was not seen yet."""
    acked = left = 0
    for step, more, seen in steps:
        acked, left = acked + more, left + more - seen
        yield step, acked, left


def curves_in_short(made: Mapping[str, pa.Table]) -> dict[str, Any]:
    """Summarise the tables for `results.json`: the worst values, and what is unseen at the end."""
    unseen = [row for row in made["unseen"].to_pylist() if row["partition"] == _ALL]
    lag = made["lag"].to_pylist()
    worst = max(lag, key=lambda row: (row["highest"], -row["at_us"]), default=None)
    return {
        "unseen": {
            "most": max((row["unseen"] for row in unseen), default=0),
            "at_end": unseen[-1]["unseen"] if unseen else 0,
        },
        "lag": {
            "most": worst["highest"] if worst else 0,
            "node": worst["node"] if worst else "",
            "partition": worst["partition"] if worst else "",
        },
    }
