"""`floodmark bugs`: the known bugs; `floodmark bugs find`: a blind search for each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import Jobs, Json, Page, Quiet, Workers, print_json, print_table, results_in
from harness.cli.values import WEEK_S, Number, Whole, taking

app = typer.Typer(
    invoke_without_command=True, help="List the known bugs; `bugs find` searches for each of them."
)


@app.callback()
def bugs(context: typer.Context, json: Json = False) -> None:
    """List the known bugs that `--bug` can turn on."""
    from node.core.bugs import KNOWN_BUGS

    if context.invoked_subcommand is None:
        rows = [
            (b.name, b.code, f"{b.breaks} under {b.protocol}", f"{b.summary} ({b.seen_in})")
            for b in KNOWN_BUGS
        ]
        columns = ("bug", "code", "breaks", "change of the broker (seen in)")
        print_table(columns, rows, json=json)


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
    cores: Workers = 1,
    system: Annotated[
        str | None,
        typer.Option(
            help="Search for the known losses of this system on real processes instead; all: of "
            "all systems."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Of a system: how long each search may take, shrinking included, like 15m "
            "[default: 15m]."
        ),
    ] = None,
    jobs: Jobs = 0,
    store: Annotated[Path, results_in("they", "known-bugs/ or known-losses/")] = Path("store"),
    page: Page = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Search for every known bug, or known loss of other systems, without hints.

    Results of earlier calls count, and open searches continue. Exit code: 0 when each bug was found
    and no correct protocol broke a promise, else 1.
    """
    if system is not None:
        return _find_losses(system, only, budget, seeds, jobs, store, page, quiet=quiet, json=json)
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


def _find_losses(
    system: str,
    only: list[str] | None,
    budget: str | None,
    seeds: int,
    jobs: int,
    store: Path,
    page: Path | None,
    *,
    quiet: bool,
    json: bool,
) -> int:
    """The known losses of other people's systems, on real processes."""
    from harness.nightly.plan import seconds_of
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress
    from harness.search.real import losses_table
    from harness.search.real.known_losses import LossSearchRequest, find_losses, wanted_losses
    from node.formats.files import write_whole

    request = LossSearchRequest(
        system=system,
        only=tuple(only or ()),
        seconds=seconds_of(budget or "15m"),
        seeds=seeds,
        jobs=jobs,
        store=store,
    )
    rows = wanted_losses(request)
    output = (lambda line: None) if json else print
    with Interrupts() as interrupts, Progress(quiet=quiet) as progress:
        made = find_losses(request, interrupts, progress, output)
    if page is not None:
        before = page.read_text("utf-8") if page.is_file() else ""
        document = losses_table.put_into(before, losses_table.as_markdown(rows, made))
        write_whole(page, document.encode())
    if json:
        print_json(made)
    else:
        print(losses_table.as_text(rows, made))
    found = {one.code for one in made if one.found}
    return 0 if all(row.code in found for row in rows) else 2 if interrupts.asked else 1


@app.command(name="explore")
def explore_each(
    only: Annotated[
        list[str] | None, typer.Option(help="Explore only this bug, by name or code; repeatable.")
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            **taking(Number(0, WEEK_S)),
            help="Budget of each exploration, in seconds of processor time; 0: no limit.",
        ),
    ] = 300.0,
    memory: Annotated[
        int, typer.Option(**taking(Whole(0, 10**6)), help="Stop at this many MiB; 0: no limit.")
    ] = 6000,
    cores: Workers = 1,
    store: Annotated[Path, results_in("they", "explored-bugs/")] = Path("store"),
    page: Page = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Explore known bugs, each within bounds of its own.

    Keeps the shortest counterexample of each, as a schedule that fails in the simulated world. What
    was explored by earlier calls is not explored again. Exit code: 0 when each has one, else 1.
    """
    from harness.sim import compiled

    compiled.leave()
    from harness.explore.explorer import ExplorationLimits
    from harness.explore.known_bugs import as_markdown, explore_bugs, targets
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress

    asked = tuple(only or ())
    with Interrupts() as interrupts, Progress(quiet=quiet) as progress:
        progress.phase("exploring known bugs")
        rows = explore_bugs(
            asked,
            ExplorationLimits(seconds=seconds, memory_mb=memory),
            store,
            cores=cores,
            stop=lambda: interrupts.asked,
            told=progress.tell,
        )
    text = as_markdown(rows)
    if page is not None:
        page.write_text(text, encoding="utf-8")
    if json:
        print_json(rows)
    else:
        print(text)
    found = {row.bug for row in rows if row.explored.confirmed}
    return 0 if {bug.name for bug in targets(asked)} <= found else 1
