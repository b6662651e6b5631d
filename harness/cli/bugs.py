"""`floodmark bugs`: the known bugs; `floodmark bugs find`: a blind search for each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import Json, Quiet, print_json
from harness.cli.values import WEEK_S, Number, Whole, WritableFile, WritableFolder, taking

app = typer.Typer(
    invoke_without_command=True, help="List the known bugs; `bugs find` searches for each of them."
)


@app.callback()
def bugs(context: typer.Context) -> None:
    """List the known bugs that `--bug` can turn on."""
    from node.core.bugs import KNOWN_BUGS

    if context.invoked_subcommand is None:
        for bug in KNOWN_BUGS:
            print(f"{bug.name} ({bug.code}): {bug.summary}; seen in {bug.seen_in}")


@app.command()
def find(
    only: Annotated[
        list[str] | None,
        typer.Option(help="Search only for this bug, by name or code; repeatable."),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            **taking(Number(0, WEEK_S, above=True)),
            help="Budget of each search, in seconds of one core.",
        ),
    ] = 300.0,
    seeds: Annotated[
        int,
        typer.Option(**taking(Whole(1, 1000)), help="Searches per bug, each with its own seed."),
    ] = 3,
    schedules_for_correct: Annotated[
        int,
        typer.Option(
            **taking(Whole(0, 10**9)), help="Also run this many schedules on each correct protocol."
        ),
    ] = 0,
    real: Annotated[
        int,
        typer.Option(
            **taking(Whole(0, 1000)),
            help="Replay each shrunk schedule this many times on real processes.",
        ),
    ] = 0,
    real_seconds: Annotated[
        float,
        typer.Option(
            **taking(Number(0, WEEK_S)),
            help="Start no further replays on real processes after this many seconds; 0: no limit.",
        ),
    ] = 0.0,
    cores: Annotated[
        int, typer.Option(**taking(Whole(1, 1024)), help="Number of worker processes.")
    ] = 1,
    store: Annotated[
        Path,
        typer.Option(
            **taking(WritableFolder()), help="Folder for results; they go to its known-bugs/."
        ),
    ] = Path("store"),
    page: Annotated[
        Path | None, typer.Option(**taking(WritableFile()), help="File for the table as Markdown.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Search for every known bug, without hints.

    Results of earlier calls count, and open searches continue. Exit code: 0 when each bug was found
    and no correct protocol broke a promise, else 1.
    """
    from harness.runs.progress import Progress
    from harness.search import known_bugs_table
    from harness.search.bug_search import BugSearchRequest, find_bugs

    request = BugSearchRequest(
        only=tuple(only or ()),
        seconds=seconds,
        seeds=seeds,
        real=real,
        real_seconds=real_seconds,
        cores=cores,
        schedules_for_correct=schedules_for_correct,
        store=store,
        page=page,
        quiet=quiet,
    )
    with Progress(quiet=quiet) as progress:
        result = find_bugs(request, progress)
    if json:
        print_json(result)
    else:
        print(known_bugs_table.as_text(result.rows, result.correct))
    return 0 if result.is_complete(request.only) else 1
