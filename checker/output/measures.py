"""The measures of a run as small numbers: rates, latencies, the longest time without an answer.

All are made from the tables `tallies` and `acks` (`checker.ingest.counts`). Latencies are
milliseconds of ok operations, right to less than one in 128; a longest gap is exact if it is longer
than two of the stretches that `acks` is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checker.evidence.contents import first_of
from checker.evidence.facts import I64
from checker.evidence.run_meta import RunMeta
from checker.evidence.sorting import order_of
from checker.ingest import tables
from checker.ingest.counts import AFTER, CLIENT, PARTITION, RUN
from checker.ingest.fault_windows import InjectedFault

QUANTILES: Final = (0.5, 0.95, 0.99)
_DIGITS: Final = 3
_NEVER: Final = np.iinfo(np.int64).max


class Counted(NamedTuple):
    """Operations of one kind: of a second of the run (since the storm began, by completion), of
    all of it (`second` None), of a client, or of a partition."""

    by: str
    name: str
    second: int | None
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
    """Acknowledged sends in time, of the run or of one partition; microseconds, -1 for none."""

    by: str
    name: str
    first_us: int
    last_us: int
    gap_us: int
    from_us: int


class Around(NamedTuple):
    """Acknowledgements of a partition (of all: "") around the `nth` injected fault: the first
    after its end, and the longest gap that has a part in it; microseconds, -1 for none."""

    nth: int
    name: str
    first_us: int
    gap_us: int


@dataclass(frozen=True)
class Measured:
    """All that was counted of one run."""

    counted: Sequence[Counted] = ()
    gaps: Sequence[Gap] = ()
    around: Sequence[Around] = ()
    by_name: dict[str, Gap] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counted", sorted(self.counted, key=_place))
        own = {gap.name: gap for gap in self.gaps if gap.by == PARTITION}
        object.__setattr__(self, "by_name", own)

    def of(self, by: str, *, whole: bool = False) -> list[Counted]:
        """The counts of one sort, in order; of the run by second, or `whole`."""
        return [c for c in self.counted if c.by == by and (c.second is None) == whole]

    def gap(self) -> Gap:
        """That of the run."""
        return next((g for g in self.gaps if g.by == RUN), Gap(RUN, "", -1, -1, 0, -1))


def _place(row: Counted) -> tuple[Any, ...]:
    return row.by, row.name, row.second is None, row.second or 0, row.f


def rounded(milliseconds: float) -> float:
    """Milliseconds to a microsecond: both ways to a quantile then give the same number."""
    return round(float(milliseconds), _DIGITS)


def measure(tallies: pa.Table, acks: pa.Table, injected: Sequence[InjectedFault] = ()) -> Measured:
    """The measures of one run."""
    counted = []
    columns = _Columns(tallies)
    for (by, name, f, second), counts in columns.counted(("by", "name", "f", "second")):
        counted.append(Counted(by, name, second, f, *counts))
    for (by, name, f), counts in columns.counted(("by", "name", "f")):
        if by == RUN:
            counted.append(Counted(by, name, None, f, *counts))
    gaps = []
    stretches = _Columns(acks)
    first_us, last_us = stretches.number("first_us"), stretches.number("last_us")
    nth = stretches.number("stretch")
    gap_us: dict[tuple[int, str], int] = {}
    after_us: dict[tuple[int, str], int] = {}
    for (by, name), rows in stretches.groups(("by", "name")):
        if by == AFTER:
            for row in rows.tolist():
                key = int(nth[row]), name
                after_us[key] = min(after_us.get(key, _NEVER), int(first_us[row]))
            continue
        begin_us, end_us = _quiet(first_us[rows], last_us[rows])
        gaps.append(_gap(by, name, first_us[rows], last_us[rows]))
        for fault in injected:
            part = (begin_us < fault.end_us) & (end_us > fault.begin_us)
            if part.any():
                gap_us[fault.nth, name] = int((end_us - begin_us)[part].max())
    around = [
        Around(*key, after_us.get(key, -1), gap_us.get(key, -1))
        for key in sorted({*gap_us, *after_us})
    ]
    return Measured(counted, gaps, around)


class _Columns:
    """A small table, to be grouped."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._numbers: dict[str, I64] = {}

    def number(self, name: str) -> I64:
        if name not in self._numbers:
            self._numbers[name] = self._table.column(name).to_numpy().astype(np.int64)
        return self._numbers[name]

    @cached_property
    def _failed(self) -> npt.NDArray[np.bool_]:
        return np.array([o == "fail" for o in self._table.column("outcome").to_pylist()], bool)

    def groups(self, keys: Sequence[str]) -> list[tuple[tuple[Any, ...], I64]]:
        """The rows of each combination of keys, in order of the first row of each."""
        if not self._table.num_rows:
            return []
        columns = [self._table.column(key).combine_chunks() for key in keys]
        codes = [c.dictionary_encode().indices.to_numpy().astype(np.int64) for c in columns]
        order = order_of(codes)
        new = np.ones(len(order), bool)
        new[1:] = np.any([np.diff(each[order]) != 0 for each in codes], axis=0)
        starts = np.flatnonzero(new)
        rows = np.split(order, starts[1:])
        by_first = np.argsort(order[starts])
        names = (column.take(pa.array(order[starts][by_first])).to_pylist() for column in columns)
        return [
            (values, rows[nth])
            for nth, values in zip(by_first.tolist(), zip(*names, strict=True), strict=True)
        ]

    def counted(self, keys: Sequence[str]) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """What a `Counted` says of each combination of keys: all combinations at once."""
        groups = self.groups(keys)
        if not groups:
            return []
        rows = np.concatenate([rows for _, rows in groups])
        lengths = np.array([len(rows) for _, rows in groups])
        us, times, records = (self.number(c)[rows] for c in ("us", "times", "records"))
        ok, fail = us >= 0, self._failed[rows]
        counts = (times * ok, times * fail, times * (~ok & ~fail), records * ok)
        starts = np.cumsum(lengths) - lengths
        sums = [np.add.reduceat(column, starts).tolist() for column in counts]
        of = np.repeat(np.arange(len(groups)), lengths)
        found = _quantiles(of[ok], us[ok], times[ok])
        return [
            (key, (*own, *found.get(nth, (None,) * 4)))
            for nth, ((key, _), *own) in enumerate(zip(groups, *sums, strict=True))
        ]


