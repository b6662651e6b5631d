"""`floodmark search`: looks for a schedule that breaks a protocol or a system, and shrinks it."""

from __future__ import annotations

from harness.cli.common import output_of, print_json
from harness.search.requests import SearchRequest


def search(request: SearchRequest) -> int:
    """Search for a schedule that breaks a protocol or a system.

    Runs drawn schedules in simulated worlds, or with --system drawn storms on real processes, and
    shrinks the first failure of each class to the faults that it needs. A find is saved as soon as
    it is known. Needs an end: --budget, --schedules or --until-failure. Ctrl-C ends it early and
    keeps what was found; the same command goes on from there. Exit code: 1 when a failure was
    found, else 0, or 2 when it was ended early or no run could be judged."""
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress
    from harness.search import run

    with Interrupts() as interrupts, Progress(quiet=request.quiet) as progress:
        found = run.search(request, interrupts, progress, output_of(request.json))
    if request.json:
        print_json(found)
    judged = found.total.runs > found.total.verdicts.get("unknown", 0)
    return 1 if found.findings else 0 if judged and not interrupts.asked else 2
