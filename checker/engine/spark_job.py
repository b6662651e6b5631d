"""Judging of many run folders with Spark, on this machine or on a cluster, with one shuffle.

    files of all runs -> flatMap (tables, facts) -> groupBy(run, partition) -> map (findings)
        -> verdicts; measures by run -> results.json

The driver gets only findings, with a limited number of witnesses, and small measures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from checker.engine import stages
from checker.engine.local import check_runs
from checker.engine.spark_session import error_summary
from checker.engine.workers import Workers
from checker.evidence.arrow_blob import PackedBlob
from checker.formats.errors import CheckerError
from checker.formats.verdict import RunResult
from node.formats.host_errors import refused


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
        workers = SparkWorkers(session)
        return stages.check(paths, workers, out=out, again=again, small_bytes=small_bytes)
    except (PySparkException, Py4JError, ConnectionError, EOFError) as error:
        raise CheckerError(f"Spark failed: {error_summary(error)}.") from error
    except OSError as error:
        raise CheckerError(f"Results cannot be written: {refused(error)}.") from error


class SparkWorkers(Workers):
    """Workers that are the tasks of Spark, which schedules them and moves their results. On a
    cluster it brings the facts of a group together by a shuffle."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self.number = self._context.defaultParallelism
        self.share_files = str(self._context.master).startswith("local[")

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """Yield the result of `work` for each item, in order; each item is a task."""
        if items:
            yield from self._context.parallelize(items, len(items)).map(work).collect()

    def judged(
        self,
        read: Callable[[Any], Sequence[PackedBlob]],
        items: Sequence[Any],
        judge: Callable[[Sequence[PackedBlob]], Any],
    ) -> Iterator[Any]:
        """Read all items; yield the result of `judge` for each group of facts in them."""
        if self.share_files or not items:
            return super().judged(read, items, judge)
        facts = self._context.parallelize(items, len(items)).flatMap(read)
        groups = facts.groupBy(lambda blob: blob.key, max(len(items), self.number))
        return iter(groups.values().map(list).map(judge).collect())
