"""`floodmark check`: the verdicts of run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import Json, Master, Memory, NoSpark, print_json, tell
from harness.cli.exit_codes import EXIT_UNKNOWN
from harness.cli.values import Readable, WritableFolder, taking


def check(
    runs: Annotated[
        list[Path],
        typer.Argument(
            **taking(Readable()),
            help="Run folders, stores, or histories of other tools (history.edn).",
        ),
    ],
    no_spark: NoSpark = False,
    json: Json = False,
    validate: Annotated[
        bool,
        typer.Option(
            "--validate",
            help="Do not judge: only list the lines of the history that are malformed.",
        ),
    ] = False,
    master: Master = None,
    memory: Memory = "",
    out: Annotated[
        Path | None,
        typer.Option(
            **taking(WritableFolder()),
            help="Folder for results and tables [default: the run folders].",
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Judge a run even if nothing changed since its last verdict."),
    ] = False,
    outside: Annotated[
        bool,
        typer.Option(
            "--outside",
            help="Judge by the invariants of the KIP-966 model instead (protocol kafka only).",
        ),
    ] = False,
    promise: Annotated[
        Path | None,
        typer.Option(
            **taking(Readable()),
            help="JSON file with what the system of these histories promises (docs/checks.md).",
        ),
    ] = None,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Do not build the page of a failed run.")
    ] = False,
) -> int:
    """Judge run folders, stores or histories of other tools.

    Also judges the folder of a run whose harness was killed. Exit code: 0 valid, 1 invalid, 2
    unknown or not exercised; of several runs the worst.
    """
    from checker.formats.verdict import EXIT_CODES, worst
    from harness.runs.judge import Keep, SparkOptions, SparkSoon, judge, summarise, wrong_lines
    from harness.runs.page_builder import is_invalid, page_after
    from harness.runs.run_paths import promise_in, run_folders

    if validate:
        sentences = [sentence for path in runs for sentence in wrong_lines(path)]
        print("\n".join(sentences) if sentences else "Every line is an operation.")
        return EXIT_UNKNOWN if sentences else 0
    folders = run_folders(runs, promise_in(promise) if promise else None)
    if outside:
        return _outside(folders)
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


def _outside(folders: list[Path]) -> int:
    """Judge by the invariants of the model; say what is broken in each run."""
    from checker.formats.verdict import EXIT_CODES, Verdict, worst
    from checker.outside.judge import INVARIANTS
    from checker.outside.run_folder import judge_folder
    from node.formats.errors import UsageError
    from node.formats.json_input import Unreadable

    verdicts = []
    for folder in folders:
        try:
            found = judge_folder(folder)
        except (OSError, Unreadable, KeyError) as error:
            raise UsageError(f"{folder}: holds no whole run: {error}") from None
        broken = found.judge.broken
        if found.why_not:
            verdicts.append(Verdict.UNKNOWN)
            print(f"{folder}: not judged: {found.why_not}")
        elif not broken:
            verdicts.append(Verdict.VALID)
            events = found.judge.events
            print(f"{folder}: {len(INVARIANTS)} invariants hold over {events:,} trace events")
        else:
            verdicts.append(Verdict.INVALID)
            for each in broken:
                where = f"{each.partition} at {each.t_us} us, turn of {each.node}"
                print(f"{folder}: {each.invariant} does not hold ({where}): {each.sentence}")
    return EXIT_CODES[worst(verdicts)]