def _quantiles(of: I64, us: I64, times: I64) -> dict[int, tuple[float, ...]]:
    """By group (`of`) the quantiles, as of a list that has each latency as often as it was met; and
    the highest. None of a group that met no latency."""
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


def _gap(by: str, name: str, first_us: I64, last_us: I64) -> Gap:
    """The longest time between two stretches that have acknowledgements; the earliest of equals."""
    begin_us, end_us = _quiet(first_us, last_us)
    gaps = np.append(end_us - begin_us, 0)
    at = int(np.argmax(gaps))
    known = gaps[at] > 0
    return Gap(
        by,
        name,
        int(first_us.min()),
        int(last_us.max()),
        int(gaps[at]) if known else 0,
        int(begin_us[at]) if known else -1,
    )


def _quiet(first_us: I64, last_us: I64) -> tuple[I64, I64]:
    """The times between stretches that have acknowledgements: from, to."""
    order = order_of((first_us,))
    return np.maximum.accumulate(last_us[order])[:-1], first_us[order][1:]


def measure_tables(meta: RunMeta, known: Measured) -> dict[str, pa.Table]:
    """The tables of measures that reports draw from."""
    run, origin = meta.run, meta.phases.storm_us or meta.phases.start_us
    whole_s = _writing_us(meta, known.gap()) / 1e6

    def counts(c: Counted, seconds: float) -> tuple[Any, ...]:
        rates = (round(n / seconds, 1) if seconds > 0 else None for n in (c.ok, c.records))
        return (c.f, c.ok, c.fail, c.info, c.records, *rates, *c[8:])

    rows: dict[str, list[tuple[Any, ...]]] = {
        "per_second": [(run, c.second, *counts(c, 1.0)) for c in known.of(RUN)],
        "per_client": [(run, c.name, *counts(c, whole_s)) for c in known.of(CLIENT)],
        "per_partition": [],
    }
    for c in known.of(PARTITION):
        gap = known.by_name.get(c.name) if c.f == "send" else None
        longest = (
            (rounded(gap.gap_us / 1000), rounded((gap.from_us - origin) / 1e6))
            if (gap and gap.from_us >= 0)
            else (None, None)
        )
        rows["per_partition"].append((run, c.name, *counts(c, whole_s), *longest))
    return {name: tables.from_rows(name, found) for name, found in rows.items()}


def summary(meta: RunMeta, known: Measured, faults: int) -> dict[str, Any]:
    """The measures of results.json; chart-sized whatever the run's size in operations."""
    rows, whole = sorted(known.of(RUN), key=lambda c: (c.second, c.f)), known.gap()
    ops: dict[str, dict[str, int]] = {}
    for row in rows:
        counts = ops.setdefault(row.f, {"ok": 0, "info": 0, "fail": 0})
        for outcome in counts:
            counts[outcome] += getattr(row, outcome)
    acked = [row for row in rows if row.f == "send"]
    duration_us = _writing_us(meta, whole)
    records = sum(row.records for row in acked)
    rate = 1e6 / duration_us if duration_us > 0 else 0.0
    gap_us, gap_from_us = _longest_gap(meta, whole)
    origin = meta.phases.storm_us or meta.phases.start_us
    return {
        "ops": ops,
        "faults": faults,
        "acked_records": records,
        "acked_per_s": round(sum(row.ok for row in acked) * rate, 1),
        "acked_records_per_s": round(records * rate, 1),
        "longest_gap_ms": rounded(gap_us / 1000),
        "longest_gap_at_s": round((gap_from_us - origin) / 1e6, 3) if gap_from_us >= 0 else None,
        "latency_ms": {
            q.f: {"p50": q.p50_ms, "p95": q.p95_ms, "p99": q.p99_ms, "max": q.max_ms}
            for q in known.of(RUN, whole=True)
            if q.p50_ms is not None
        },
        "per_second": {
            name: [getattr(row, name) for row in acked]
            for name in ("second", "ok", "fail", "info", "records", "p50_ms", "p99_ms", "max_ms")
        },
    }


def _writing_us(meta: RunMeta, whole: Gap) -> int:
    """How long was written: from the storm's begin to the last acknowledgement."""
    begin = meta.phases.storm_us or whole.first_us
    return max(meta.phases.stop_writing_us, whole.last_us) - begin


def _longest_gap(meta: RunMeta, whole: Gap) -> tuple[int, int]:
    """The longest time without an acknowledgement while it was written, and when it began."""
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
