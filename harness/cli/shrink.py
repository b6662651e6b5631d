"""`floodmark shrink`: the smallest schedule that fails like a failed run."""

from __future__ import annotations

from harness.search.requests import ShrinkRequest


def shrink(request: ShrinkRequest) -> int:
    """Look for the smallest schedule that fails like a failed run.

    A run of our own brokers is tried in the simulated world first; other runs are made again on
    real processes. Exit code: 0 when the schedule fails again, 1 when it does not."""
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress
    from harness.search.shrink.shrink_run import shrink_run

    with Interrupts() as interrupts, Progress(quiet=request.quiet) as progress:
        return 0 if shrink_run(request, interrupts, progress, print) else 1
