"""The measures of many runs at once, in Spark SQL over their `ops` tables.

Few queries for any number of runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql

from checker.measures import PRECISION_BITS, Quantiles, Second, Totals, rounded
from checker.tables import spark_schema

# An ok operation of which both times are known; anything else has no latency.
_TIMED = "outcome = 'ok' AND invoke_us >= 0 AND complete_us >= 0"
_LATENCY = f"CASE WHEN {_TIMED} THEN complete_us - invoke_us END"
# As `checker.measures.coarse`: the half keeps the logarithm of a power of two above the whole.
_DROPPED_BITS = f"greatest(0, int(log2(us + 0.5D)) - {PRECISION_BITS})"

# All operations as counts of equal latencies: few rows, from which everything else is made.
_COARSE = f"""
SELECT number, f, second, us, ok, fail, count(*) AS times, sum(records) AS records
FROM (SELECT number, f, second, ok, fail, records,
             shiftleft(shiftright(us, {_DROPPED_BITS}), {_DROPPED_BITS}) AS us
      FROM (SELECT number, f, second, {_LATENCY} AS us, outcome = 'fail' AS fail, {_TIMED} AS ok,
                   sent + polled AS records
            FROM {{ops}}))
GROUP BY ALL
"""
_BY_SECOND = """
SELECT number, second, f, grouping(second) AS whole,
       coalesce(sum(times) FILTER (WHERE ok), 0) AS ok,
       coalesce(sum(times) FILTER (WHERE fail), 0) AS fail,
       coalesce(sum(times) FILTER (WHERE NOT ok AND NOT fail), 0) AS info,
       coalesce(sum(records) FILTER (WHERE ok), 0) AS records,
       percentile(us, array(0.5, 0.95, 0.99), times) AS quantiles, max(us) AS highest
FROM {coarse} GROUP BY GROUPING SETS ((number, f, second), (number, f))
"""
# A gap of a millisecond or more always shows between two milliseconds that have acknowledgements.
_GAPS = f"""
SELECT number, min(first_us) AS first_us, max(last_us) AS last_us,
       max(struct(first_us - before_us AS gap_us, -before_us AS negative_us)) AS gap
FROM (SELECT number, first_us, last_us,
             lag(last_us) OVER (PARTITION BY number ORDER BY first_us) AS before_us
      FROM (SELECT number, min(complete_us) AS first_us, max(complete_us) AS last_us
            FROM {{ops}} WHERE f = 'send' AND {_TIMED}
            GROUP BY number, complete_us DIV 1000))
GROUP BY number
"""


def measure(
    session: SparkSession, tables: Mapping[Path, int]
) -> dict[int, tuple[list[Second], Totals]]:
    """Seconds and totals by number of run, from `ops` tables; a run without operations is not in
    the result."""
    ops = read_tables(session, "ops", tables)
    seconds: dict[int, list[Second]] = defaultdict(list)
    quantiles: dict[int, list[Quantiles]] = defaultdict(list)
    coarse = session.sql(_COARSE, ops=ops)
    for row in session.sql(_BY_SECOND, coarse=coarse).collect():
        if not row.whole:
            times = _times(row)
            seconds[row.number].append(
                Second(row.second, row.f, row.ok, row.fail, row.info, row.records, *times)
            )
        elif row.highest is not None:
            p50, p95, p99 = (rounded(q / 1000) for q in row.quantiles)
            highest = rounded(row.highest / 1000)
            quantiles[row.number].append(Quantiles(row.f, p50, p95, p99, highest))
    gaps = {row.number: row for row in session.sql(_GAPS, ops=ops).collect()}
    return {
        number: (found, _totals(quantiles[number], gaps.get(number)))
        for number, found in seconds.items()
    }


def read_tables(session: SparkSession, name: str, tables: Mapping[Path, int]) -> DataFrame:
    """Tables of one name of several runs; `number` says whose each row is.

    A table is a file or a folder of files. Runs are known by the place of their tables, because
    nothing forbids two folders to hold runs of one name.
    """
    frames = session.read.schema(spark_schema(name)).parquet(*map(str, tables))
    if len(tables) == 1:
        return frames.withColumn("number", sql.lit(next(iter(tables.values()))))
    whose = session.createDataFrame(
        [(str(file), n) for path, n in tables.items() for file in _files(path)],
        "file string, number int",
    )
    plain = "replace(substring_index(_metadata.file_path, ':', -1), '+', '%2B')"
    path = sql.expr(f"url_decode({plain})")
    frames = frames.withColumn("file", sql.regexp_replace(path, "^/+", "/"))
    return frames.join(sql.broadcast(whose), "file").drop("file")


def _files(path: Path) -> Sequence[Path]:
    return sorted(path.glob("[!.]*.parquet")) if path.is_dir() else [path]


def _times(row: Row) -> tuple[float | None, float | None, float | None, float | None]:
    """p50, p95, p99 and maximum of one second, if anything ended ok in it."""
    if row.highest is None:
        return None, None, None, None
    p50, p95, p99 = (rounded(q / 1000) for q in row.quantiles)
    return p50, p95, p99, rounded(row.highest / 1000)


def _totals(quantiles: Sequence[Quantiles], gap: Row | None) -> Totals:
    """The run as a whole."""
    if gap is None:
        return Totals(tuple(sorted(quantiles)))
    several = gap.gap.gap_us is not None
    return Totals(
        tuple(sorted(quantiles)),
        first_ack_us=gap.first_us,
        last_ack_us=gap.last_us,
        gap_us=gap.gap.gap_us if several else 0,
        gap_from_us=-gap.gap.negative_us if several else -1,
    )
