"""The measures of many runs at once, in Spark SQL over their `ops` tables.

Three small queries for any number of runs; each run is known by the path of its table, because
nothing forbids two folders to hold runs of one name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, Row, SparkSession

from checker.measures import Quantiles, Second, Totals, rounded
from checker.tables import spark_schema

# An ok operation of which both times are known; anything else has no latency.
_TIMED = "outcome = 'ok' AND invoke_us >= 0 AND complete_us >= 0"
_LATENCY = f"CASE WHEN {_TIMED} THEN complete_us - invoke_us END"

_BY_SECOND = f"""
SELECT file, second, f, grouping(second) AS whole,
       count_if({_TIMED}) AS ok, count_if(outcome = 'fail') AS fail,
       count_if(outcome != 'fail' AND NOT ({_TIMED})) AS info,
       coalesce(sum(sent + polled) FILTER (WHERE {_TIMED}), 0) AS records,
       percentile({_LATENCY}, array(0.5, 0.95, 0.99)) AS quantiles, max({_LATENCY}) AS highest
FROM {{ops}} GROUP BY GROUPING SETS ((file, f, second), (file, f))
"""
_GAPS = f"""
SELECT file, min(complete_us) AS first_us, max(complete_us) AS last_us,
       max(struct(complete_us - before_us AS gap_us, -before_us AS negative_us)) AS gap
FROM (SELECT file, complete_us,
             lag(complete_us) OVER (PARTITION BY file ORDER BY complete_us) AS before_us
      FROM {{ops}} WHERE f = 'send' AND {_TIMED})
GROUP BY file
"""


def measure(
    session: SparkSession, tables: Sequence[Path]
) -> dict[Path, tuple[list[Second], Totals]]:
    """Seconds and totals of each `ops` table; a run without operations is not in the result."""
    ops = read_table(session, "ops", tables)
    seconds: dict[Path, list[Second]] = defaultdict(list)
    quantiles: dict[Path, list[Quantiles]] = defaultdict(list)
    for row in session.sql(_BY_SECOND, ops=ops).collect():
        file = path_of(row.file)
        if not row.whole:
            times = _times(row)
            seconds[file].append(
                Second(row.second, row.f, row.ok, row.fail, row.info, row.records, *times)
            )
        elif row.highest is not None:
            p50, p95, p99 = (rounded(q / 1000) for q in row.quantiles)
            highest = rounded(row.highest / 1000)
            quantiles[file].append(Quantiles(row.f, p50, p95, p99, highest))
    gaps = {path_of(row.file): row for row in session.sql(_GAPS, ops=ops).collect()}
    return {
        file: (found, _totals(quantiles[file], gaps.get(file))) for file, found in seconds.items()
    }


def read_table(session: SparkSession, name: str, tables: Sequence[Path]) -> DataFrame:
    """Tables of one name of several runs, with the path of each row's table as `file`."""
    frame = session.read.schema(spark_schema(name)).parquet(*(str(path) for path in tables))
    return frame.selectExpr("*", "_metadata.file_path AS file")


def path_of(uri: str) -> Path:
    """The path behind what Spark calls a file."""
    return Path(unquote(urlparse(uri).path))


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
