"""Judging of many run folders with Spark, on this machine or on a cluster, with one shuffle.

    files of all runs -> mapInArrow (tables, facts) -> groupBy(run, partition) -> applyInArrow
        -> findings -> verdicts; measures by run -> results.json

The driver gets only findings, with a limited number of witnesses, and small measures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from checker.engine import stages
from checker.engine.judge import SPARK_ROWS, decoded, judge_rows
from checker.engine.local import check_runs
from checker.engine.plan import RunToJudge
from checker.engine.spark_session import error_summary
from checker.engine.stages import Key, ReadSources, StagedExecutor, bins
from checker.evidence.arrow_blob import SPARK_SCHEMA, as_rows
from checker.formats.errors import CheckerError
from checker.formats.verdict import RunResult
from checker.ingest.source import Source
from checker.output.assemble import GroupResult
from node.formats.host_errors import refused

_SHUFFLED_BYTES: Final = 32 << 20
_MOST_PARTITIONS: Final = 4096


def check(
    paths: Sequence[Path],
    *,
    session: SparkSession | None,
    out: Path | None = None,
    again: bool = True,
    small_bytes: int | None = None,
) -> list[RunResult]:
    """Judge run folders as `checker.engine.stages.check` does; without a `session`, in this
    process. Raises CheckerError if Spark failed or results cannot be written."""
    try:
        if session is None:
            return check_runs(paths, out=out, again=again)
        make = partial(SparkExecutor, session)
        workers = SparkWorkers(session)
        return stages.check(paths, workers, make, out=out, again=again, small_bytes=small_bytes)
    except (PySparkException, Py4JError, ConnectionError, EOFError) as error:
        raise CheckerError(f"Spark failed: {error_summary(error)}.") from error
    except OSError as error:
        raise CheckerError(f"Results cannot be written: {refused(error)}.") from error


class SparkWorkers:
    """Workers that are the tasks of Spark, which schedules them and moves their results."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext

    @property
    def number(self) -> int:
        """The number of items that are worked on at the same time."""
        return self._context.defaultParallelism

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """Yield the result of `work` for each item, in order; each item is a task."""
        if items:
            yield from self._context.parallelize(items, len(items)).map(work).collect()


class SparkExecutor(StagedExecutor):
    """An executor on Spark, which brings the facts of a group together by a shuffle; on one machine
    it moves large ones through files."""

    def __init__(self, session: SparkSession, runs: Sequence[RunToJudge]) -> None:
        super().__init__(SparkWorkers(session), runs)
        self._session = session

    def judged(self) -> Iterator[tuple[int, GroupResult]]:
        """Judge all groups; yield each result with its run's number, by run and partition."""
        on_one_machine = str(self._session.sparkContext.master).startswith("local[")
        yield from super().judged() if on_one_machine else self._judged()

    def _groups(
        self, work: Sequence[Source], only: Set[Key] | None
    ) -> dict[Key, GroupResult | None]:
        tasks = bins(work, self._workers.number)
        reader = ReadSources(self._runs, self._shared, only)

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from as_rows(reader.packed(tasks[number]))

        size = sum(source.size for source in work)
        self._session.conf.set(
            "spark.sql.shuffle.partitions", str(_partitions(self._workers.number, size))
        )
        facts = self._session.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, SPARK_SCHEMA)
        judged = facts.groupBy("run", "partition").applyInArrow(judge_rows, SPARK_ROWS)
        rows: list[dict[str, Any]] = judged.toArrow().to_pylist()
        return {(row["run"], row["partition"]): decoded(row["body"]) for row in rows}


def _partitions(cores: int, size: int) -> int:
    """Return the number of partitions to shuffle facts of `size` bytes of sources into: a task for
    each is expensive if there is little."""
    return min(max(cores, size // _SHUFFLED_BYTES), _MOST_PARTITIONS)
