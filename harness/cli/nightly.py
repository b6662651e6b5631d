"""`floodmark nightly`: search, known bugs, storms and replays within a budget of time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import Json, NoSpark, Quiet, worker_count


def nightly(
    budget: Annotated[str, typer.Option(help="How long, like 20m, 8h or 1h30m.")] = "20m",
    store: Annotated[Path, typer.Option(help="What nights leave, and go on from.")] = Path("store"),
    night: Annotated[
        int, typer.Option(help="The night's number, which decides its seeds [the next].")
    ] = 0,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="A new night even if the last one is unfinished.")
    ] = False,
    cores: Annotated[int, typer.Option(help="Worker processes; 0: one a core.")] = 0,
    no_real: Annotated[
        bool, typer.Option("--no-real", help="Simulated worlds only: no canary, no storms.")
    ] = False,
    no_spark: NoSpark = False,
    junit: Annotated[
        Path | None, typer.Option(help="Where JUnit XML goes [junit.xml in the store].")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Search, hunt, storm and replay for so long; go on where a night was stopped; exit 1 on news.

    Ends 0 when nothing is wrong, 1 when a protocol broke what it should hold, the canary did not
    fail, or a run was not deterministic; 2 when it was stopped, 70 when disk or harness ended it.
    """
    from harness.nightly.main import Wish, whole_night
    from harness.nightly.plan import Settings, seconds_of, suited

    settings = Settings(
        store=store,
        budget_s=seconds_of(budget),
        cores=worker_count(cores),
        number=night,
        real=not no_real,
    )
    return whole_night(
        suited(settings), Wish(fresh=fresh, spark=not no_spark, junit=junit, quiet=quiet, json=json)
    )
