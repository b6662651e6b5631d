"""The measures of a run: rates, latencies, and the longest time without an acknowledgement; and the
outcomes of sends before, during and after each fault.

All are made from the tables `tallies` and `acks` (`checker.ingest.counts`). Latencies are in
milliseconds, of operations that ended ok, and less than one in 128 too low. The longest time
without an acknowledgement is exact if it is longer than two of the periods of `acks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checker.evidence.contents import first_of
from checker.evidence.run_meta import RunMeta
from checker.evidence.sorting import I64, order_of
from checker.ingest import tables
from checker.ingest.counts import AFTER, RUN, SENT
from checker.ingest.fault_windows import WINDOWS, InjectedFault

QUANTILES: Final = (0.5, 0.95, 0.99)
_DIGITS: Final = 3
# Shorter gaps are not known exactly: see `checker.ingest.counts`.
_KNOWN_FROM_US: Final = 100_000


class Counted(NamedTuple):
    """Counts of the operations `f`, by outcome, and their latencies: of the whole run, or (`by`) in
    a window around the `nth` fault, of the partition `name` or of all."""

    by: str
    name: str
    nth: int
    f: str
    ok: int
    fail: int
    info: int
    records: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class Gap(NamedTuple):
    """The first and last acknowledged send of a run, and the longest time without one: `gap_us`,
    from `from_us` on. Times are microseconds, -1 if there is none."""

    first_us: int = -1
    last_us: int = -1
    gap_us: int = 0
    from_us: int = -1


@dataclass(frozen=True)
class Measured:
    """Everything that was counted of one run, and when its sends were acknowledged. `first_us`,
    `gap_us`: by the `nth` injected fault and partition ("" for all), the first acknowledgement
    after the fault, and the longest time without one that overlaps it."""

    counted: Sequence[Counted] = ()
    whole: Gap = field(default_factory=Gap)
    first_us: Mapping[tuple[int, str], int] = field(default_factory=dict)
    gap_us: Mapping[tuple[int, str], int] = field(default_factory=dict)

    def of(self, by: str) -> list[Counted]:
        """Return the counts by "run" or "sent", sorted."""
        return sorted((c for c in self.counted if c.by == by), key=lambda c: c.f)


def rounded(milliseconds: float) -> float:
    """Round milliseconds to microseconds, so that a quantile is the same however it is computed."""
    return round(float(milliseconds), _DIGITS)


def measure(tallies: pa.Table, acks: pa.Table, injected: Sequence[InjectedFault] = ()) -> Measured:
    counted = [
        Counted(*key, *counts) for key, counts in _counted(tallies, ("by", "name", "nth", "f"))
    ]
    is_after = pc.equal(acks["by"], AFTER)
    keys, _, first = _grouped(acks.filter(is_after), ("stretch", "name"), [("first_us", "min")])
    after_us = {(nth, name): us for (nth, name), us in zip(keys, first[0].to_pylist(), strict=True)}
    keys, lengths, columns = _grouped(
        acks.filter(pc.invert(is_after)),
        ("by", "name"),
        [("first_us", "list"), ("last_us", "list")],
    )
    parts = (np.split(column.to_numpy(), np.cumsum(lengths)[:-1]) for column in columns)
    whole, gap_us = Gap(), dict[tuple[int, str], int]()
    for (by, name), first_us, last_us in zip(keys, *parts, strict=False):
        begin_us, end_us = _quiet(first_us, last_us)
        if by == RUN:
            whole = _gap(first_us, last_us)
        for fault in injected:
            part = (begin_us < fault.end_us) & (end_us > fault.begin_us)
            if part.any():
                gap_us[fault.nth, name] = int((end_us - begin_us)[part].max())
    return Measured(counted, whole, after_us, gap_us)


def _grouped(
    table: pa.Table, keys: Sequence[str], of: Sequence[tuple[str, str]]
) -> tuple[list[tuple[Any, ...]], I64, list[pa.Array]]:
    """Return each combination of `keys`, the length of its lists, and the aggregates. Lists come
    one after another."""
    found = table.group_by(list(keys), use_threads=False).aggregate(list(of))
    names = list(zip(*(found[key].to_pylist() for key in keys), strict=True))
    columns = [found["_".join(each)].combine_chunks() for each in of]
    if not pa.types.is_list(columns[0].type):
        return names, np.ones(len(names), np.int64), columns
    lengths: I64 = pc.list_value_length(columns[0]).to_numpy().astype(np.int64)
    return names, lengths, [column.flatten() for column in columns]


def _counted(
    table: pa.Table, keys: Sequence[str]
) -> Iterable[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    columns = ("us", "times", "records", "outcome")
    names, lengths, lists = _grouped(table, keys, [(name, "list") for name in columns])
    us, times, records = (column.to_numpy() for column in lists[:3])
    ok = us >= 0
    fail = pc.equal(lists[3], "fail").to_numpy(zero_copy_only=False)
    of = np.repeat(np.arange(len(names)), lengths)
    counts = (times * ok, times * fail, times * (~ok & ~fail), records * ok)
    starts = np.cumsum(lengths) - lengths
    sums = [np.add.reduceat(column, starts).tolist() if names else [] for column in counts]
    found = _quantiles(of[ok], us[ok], times[ok])
    for nth, (name, *own) in enumerate(zip(names, *sums, strict=True)):
        yield name, (*own, *found.get(nth, (None,) * 4))


def _quantiles(of: I64, us: I64, times: I64) -> dict[int, tuple[float, ...]]:
    """Return by group (`of`) the quantiles, as of a list that has each latency as often as it was
    met, and the highest. A group that met no latency has none."""
    order = np.lexsort((us, of))
    order = order[times[order] > 0]
    of, us, times = of[order], us[order], times[order]
    starts, until = first_of(of), np.cumsum(times)
    last = np.append(starts[1:], len(of))[: len(starts)] - 1
    before = (until - times)[starts]
    place = (until[last] - before - 1)[:, None] * np.array(QUANTILES)
    low, high = (
        us[np.searchsorted(until, before[:, None] + end.astype(np.int64), side="right")]
        for end in (np.floor(place), np.ceil(place))
    )
    found = (low + (high - low) * (place - np.floor(place))) / 1000
    highest = us[last] / 1000
    return {
        group: (*map(rounded, quantiles), rounded(most))
        for group, quantiles, most in zip(
            of[starts].tolist(), found.tolist(), highest.tolist(), strict=True
        )
    }


def _gap(first_us: I64, last_us: I64) -> Gap:
    """Return the longest time between periods with acknowledgements; the earliest of equals."""
    begin_us, end_us = _quiet(first_us, last_us)
    gaps = np.append(end_us - begin_us, 0)
    at = int(np.argmax(gaps))
    ends = int(first_us.min()), int(last_us.max())
    return Gap(*ends, int(gaps[at]), int(begin_us[at])) if gaps[at] > 0 else Gap(*ends)


def _quiet(first_us: I64, last_us: I64) -> tuple[I64, I64]:
    """Return the times between stretches that have acknowledgements: from, to."""
    order = order_of((first_us,))
    return np.maximum.accumulate(last_us[order])[:-1], first_us[order][1:]


def summary(meta: RunMeta, known: Measured, faults: int) -> dict[str, Any]:
    """Return the measures for `results.json`, which stay small whatever the size of the run."""
    rows, whole = known.of(RUN), known.whole
    ops = {row.f: {"ok": row.ok, "info": row.info, "fail": row.fail} for row in rows}
    duration_us = _writing_us(meta, whole)
    wrote = known.of(SENT)
    records = sum(row.records for row in wrote)
    rate = 1e6 / duration_us if duration_us > 0 else 0.0
    gap_us, gap_from_us = _longest_gap(meta, whole)
    origin = meta.phases.storm_us or meta.phases.start_us
    return {
        "ops": ops,
        "faults": faults,
        "acked_records": records,
        "acked_per_s": round(sum(row.ok for row in wrote) * rate, 1),
        "acked_records_per_s": round(records * rate, 1),
        "longest_gap_ms": rounded(gap_us / 1000),
        "longest_gap_at_s": round((gap_from_us - origin) / 1e6, 3) if gap_from_us >= 0 else None,
        "latency_ms": {
            q.f: {"p50": q.p50_ms, "p95": q.p95_ms, "p99": q.p99_ms, "max": q.max_ms}
            for q in rows
            if q.p50_ms is not None
        },
    }


def _writing_us(meta: RunMeta, whole: Gap) -> int:
    """Return how long clients wrote: from the begin of the storm to the last acknowledgement."""
    begin = meta.phases.storm_us or whole.first_us
    return max(meta.phases.stop_writing_us, whole.last_us) - begin


def _longest_gap(meta: RunMeta, whole: Gap) -> tuple[int, int]:
    """Return the longest time without an acknowledgement while clients wrote, and its begin."""
    begin, end = meta.phases.storm_us, meta.phases.stop_writing_us
    gaps = [(whole.gap_us, -whole.from_us)]
    if whole.first_us < 0:
        return (end - begin, begin) if 0 < begin < end else (0, -1)
    if begin > 0:
        gaps.append((whole.first_us - begin, -begin))
    if end > 0:
        gaps.append((end - whole.last_us, -whole.last_us))
    longest, start = max(gaps)
    return longest, -start


def around_faults(meta: RunMeta, known: Measured, injected: Sequence[InjectedFault]) -> pa.Table:
    """Return the table: one row for each fault and partition, and one for each fault with the
    partition "", for all partitions together."""
    counted = {(c.by, c.nth, c.name): (c.ok, c.fail, c.info) for c in known.counted}
    rows = []
    for fault in injected:
        for name in sorted({"", *meta.partitions, *(n for by, _, n in counted if by in WINDOWS)}):
            first_us, gap_us = (at.get((fault.nth, name)) for at in (known.first_us, known.gap_us))
            rows.append(
                (
                    *(meta.run, fault.nth, fault.fault, fault.what, fault.on, fault.begin_us),
                    *(fault.end_us if fault.ended else None, name),
                    *(n for w in WINDOWS for n in counted.get((w, fault.nth, name), (0, 0, 0))),
                    None if first_us is None else rounded((first_us - fault.end_us) / 1000),
                    rounded(gap_us / 1000) if gap_us and gap_us >= _KNOWN_FROM_US else None,
                )
            )
    return tables.from_rows("around_faults", rows)


def around_faults_in_short(table: pa.Table) -> list[dict[str, Any]]:
    """Summarise the table for `results.json`: for each fault the acknowledged sends before, during
    and after it, and the worst values of any partition."""
    made = []
    rows = table.to_pylist()
    for row in rows:
        if row["partition"]:
            continue
        parts = [r for r in rows if r["nth"] == row["nth"] and r["partition"]]
        made.append(
            {
                "fault": row["fault"],
                "what": row["what"],
                "on": row["on"],
                "acked": [row[f"{w}_ok"] for w in WINDOWS],
                "first_ack_ms": _worst(parts, "first_ack_ms"),
                "longest_gap_ms": _worst(parts, "longest_gap_ms"),
            }
        )
    return made


def _worst(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    return max((row[name] for row in rows if row[name] is not None), default=None)
