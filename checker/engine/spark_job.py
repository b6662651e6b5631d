"""Judges many run folders with Spark: one pass of ingest, one shuffle, one verdict a run.

    files of all runs -> mapInArrow (tables, facts) -> groupBy(run, partition) -> applyInArrow
        -> findings -> verdicts; measures by run -> results.json

Reads of a hot partition go through one more shuffle, by ranges of offsets
(`checker.engine.offset_ranges`).

Nothing comes to the driver but findings with capped witnesses and chart-sized measures.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from checker.checks.findings import Origin
from checker.checks.unknown_values import joined_origins, origins
from checker.engine import plan
from checker.engine.judge import SPARK_ROWS, judge_rows
from checker.engine.large_history import into_tables
from checker.engine.local import check_runs
from checker.engine.offset_ranges import Ranges, downsample, ranges_of, split
from checker.engine.plan import RunToJudge
from checker.engine.spark_session import error_summary
from checker.evidence.arrow_blob import SPARK_SCHEMA, arrow_blobs, packed
from checker.formats.errors import CheckerError
from checker.formats.verdict import RunResult
from checker.ingest import tables
from checker.ingest.fault_windows import InjectedFault
from checker.ingest.ingest import ingest, only_tables, sources
from checker.ingest.read_tables import sends_in, table_sources
from checker.ingest.source import Source
from checker.output.assemble import Judged
from checker.output.measures import Measured, measure

_TASK_BYTES: Final = 64 << 20
_TASKS_PER_CORE: Final = 2
_SHUFFLED_BYTES: Final = 32 << 20
_MOST_PARTITIONS: Final = 4096
_FEW_BYTES: Final = 4 << 20


def check(
    paths: Sequence[Path],
    *,
    session: SparkSession | None,
    out: Path | None = None,
    again: bool = True,
) -> list[RunResult]:
    """Judge run folders as `checker.engine.plan.check` says, without a session in this process.

    Raises:
        CheckerError: Spark itself failed, or results cannot be written.
    """
    try:
        if session is None:
            return check_runs(paths, out=out, again=again)
        return plan.check(paths, partial(SparkExecutor, session), out=out, again=again)
    except (PySparkException, Py4JError, ConnectionError, EOFError) as error:
        raise CheckerError(f"Spark failed: {error_summary(error)}.") from error
    except OSError as error:
        raise CheckerError(f"Results cannot be written: {error}") from error


class SparkExecutor:
    """Spreads sources over Spark's tasks, and groups over those of a shuffle."""

    def __init__(self, session: SparkSession, runs: Sequence[RunToJudge]) -> None:
        self._session = session
        self._runs = runs

    def judged(self) -> Iterator[tuple[int, Judged]]:
        """Judge all groups of all runs, in an order that depends on nothing."""
        in_parts = into_tables(self._session, self._runs)
        work = [
            source
            for number, run in enumerate(self._runs)
            for source in _sources(number, run, in_parts.get(number))
        ]
        size = sum(source.size for source in work)
        self._session.conf.set(
            "spark.sql.shuffle.partitions", str(_partitions(self._session, size))
        )
        ranges = {
            n: ranges_of(run.tables, run.meta)
            for n, run in enumerate(self._runs)
            # Only tables say beforehand how many reads there are.
            if run.tables is not None and (n in in_parts or only_tables(run.folder))
        }
        rows = self._rows(work, ranges)
        if whole := {(row["run"], row["partition"]) for row in rows if row["body"] is None}:
            rows = [row for row in rows if row["body"] is not None]
            rows += self._rows([s for s in work if s.run in {run for run, _ in whole}], {}, whole)
        for row in sorted(rows, key=lambda row: (row["run"], row["partition"])):
            yield row["run"], msgspec.msgpack.decode(row["body"], type=Judged)

    def _rows(
        self,
        work: Sequence[Source],
        ranges: Mapping[int, Mapping[str, Ranges]],
        only: Set[tuple[int, str]] | None = None,
    ) -> list[dict[str, Any]]:
        """The judged groups of these sources.

        `ranges`: by run the partitions whose reads are to be split by offset; `only`: these groups.
        """
        hot = [source for source in work if source.kind == "reads" and ranges.get(source.run)]
        plain = [source for source in work if source not in set(hot)]
        facts = self._facts(plain, ranges, only)
        if hot:
            in_ranges = self._facts(hot, ranges, only).groupBy("run", "partition", "offset_range")
            facts = facts.union(in_ranges.applyInArrow(downsample, SPARK_SCHEMA))
        judged = facts.groupBy("run", "partition").applyInArrow(judge_rows, SPARK_ROWS)
        rows: list[dict[str, Any]] = judged.toArrow().to_pylist()
        return rows

    def _facts(
        self,
        work: Sequence[Source],
        ranges: Mapping[int, Mapping[str, Ranges]],
        only: Set[tuple[int, str]] | None,
    ) -> DataFrame:
        """The facts of these sources, as Arrow blobs."""
        bins = _bins(work, self._session.sparkContext.defaultParallelism)
        folders = [run.written for run in self._runs]

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for source in (s for number in batch.column(0).to_pylist() for s in bins[number]):
                    for block in ingest(source, folders[source.run]).facts:
                        for part, rows in split(block, ranges.get(source.run, {})):
                            wanted = (
                                blob
                                for blob in arrow_blobs([rows])
                                if only is None or (blob.run, blob.partition) in only
                            )
                            yield from packed(wanted, part)

        return self._session.range(0, len(bins), 1, len(bins)).mapInArrow(read, SPARK_SCHEMA)

    def origins(self, unknown: Mapping[int, Sequence[int]]) -> dict[int, dict[int, Origin]]:
        """By run and value, the sends that wrote these values: one task for some row groups."""
        work = [
            source
            for number in unknown
            if (where := self._runs[number].tables) is not None
            for source in table_sources(number, self._runs[number].folder, where)
            if source.kind == "sends"
        ]

        def search(source: Source) -> tuple[int, list[dict[int, Origin]]]:
            wanted = unknown[source.run]
            return source.run, [origins(wanted, batch) for batch in sends_in(source)]

        found: dict[int, list[dict[int, Origin]]] = {}
        for number, parts in self._each(search, work):
            found.setdefault(number, []).extend(parts)
        return {number: joined_origins(parts) for number, parts in found.items()}

    def counted(self, injected: Sequence[Sequence[InjectedFault]]) -> dict[int, Measured]:
        """What was counted, one task a run; small counts are not worth a task."""
        folders = [run.written for run in self._runs]
        there = [n for n, run in enumerate(folders) if run and (run / "tallies.parquet").exists()]

        def count(number: int) -> tuple[int, Measured]:
            folder = folders[number]
            assert folder is not None
            acks = folder / "acks.parquet"
            known = pq.read_table(acks) if acks.exists() else tables.SCHEMAS["acks"].empty_table()
            tallies = pq.read_table(folder / "tallies.parquet")
            return number, measure(tallies, known, injected[number])

        size = sum(
            file.stat().st_size
            for number in there
            for name in ("tallies", "acks")
            for file in (folders[number] or Path()).glob(f"{name}.parquet/*")
        )
        return dict(map(count, there) if size <= _FEW_BYTES else self._each(count, there))

    def _each(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        """What `work` gives for each item, a task each; no order."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield pa.record_batch([pa.array([pickle.dumps(work(items[number]))])], ["made"])

        if not items:
            return
        tasks = self._session.range(0, len(items), 1, len(items))
        for row in tasks.mapInArrow(run, "made binary").toArrow().to_pylist():
            yield pickle.loads(row["made"])


def _sources(number: int, run: RunToJudge, made: Path | None) -> list[Source]:
    """What there is to read of a run; its history from the tables that were `made` of it."""
    found = sources(number, run.folder)
    if made is None:
        return found
    others = [source for source in found if source.kind != "history"]
    return [*others, *table_sources(number, run.folder, made)]


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
