"""The measures of a run as small numbers: rates, latencies, the longest time without an answer.

Two ways to the same numbers: NumPy here for one run in process, Spark SQL in `checker.measures_sql`
for many. Both give rows of the table `per_second` and one `Totals` a run; from these `summary`
makes what stands in results.json. Latencies are milliseconds of ok operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from checker.facts import I64
from checker.meta import RunMeta

QUANTILES: Final = (0.5, 0.95, 0.99)
PRECISION_BITS: Final = 7
_DIGITS: Final = 3


class Second(NamedTuple):
    """One second (since the storm began, by completion) and kind of operation."""

    second: int
    f: str
    ok: int
    fail: int
    info: int
    records: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class Quantiles(NamedTuple):
    """Latency of all ok operations of a kind."""

    f: str
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True)
class Totals:
    """What is known of a run as a whole; times in microseconds, -1 where there is none."""

    quantiles: tuple[Quantiles, ...] = ()
    first_ack_us: int = -1
    last_ack_us: int = -1
    gap_us: int = 0
    gap_from_us: int = -1


def rounded(milliseconds: float) -> float:
    """Milliseconds to a microsecond: both ways to a quantile then give the same number."""
    return round(float(milliseconds), _DIGITS)


def coarse(latency_us: I64) -> I64:
    """Latencies rounded down by less than one in 128, so that equal ones can be counted: a run has
    then few different ones, whatever its size. Below 256 us they are exact."""
    bits = np.maximum(np.frexp(latency_us + 0.5)[1] - 1 - PRECISION_BITS, 0)
    made: I64 = (latency_us >> bits) << bits
    return made


def per_second(ops: pa.Table) -> list[Second]:
    """The rows of `per_second` from the table `ops`."""
    made = []
    columns = _columns(ops)
    keys = sorted(set(zip(columns.second.tolist(), columns.f, strict=True)))
    names = np.array(columns.f, dtype=object)
    for second, f in keys:
        here = (columns.second == second) & (names == f)
        ok = here & columns.ok
        times = _quantiles(columns.latency_us[ok])
        made.append(
            Second(
                second, f, int(ok.sum()), int((here & columns.failed).sum()),
                int((here & ~columns.ok & ~columns.failed).sum()),
                int(columns.records[ok].sum()), *times,
            )
        )  # fmt: skip
    return made


def totals(ops: pa.Table) -> Totals:
    """The run as a whole from the table `ops`."""
    columns = _columns(ops)
    names = np.array(columns.f, dtype=object)
    quantiles = []
    for f in sorted(set(columns.f)):
        latency = columns.latency_us[columns.ok & (names == f)]
        if len(latency):
            quantiles.append(Quantiles(f, *_quantiles(latency)))
    acks = np.sort(columns.complete_us[columns.ok & (names == "send")])
    if not len(acks):
        return Totals(tuple(quantiles))
    # Only gaps between milliseconds count, so that acknowledgements can be counted by those.
    gaps = np.where(np.diff(acks // 1000) > 0, np.diff(acks), 0)
    at = int(np.argmax(gaps)) if gaps.any() else -1
    return Totals(
        tuple(quantiles),
        first_ack_us=int(acks[0]),
        last_ack_us=int(acks[-1]),
        gap_us=int(gaps[at]) if at >= 0 else 0,
        gap_from_us=int(acks[at]) if at >= 0 else -1,
    )


class _Columns(NamedTuple):
    second: I64
    f: list[str]
    ok: np.ndarray[Any, np.dtype[np.bool_]]
    failed: np.ndarray[Any, np.dtype[np.bool_]]
    records: I64
    complete_us: I64
    latency_us: I64


def _columns(ops: pa.Table) -> _Columns:
    outcome = np.array(ops.column("outcome").to_pylist(), dtype=object)
    complete = ops.column("complete_us").to_numpy()
    invoke = ops.column("invoke_us").to_numpy()
    records = ops.column("sent").to_numpy() + ops.column("polled").to_numpy()
    timed = (complete >= 0) & (invoke >= 0)
    return _Columns(
        ops.column("second").to_numpy(), ops.column("f").to_pylist(),
        (outcome == "ok") & timed, outcome == "fail", records, complete,
        coarse(np.where(timed, complete - invoke, 0)),
    )  # fmt: skip


def _quantiles(latency_us: I64) -> tuple[Any, ...]:
    if not len(latency_us):
        return (None,) * 4
    found = np.quantile(latency_us, QUANTILES) / 1000
    return (*(rounded(q) for q in found), rounded(latency_us.max() / 1000))


def summary(meta: RunMeta, seconds: Iterable[Second], whole: Totals, faults: int) -> dict[str, Any]:
    """The measures of results.json; chart-sized whatever the run's size in operations."""
    rows: Sequence[Second] = sorted(seconds, key=lambda s: (s.second, s.f))
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
            for q in sorted(whole.quantiles)
        },
        "per_second": {
            name: [getattr(row, name) for row in acked]
            for name in ("second", "ok", "fail", "info", "records", "p50_ms", "p99_ms", "max_ms")
        },
    }


def _writing_us(meta: RunMeta, whole: Totals) -> int:
    """How long was written: from the storm's begin to the last acknowledgement."""
    begin = meta.phases.storm_us or whole.first_ack_us
    return max(meta.phases.stop_writing_us, whole.last_ack_us) - begin


def _longest_gap(meta: RunMeta, whole: Totals) -> tuple[int, int]:
    """The longest time without an acknowledgement while it was written, and when it began."""
    begin, end = meta.phases.storm_us, meta.phases.stop_writing_us
    gaps = [(whole.gap_us, -whole.gap_from_us)]
    if whole.first_ack_us < 0:
        return (end - begin, begin) if 0 < begin < end else (0, -1)
    if begin > 0:
        gaps.append((whole.first_ack_us - begin, -begin))
    if end > 0:
        gaps.append((end - whole.last_ack_us, -whole.last_ack_us))
    longest, start = max(gaps)
    return longest, -start
