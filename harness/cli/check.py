"""`floodmark check`: the verdicts of run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import EXIT_UNKNOWN, Json, Master, Memory, NoSpark, print_json, tell


def check(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or histories of other tools (history.edn).")
    ],
    no_spark: NoSpark = False,
    json: Json = False,
    validate: Annotated[
        bool, typer.Option("--validate", help="Only say what is wrong on which line.")
    ] = False,
    master: Master = None,
    memory: Memory = "",
    out: Annotated[
        Path | None, typer.Option(help="Where results and tables go [the run folders].")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also judge what has not changed since it was judged.")
    ] = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Build no page of a single failing run.")
    ] = False,
) -> int:
    """Judge run folders, or all in a store, also those of runs that were killed."""
    from checker.formats.verdict import EXIT_CODES, worst
    from harness.runs.judge import (
        Keep,
        SparkOptions,
        SparkSoon,
        judge,
        run_folders,
        summarise,
        wrong_lines,
    )
    from harness.runs.page_builder import is_invalid, page_after

    if validate:
        sentences = [sentence for path in runs for sentence in wrong_lines(path)]
        print("\n".join(sentences) if sentences else "Every line is an operation.")
        return EXIT_UNKNOWN if sentences else 0
    folders = run_folders(runs)
    spark = None if no_spark else SparkSoon(options=SparkOptions(master, memory))
    results = judge(folders, spark, tell, Keep(out, again))
    if json:
        print_json(results)
    else:
        for folder, result in zip(folders, results, strict=True):
            print(summarise(folder, result), flush=True)
        if not no_report and out is None and len(folders) == 1 and is_invalid(folders[0]):
            print(f"  page        {page_after(folders[0], tell) or 'none'}")
    return EXIT_CODES[worst(result.verdict for result in results)]
