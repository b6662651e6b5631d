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
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from checker import measures, meta, tables
from checker.assemble import Collected, assemble
from checker.errors import CheckerError
from checker.ingest import ingest, sources
from checker.inprocess import check_run, collect
from checker.judge import SPARK_ROWS, judge_group
from checker.lines import Problems
from checker.measures_sql import measure, path_of, read_table
from checker.parcel import SPARK_SCHEMA, packed, parcels, unpacked
from checker.results import write_results
from checker.source import Source
from checker.strangers import Home
from checker.verdict import RunResult

_TASK_BYTES: Final = 64 << 20
_TASKS_PER_CORE: Final = 2


def check(
    paths: Sequence[Path], *, session: SparkSession | None, out: Path | None = None
) -> list[RunResult]:
    """Judge run folders, in the order given.

    Each run gets `results.json` and its tables in its own folder, or in `out/<n>-<run>` when `out`
    is given. Without a session the same checks are made in this process.

    Raises:
        CheckerError: Spark itself failed, or results cannot be written.
    """
    folders = [path.absolute() for path in paths]
    targets = [_target(out, n, folder) for n, folder in enumerate(folders)]
    try:
        if session is None:
            return [
                check_run(folder, write=target is not None, out=target)
                for folder, target in zip(folders, targets, strict=True)
            ]
        return _check(folders, targets, session) if folders else []
    except (PySparkException, Py4JError, ConnectionError, EOFError) as error:
        raise CheckerError(f"Spark failed: {_first_line(error)}.") from error
    except OSError as error:
        raise CheckerError(f"Results cannot be written: {error}") from error


def _first_line(error: Exception) -> str:
    """The gist of an error of Spark, whose words may have died with its JVM."""
    try:
        words = str(error).strip()
    except Exception:
        words = ""
    return words.split("\n", 1)[0].rstrip(".") or type(error).__name__


def _target(out: Path | None, number: int, folder: Path) -> Path | None:
    """Where the results of a run go; nowhere if there is no such run."""
    if out is not None:
        return out.absolute() / f"{number}-{folder.name}"
    return folder if folder.is_dir() else None


def _check(
    folders: Sequence[Path], targets: Sequence[Path | None], session: SparkSession
) -> list[RunResult]:
    """The pipeline."""
    runs = [Collected(meta.load(folder, Problems())) for folder in folders]
    work = [source for run, folder in enumerate(folders) for source in sources(run, folder)]
    for row in _judged(session, work, targets):
        collect(runs[row["run"]], row["partition"], row["what"], row["body"])
    homes = _homes(session, runs, targets)
    ops = {t / "tables" / "ops.parquet": run for run, t in enumerate(targets) if t is not None}
    present = [path for path in ops if path.is_file()]
    measured = {
        ops[path]: found for path, found in (measure(session, present) if present else {}).items()
    }
    results = []
    for number, (run, target) in enumerate(zip(runs, targets, strict=True)):
        seconds, whole = measured.get(number, ([], measures.Totals()))
        summary = measures.summary(run.meta, seconds, whole, run.faults)
        result = assemble(run, homes.get(number, {}), summary)
        results.append(result)
        if target is not None:
            rows = ((run.meta.run, *second) for second in sorted(seconds))
            tables.write(target / "tables", "per_second", "", tables.from_rows("per_second", rows))
            write_results(target, result)
    return results


def _judged(
    session: SparkSession, work: Sequence[Source], targets: Sequence[Path | None]
) -> Sequence[Mapping[str, Any]]:
    """Findings, problems and notes of all groups, in an order that depends on nothing."""
    bins = _bins(work, session.sparkContext.defaultParallelism)
    folders = [None if target is None else target / "tables" for target in targets]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for source in bins[number]:
                    yield from packed(parcels(ingest(source, folders[source.run]).facts))

    def judge(key: tuple[pa.Scalar, ...], facts: pa.Table) -> pa.Table:
        return judge_group(key[0].as_py(), key[1].as_py(), unpacked(facts))

    facts = session.range(0, len(bins), 1, len(bins)).mapInArrow(read, SPARK_SCHEMA)
    judged = facts.groupBy("run", "partition").applyInArrow(judge, SPARK_ROWS)
    rows: list[dict[str, Any]] = judged.toArrow().to_pylist()
    rows.sort(key=lambda row: (row["run"], row["partition"], row["nth"]))
    return rows


def _bins(work: Sequence[Source], cores: int) -> list[list[Source]]:
    """Sources spread over tasks by size: the largest first, each to the emptiest task."""
    sizes = {s: s.path.stat().st_size if s.path.is_file() else 0 for s in work}
    tasks = max(cores * _TASKS_PER_CORE, sum(sizes.values()) // _TASK_BYTES)
    bins: list[list[Source]] = [[] for _ in range(min(tasks, len(work)))]
    loads = [0] * len(bins)
    for source in sorted(work, key=lambda s: (-sizes[s], s.run, str(s.path))):
        emptiest = loads.index(min(loads))
        bins[emptiest].append(source)
        # Opening a file costs about as much as reading some kilobytes of it.
        loads[emptiest] += sizes[source] + 4096
    return bins


def _homes(
    session: SparkSession, runs: Sequence[Collected], targets: Sequence[Path | None]
) -> dict[int, dict[int, Home]]:
    """By run, where the values were sent that were found where nobody sent them; normally none."""
    sends = {
        target / "tables" / "sends.parquet": number
        for number, (run, target) in enumerate(zip(runs, targets, strict=True))
        if target is not None and run.unclaimed()
    }
    if not sends:
        return {}
    wanted = session.createDataFrame(
        [(n, value) for n in sends.values() for value in runs[n].unclaimed()],
        "run_number int, wanted bigint",
    )
    frame = read_table(session, "sends", list(sends))
    inside = (frame["value"] <= wanted["wanted"]) & (
        wanted["wanted"] < frame["value"] + frame["count"]
    )
    rows = (
        frame.join(sql.broadcast(wanted), inside)
        .select("file", "run_number", "wanted", "partition", "op", "process", "client",
                "invoke_us", "value")
        .collect()
    )  # fmt: skip
    found: dict[int, dict[int, Home]] = {}
    # The last in order of value and operation wins, as in process.
    for row in sorted(rows, key=lambda row: (row.value, row.op)):
        number = sends[path_of(row.file)]
        if number == row.run_number:
            home = Home(row.partition, row.op, row.process, row.client, row.invoke_us)
            found.setdefault(number, {})[row.wanted] = home
    return found
