"""The measures of many runs at once, in Spark SQL over their tables of counts.

Few queries for any number of runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql

from checker.ingest.fault_windows import InjectedFault
from checker.ingest.tables import spark_schema
from checker.output.measures import Around, Counted, Gap, Measured, rounded

_COUNTED = """
SELECT number, by, name, second, f, grouping(second) AS whole,
       coalesce(sum(times) FILTER (WHERE us >= 0), 0) AS ok,
       coalesce(sum(times) FILTER (WHERE outcome = 'fail'), 0) AS fail,
       coalesce(sum(times) FILTER (WHERE us < 0 AND outcome != 'fail'), 0) AS info,
       coalesce(sum(records) FILTER (WHERE us >= 0), 0) AS records,
       percentile(CASE WHEN us >= 0 THEN us END, array(0.5, 0.95, 0.99), times) AS quantiles,
       max(CASE WHEN us >= 0 AND times > 0 THEN us END) AS highest
FROM {tallies} GROUP BY GROUPING SETS ((number, by, name, f, second), (number, by, name, f))
HAVING by = 'run' OR grouping(second) = 0
"""
_GAPS = """
SELECT number, by, name, min(first_us) AS first_us, max(last_us) AS last_us,
       max(struct(first_us - before_us AS gap_us, -before_us AS negative_us)) AS gap
FROM (SELECT number, by, name, first_us, last_us,
             max(last_us) OVER (PARTITION BY number, by, name ORDER BY first_us
                                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_us
      FROM (SELECT number, by, name, min(first_us) AS first_us, max(last_us) AS last_us
            FROM {acks} WHERE by != 'after' GROUP BY number, by, name, stretch))
GROUP BY number, by, name
"""
_AROUND = """
SELECT coalesce(q.number, a.number) AS number, coalesce(q.nth, a.nth) AS nth,
       coalesce(q.name, a.name) AS name, coalesce(a.first_us, -1) AS first_us,
       coalesce(q.gap_us, -1) AS gap_us
FROM (SELECT g.number, s.nth, g.name, max(g.first_us - g.before_us) AS gap_us
      FROM (SELECT number, by, name, first_us,
                   max(last_us) OVER (PARTITION BY number, by, name ORDER BY first_us
                                      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_us
            FROM (SELECT number, by, name, min(first_us) AS first_us, max(last_us) AS last_us
                  FROM {acks} WHERE by != 'after' GROUP BY number, by, name, stretch)) g
      JOIN {faults} s
      ON g.number = s.number AND g.before_us < s.end_us AND g.first_us > s.begin_us
      GROUP BY g.number, s.nth, g.name) q
FULL OUTER JOIN
     (SELECT number, cast(stretch AS int) AS nth, name, min(first_us) AS first_us
      FROM {acks} WHERE by = 'after' GROUP BY number, stretch, name) a
ON q.number = a.number AND q.nth = a.nth AND q.name = a.name
"""


def measure(
    session: SparkSession,
    tallies: Mapping[Path, int],
    acks: Mapping[Path, int],
    injected: Mapping[int, Sequence[InjectedFault]],
) -> dict[int, Measured]:
    """What was counted, by number of run; a run without operations is not in the result."""
    counted: dict[int, list[Counted]] = defaultdict(list)
    gaps: dict[int, list[Gap]] = defaultdict(list)
    around: dict[int, list[Around]] = defaultdict(list)
    if tallies:
        frame = read_tables(session, "tallies", tallies)
        for row in session.sql(_COUNTED, tallies=frame).collect():
            counted[row.number].append(_counted(row))
    if acks:
        frame = read_tables(session, "acks", acks)
        for row in session.sql(_GAPS, acks=frame).collect():
            gaps[row.number].append(_gap(row))
        windows = [(n, s.nth, s.begin_us, s.end_us) for n, found in injected.items() for s in found]
        if windows:
            faults = session.createDataFrame(
                windows, "number int, nth int, begin_us bigint, end_us bigint"
            )
            for row in session.sql(_AROUND, acks=frame, faults=faults).collect():
                around[row.number].append(Around(row.nth, row.name, row.first_us, row.gap_us))
    return {
        number: Measured(found, gaps[number], sorted(around[number]))
        for number, found in counted.items()
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


def _counted(row: Row) -> Counted:
    times: tuple[float | None, ...] = (None,) * 4
    if row.highest is not None:
        times = (*(rounded(q / 1000) for q in row.quantiles), rounded(row.highest / 1000))
    second = None if row.whole else row.second
    p50, p95, p99, highest = times
    return Counted(
        row.by,
        row.name,
        second,
        row.f,
        row.ok,
        row.fail,
        row.info,
        row.records,
        p50,
        p95,
        p99,
        highest,
    )


def _gap(row: Row) -> Gap:
    longest = row.gap.gap_us
    known = longest is not None and longest > 0
    return Gap(
        row.by,
        row.name,
        row.first_us,
        row.last_us,
        longest if known else 0,
        -row.gap.negative_us if known else -1,
    )
