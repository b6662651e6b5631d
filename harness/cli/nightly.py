"""`floodmark nightly`: search, known bugs, storms and replays within a budget of time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import Cores, Json, NoSpark, Quiet, worker_count
from harness.cli.values import Whole, WritableFile, WritableFolder, taking


def nightly(
    budget: Annotated[str, typer.Option(help="How long, like 20m, 8h or 1h30m.")] = "20m",
    store: Annotated[
        Path, typer.Option(**taking(WritableFolder()), help="The store to continue.")
    ] = Path("store"),
    number: Annotated[
        int,
        typer.Option(
            **taking(Whole(0, 1_000_000)),
            help="The number of the run, which decides its seeds [the next].",
        ),
    ] = 0,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="A new nightly run even if the last one is unfinished.")
    ] = False,
    cores: Cores = 0,
    no_real: Annotated[
        bool, typer.Option("--no-real", help="Simulated worlds only: no canary, no storms.")
    ] = False,
    systems: Annotated[
        str | None,
        typer.Option(
            help="Also storm these systems, a comma list; +name=value is a setting, as in "
            "nats,nats+server=old/nats-server: versions of a system are compared."
        ),
    ] = None,
    systems_share: Annotated[
        int,
        typer.Option(
            **taking(Whole(1, 90)),
            help="Percent of the budget for --systems; the other shares have the rest.",
        ),
    ] = 20,
    no_spark: NoSpark = False,
    junit: Annotated[
        Path | None,
        typer.Option(
            **taking(WritableFile()), help="Where JUnit XML goes [junit.xml in the store]."
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Search, storm and replay within a budget of time; continue a nightly run that was stopped.

    Ends 0 when nothing is wrong, 1 when a protocol broke what it should hold, the canary did not
    fail, or a run was not deterministic; 2 when it was stopped, 70 when disk or harness ended it.
    """
    from harness.nightly.main import Options, run_nightly
    from harness.nightly.plan import Settings, fitted, seconds_of, systems_of

    settings = Settings(
        store=store,
        budget_s=seconds_of(budget),
        cores=worker_count(cores),
        number=number,
        real=not no_real,
        systems=systems_of(systems) if systems is not None else (),
        systems_share=systems_share,
    )
    return run_nightly(
        fitted(settings),
        Options(fresh=fresh, spark=not no_spark, junit=junit, quiet=quiet, json=json),
    )
