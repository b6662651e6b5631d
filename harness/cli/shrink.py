"""`floodmark shrink`: the smallest schedule that fails like a failed run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import Quiet, results_in
from harness.cli.values import Readable, taking


def shrink(
    run: Annotated[
        Path, typer.Argument(**taking(Readable()), help="The folder of a run that is invalid.")
    ],
    budget: Annotated[
        str, typer.Option(help="How long it may take, like 90s, 15m or 1h30m.")
    ] = "15m",
    store: Annotated[Path, results_in("findings", "findings/ or system-findings/")] = Path("store"),
    quiet: Quiet = False,
) -> int:
    """Look for the smallest schedule that fails like a failed run.

    A run of our own brokers is tried in the simulated world first; other runs are made again on
    real processes. Exit code: 0 when the schedule fails again, 1 when it does not.
    """
    from harness.nightly.plan import seconds_of
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress
    from harness.search.shrink_run import ShrinkRequest, shrink_run

    request = ShrinkRequest(run=run, seconds=seconds_of(budget), store=store)
    with Interrupts() as interrupts, Progress(quiet=quiet) as progress:
        return 0 if shrink_run(request, interrupts, progress, print) else 1
