"""Makes the class-data archive: `python -m checker.engine.class_archive_builder`.

It runs a small sample of what the checks do with Spark, so that the classes they need are loaded,
and lets the JVM write the archive at its end.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.window import Window

from checker.engine.class_archive import ClassArchive, archive_for, publish
from checker.engine.java import find_java
from checker.engine.jvm import Jvm, JvmSettings
from checker.engine.spark_session import open_session, warm_up
from checker.formats.errors import CheckerError

_LOWEST_PRIORITY = 19
# Writing the archive takes the JVM some seconds on a quiet machine, and we yield to everyone.
_WRITING_TIMEOUT_S = 900.0


def build_archive() -> bool:
    """Makes the archive for the Java that `find_java` finds; true if it exists afterwards.

    Raises:
        CheckerError: there is no Java, or Spark does not start on it.
        OSError: the cache folder cannot be written.
    """
    java = find_java()
    archive = archive_for(java)
    settings = JvmSettings(java=java, master="local[1]", driver_memory="2g", small=True)
    return publish(archive, lambda path: _write(archive, settings, path))


def _write(archive: ClassArchive, settings: JvmSettings, path: Path) -> bool:
    jvm = Jvm(settings, log_file=None, class_archive_options=archive.writing_options(path))
    try:
        session = open_session(jvm, "floodmark-class-archive", cores=1)
        _sample_work(session)
        session.stop()
    finally:
        ended_well = jvm.close(_WRITING_TIMEOUT_S)
    return ended_well


def _sample_work(session: SparkSession) -> None:
    """Touches what the checks use: Parquet, grouping, joining, windows, Arrow group functions."""
    warm_up(session)
    with tempfile.TemporaryDirectory(prefix="floodmark-sample-") as folder:
        numbers = session.range(1000).select(
            (sql.col("id") % 8).cast("int").alias("partition"),
            sql.col("id").alias("offset"),
            sql.col("id").cast("string").alias("value"),
        )
        numbers.write.partitionBy("partition").parquet(f"{folder}/numbers")
        stored = session.read.parquet(f"{folder}/numbers")
        by_offset = Window.partitionBy("partition").orderBy("offset")
        stored.withColumn("before", sql.lag("offset").over(by_offset)).filter(
            "offset < before"
        ).collect()
        totals = stored.groupBy("partition").agg(
            sql.min("offset"), sql.max("offset"), sql.percentile_approx("offset", 0.5)
        )
        totals.orderBy("partition").toPandas()
        stored.join(numbers, ["partition", "offset"], "left_anti").count()
        stored.createOrReplaceTempView("stored")
        session.sql("select partition, count(*) from stored group by partition").toArrow()


def main() -> int:
    """Builds the archive at the lowest priority; 0 if it exists afterwards."""
    with contextlib.suppress(OSError):
        os.nice(_LOWEST_PRIORITY)
    try:
        return 0 if build_archive() else 1
    except (CheckerError, OSError):
        return 1


if __name__ == "__main__":
    sys.exit(main())
