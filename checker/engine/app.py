"""The checker as an application for `spark-submit`: `app.py [--out DIR] [--again] RUN...`.

For clusters whose Spark sessions are configured by the one who submits. Prints one line for each
run, and exits with the code of the worst verdict. Folders must have the same paths on all machines,
and each machine needs this package and its dependencies (docs/architecture.md, "On a cluster").
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from checker.engine.spark_job import check
from checker.formats.errors import CheckerError
from checker.formats.verdict import EXIT_CODES, worst


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge run folders in the session that `spark-submit` configured; return the exit code."""
    parser = argparse.ArgumentParser(prog="app.py", description="Judge run folders on Spark.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    parser.add_argument("--out", type=Path, help="where results go [the run folders]")
    parser.add_argument("--again", action="store_true", help="also what did not change")
    given = parser.parse_args(arguments)
    session = SparkSession.builder.appName("floodmark").getOrCreate()
    try:
        results = check(given.runs, session=session, out=given.out, again=given.again)
    except CheckerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    finally:
        session.stop()
    for result in results:
        print(f"{result.run}: {result.sentence}")
    return EXIT_CODES[worst(result.verdict for result in results)]


if __name__ == "__main__":
    sys.exit(main())
