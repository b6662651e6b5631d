"""Checks many run folders with Spark: one pass of ingest, one shuffle, one verdict a run.

    files of all runs -> mapInArrow (tables, facts) -> groupBy(run, partition) -> applyInArrow
        -> findings -> verdicts; measures in SQL over the tables -> results.json

Reads of a hot partition go through one more shuffle, by ranges of offsets
(`checker.engine.offset_ranges`).

Nothing comes to the driver but findings with capped witnesses and chart-sized measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from checker.checks.unknown_values import Origin
from checker.engine.judge import NOT_SPLITTABLE, SPARK_ROWS
from checker.engine.large_history import into_tables
from checker.engine.local import check_runs, collect
from checker.engine.offset_ranges import Ranges, ranges_of, split
from checker.engine.result_cache import Place
from checker.engine.tasks import downsample, judge
from checker.evidence.arrow_blob import SPARK_SCHEMA, arrow_blobs, packed
from checker.formats.errors import CheckerError, error_summary
from checker.formats.verdict import RunResult
from checker.ingest import run_meta, tables
from checker.ingest.fault_windows import InjectedFault, injected_faults_of
from checker.ingest.ingest import ingest, only_tables, sources
from checker.ingest.lines import Problems
from checker.ingest.read_tables import table_sources
from checker.ingest.source import Source
from checker.output import measures
from checker.output.assemble import Collected
from checker.output.measures_sql import measure, read_tables
from checker.output.run_tables import conclude

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
        raise CheckerError(f"Spark failed: {error_summary(error)}.") from error
    except OSError as error:
        raise CheckerError(f"Results cannot be written: {error}") from error


def _check(runs: Sequence[Place], session: SparkSession) -> list[RunResult]:
    """The pipeline."""
    found = [Collected(run_meta.load(run.folder, Problems())) for run in runs]
    for run in runs:
        if run.written is not None:
            tables.clear_counts(run.written)
    in_parts = into_tables(session, runs, [known.meta for known in found])
    work = [
        source
        for number, run in enumerate(runs)
        for source in _sources(number, run, in_parts.get(number))
    ]
    size = sum(source.size for source in work)
    session.conf.set("spark.sql.shuffle.partitions", str(_partitions(session, size)))
    parts = {
        n: ranges_of(run.tables, found[n].meta)
        for n, run in enumerate(runs)
        # Only tables say beforehand how many reads there are.
        if run.tables is not None and (n in in_parts or only_tables(run.folder))
    }
    rows = _judged(session, runs, work, parts)
    if again := {(row["run"], row["partition"]) for row in rows if row["what"] == NOT_SPLITTABLE}:
        rows = [row for row in rows if row["what"] != NOT_SPLITTABLE]
        of_them = [source for source in work if source.run in {run for run, _ in again}]
        rows += _judged(session, runs, of_them, {}, again)
        rows.sort(key=lambda row: (row["run"], row["partition"], row["nth"]))
    for row in rows:
        collect(found[row["run"]], row["partition"], row["what"], row["body"])
    origins = _origins(session, found, runs)
    injected = {n: injected_faults_of(run.folder, found[n].meta) for n, run in enumerate(runs)}
    measured = _measured(session, runs, injected)
    results = []
    for number, (run, known) in enumerate(zip(runs, found, strict=True)):
        counted = measured.get(number, measures.Measured())
        made = conclude(known, origins.get(number, {}), counted, injected[number])
        results.append(made.result)
        if run.written is not None:
            made.write(run.written)
        run.finish(made.result)
    return results


def _measured(
    session: SparkSession, runs: Sequence[Place], injected: Mapping[int, Sequence[InjectedFault]]
) -> dict[int, measures.Measured]:
    """What was counted, by number of run. For a few small runs no query is worth its start."""
    tallies, acks = _counts(runs, "tallies"), _counts(runs, "acks")
    size = sum(part.stat().st_size for path in (*tallies, *acks) for part in path.iterdir())
    if size <= _FEW_BYTES and len(runs) <= _FEW_RUNS:
        found = {}
        for path, number in tallies.items():
            beside = path.with_name("acks.parquet")
            known = pq.read_table(beside) if beside in acks else tables.ACKS.empty_table()
            found[number] = measures.measure(pq.read_table(path), known, injected[number])
        return found
    session.conf.set("spark.sql.shuffle.partitions", str(_partitions(session, size)))
    return measure(session, tallies, acks, injected)


def _counts(runs: Sequence[Place], name: str) -> dict[Path, int]:
    """The tables of counts this check has made, and whose they are."""
    made = {run.written / f"{name}.parquet": n for n, run in enumerate(runs) if run.written}
    return {path: number for path, number in made.items() if path.exists()}


def _tables(runs: Sequence[Place], name: str) -> dict[Path, int]:
    """The tables of one name that are there, and whose they are."""
    places = {run.tables / f"{name}.parquet": n for n, run in enumerate(runs) if run.tables}
    return {path: number for path, number in places.items() if path.exists()}


def _sources(number: int, run: Place, made: Path | None) -> list[Source]:
    """What there is to read of a run; its history from the tables that were `made` of it."""
    found = sources(number, run.folder)
    if made is None:
        return found
    kept = [source for source in found if source.kind != "history"]
    return [*kept, *table_sources(number, run.folder, made)]


def _judged(
    session: SparkSession,
    runs: Sequence[Place],
    work: Sequence[Source],
    parts: Mapping[int, Mapping[str, Ranges]],
    only: Set[tuple[int, str]] | None = None,
) -> list[dict[str, Any]]:
    """Findings, problems and notes of all groups, in an order that depends on nothing.

    `parts`: by run the partitions whose reads are to be split by offset; `only`: these groups.
    """
    hot = [source for source in work if source.kind == "reads" and parts.get(source.run)]
    plain = [source for source in work if source not in set(hot)]
    facts = _facts(session, runs, plain, parts, only)
    if hot:
        split = _facts(session, runs, hot, parts, only)
        ranges = split.groupBy("run", "partition", "offset_range")
        facts = facts.union(ranges.applyInArrow(downsample, SPARK_SCHEMA))
    rows: list[dict[str, Any]] = (
        facts.groupBy("run", "partition").applyInArrow(judge, SPARK_ROWS).toArrow().to_pylist()
    )
    rows.sort(key=lambda row: (row["run"], row["partition"], row["nth"]))
    return rows


def _facts(
    session: SparkSession,
    runs: Sequence[Place],
    work: Sequence[Source],
    parts: Mapping[int, Mapping[str, Ranges]],
    only: Set[tuple[int, str]] | None,
) -> DataFrame:
    """The facts of these sources, as Arrow blobs."""
    bins = _bins(work, session.sparkContext.defaultParallelism)
    folders = [run.written for run in runs]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for source in (s for number in batch.column(0).to_pylist() for s in bins[number]):
                for block in ingest(source, folders[source.run]).facts:
                    for part, rows in split(block, parts.get(source.run, {})):
                        wanted = (
                            blob
                            for blob in arrow_blobs([rows])
                            if only is None or (blob.run, blob.partition) in only
                        )
                        yield from packed(wanted, part)

    return session.range(0, len(bins), 1, len(bins)).mapInArrow(read, SPARK_SCHEMA)


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


def _origins(
    session: SparkSession, found: Sequence[Collected], runs: Sequence[Place]
) -> dict[int, dict[int, Origin]]:
    """By run, where the values were sent that were found where nobody sent them; normally none."""
    wanted = {number: known.unknown_values() for number, known in enumerate(found)}
    sends = {path: n for path, n in _tables(runs, "sends").items() if wanted[n]}
    if not sends:
        return {}
    values = session.createDataFrame(
        [(n, value) for n in sends.values() for value in wanted[n]], "number int, wanted bigint"
    )
    frame = read_tables(session, "sends", sends)
    inside = (frame["number"] == values["number"]) & (
        (frame["value"] <= values["wanted"]) & (values["wanted"] < frame["value"] + frame["count"])
    )
    rows = (
        frame.join(sql.broadcast(values), inside)
        .select(
            frame["number"], "wanted", "partition", "op", "process", "client", "invoke_us", "value"
        )
        .collect()
    )
    origins: dict[int, dict[int, Origin]] = {}
    # The last in order of value and operation wins, as in process.
    for row in sorted(rows, key=lambda row: (row.value, row.op)):
        origin = Origin(row.partition, row.op, row.process, row.client, row.invoke_us)
        origins.setdefault(row.number, {})[row.wanted] = origin
    return origins
