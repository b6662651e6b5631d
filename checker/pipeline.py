"""Checks many run folders with Spark: one pass of ingest, one shuffle, one verdict a run.

    files of all runs -> mapInArrow (tables, facts) -> groupBy(run, partition) -> applyInArrow
        -> findings -> verdicts; measures in SQL over the tables -> results.json

Nothing comes to the driver but findings with capped witnesses and chart-sized measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from checker import measures, meta, tables
from checker.assemble import Collected
from checker.errors import CheckerError, gist
from checker.group import group_of
from checker.ingest import ingest, sources
from checker.inprocess import check_runs, collect
from checker.judge import SPARK_ROWS, judge_group
from checker.kept import Place
from checker.lines import Problems
from checker.measures_sql import measure, read_tables
from checker.parcel import SPARK_SCHEMA, packed, parcels, unpacked
from checker.run_tables import conclude
from checker.source import Source
from checker.strangers import Home
from checker.strikes import Strike, strikes_of
from checker.verdict import RunResult

_TASK_BYTES: Final = 64 << 20
_TASKS_PER_CORE: Final = 2
_SHUFFLED_BYTES: Final = 32 << 20
_MOST_PARTITIONS: Final = 4096
_FEW_BYTES: Final = 4 << 20
_FEW_RUNS: Final = 8


def check(
    paths: Sequence[Path],
    *,
    session: SparkSession | None,
    out: Path | None = None,
    again: bool = True,
) -> list[RunResult]:
    """Judge run folders, in the order given.

    Each run gets `results.json` and its tables in its own folder, or in a folder of its own under
    `out`. Without a session the same checks are made in this process. Unless `again`, runs that
    were judged before and have not changed since keep their results.

    Raises:
        CheckerError: Spark itself failed, or results cannot be written.
    """
    try:
        if session is None:
            return check_runs(paths, out=out, again=again)
        places = [Place(path, out) for path in paths]
        kept = [place.begin() for place in places]
        new = [p for p, known in zip(places, kept, strict=True) if again or known is None]
        judged = iter(_check(new, session) if new else ())
        return [next(judged) if again or known is None else known for known in kept]
    except (PySparkException, Py4JError, ConnectionError, EOFError) as error:
        raise CheckerError(f"Spark failed: {gist(error)}.") from error
    except OSError as error:
        raise CheckerError(f"Results cannot be written: {error}") from error



def _check(runs: Sequence[Place], session: SparkSession) -> list[RunResult]:
    """The pipeline."""
    work = [source for number, run in enumerate(runs) for source in sources(number, run.folder)]
    for run in runs:
        if run.written is not None:
            tables.clear_counts(run.written)
    size = sum(source.size for source in work)
    session.conf.set("spark.sql.shuffle.partitions", str(_partitions(session, size)))
    found = [Collected(meta.load(run.folder, Problems())) for run in runs]
    for row in _judged(session, runs, work):
        collect(found[row["run"]], row["partition"], row["what"], row["body"])
    homes = _homes(session, found, runs)
    struck = {n: strikes_of(run.folder, found[n].meta) for n, run in enumerate(runs)}
    measured = _measured(session, runs, struck)
    results = []
    for number, (run, known) in enumerate(zip(runs, found, strict=True)):
        counted = measured.get(number, measures.Measured())
        made = conclude(known, homes.get(number, {}), counted, struck[number])
        results.append(made.result)
        if run.written is not None:
            made.write(run.written)
        run.finish(made.result)
    return results


def _measured(
    session: SparkSession, runs: Sequence[Place], struck: Mapping[int, Sequence[Strike]]
) -> dict[int, measures.Measured]:
    """What was counted, by number of run. For a few small runs no query is worth its start."""
    tallies, acks = _counts(runs, "tallies"), _counts(runs, "acks")
    size = sum(part.stat().st_size for path in (*tallies, *acks) for part in path.iterdir())
    if size <= _FEW_BYTES and len(runs) <= _FEW_RUNS:
        found = {}
        for path, number in tallies.items():
            beside = path.with_name("acks.parquet")
            known = pq.read_table(beside) if beside in acks else tables.ACKS.empty_table()
            found[number] = measures.measure(pq.read_table(path), known, struck[number])
        return found
    session.conf.set("spark.sql.shuffle.partitions", str(_partitions(session, size)))
    return measure(session, tallies, acks, struck)


def _counts(runs: Sequence[Place], name: str) -> dict[Path, int]:
    """The tables of counts this check has made, and whose they are."""
    made = {run.written / f"{name}.parquet": n for n, run in enumerate(runs) if run.written}
    return {path: number for path, number in made.items() if path.exists()}


def _tables(runs: Sequence[Place], name: str) -> dict[Path, int]:
    """The tables of one name that are there, and whose they are."""
    places = {run.tables / f"{name}.parquet": n for n, run in enumerate(runs) if run.tables}
    return {path: number for path, number in places.items() if path.exists()}


def _judged(
    session: SparkSession, runs: Sequence[Place], work: Sequence[Source]
) -> Sequence[Mapping[str, Any]]:
    """Findings, problems and notes of all groups, in an order that depends on nothing."""
    bins = _bins(work, session.sparkContext.defaultParallelism)
    folders = [run.written for run in runs]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for source in bins[number]:
                    yield from packed(parcels(ingest(source, folders[source.run]).facts))

    def judge(key: tuple[pa.Scalar, ...], facts: pa.Table) -> pa.Table:
        return judge_group(key[0].as_py(), group_of(key[1].as_py(), unpacked(facts)))

    facts = session.range(0, len(bins), 1, len(bins)).mapInArrow(read, SPARK_SCHEMA)
    judged = facts.groupBy("run", "partition").applyInArrow(judge, SPARK_ROWS)
    rows: list[dict[str, Any]] = judged.toArrow().to_pylist()
    rows.sort(key=lambda row: (row["run"], row["partition"], row["nth"]))
    return rows


def _partitions(session: SparkSession, size: int) -> int:
    """Into how many partitions to shuffle what was made of so many bytes: a task for each is dear
    when there is little."""
    cores = session.sparkContext.defaultParallelism
    return min(max(cores, size // _SHUFFLED_BYTES), _MOST_PARTITIONS)


def _bins(work: Sequence[Source], cores: int) -> list[list[Source]]:
    """Sources spread over tasks by size: the largest first, each to the emptiest task."""
    sizes = {source: source.size for source in work}
    tasks = max(cores * _TASKS_PER_CORE, sum(sizes.values()) // _TASK_BYTES)
    bins: list[list[Source]] = [[] for _ in range(min(tasks, len(work)))]
    loads = [0] * len(bins)
    for source in sorted(work, key=lambda s: (-sizes[s], s.run, str(s.path), s.groups)):
        emptiest = loads.index(min(loads))
        bins[emptiest].append(source)
        # Opening a file costs about as much as reading some kilobytes of it.
        loads[emptiest] += sizes[source] + 4096
    return bins


def _homes(
    session: SparkSession, found: Sequence[Collected], runs: Sequence[Place]
) -> dict[int, dict[int, Home]]:
    """By run, where the values were sent that were found where nobody sent them; normally none."""
    wanted = {number: known.unclaimed() for number, known in enumerate(found)}
    sends = {path: n for path, n in _tables(runs, "sends").items() if wanted[n]}
    if not sends:
        return {}
    values = session.createDataFrame(
        [(n, value) for n in sends.values() for value in wanted[n]], "number int, wanted bigint"
    )
    frame = read_tables(session, "sends", sends)
    inside = (frame["number"] == values["number"]) & (
        (frame["value"] <= values["wanted"])
        & (values["wanted"] < frame["value"] + frame["count"])
    )
    rows = (
        frame.join(sql.broadcast(values), inside)
        .select(frame["number"], "wanted", "partition", "op", "process", "client", "invoke_us",
                "value")
        .collect()
    )  # fmt: skip
    homes: dict[int, dict[int, Home]] = {}
    # The last in order of value and operation wins, as in process.
    for row in sorted(rows, key=lambda row: (row.value, row.op)):
        home = Home(row.partition, row.op, row.process, row.client, row.invoke_us)
        homes.setdefault(row.number, {})[row.wanted] = home
    return homes
