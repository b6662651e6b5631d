"""`floodmark explore`: all that can happen to our brokers within bounds, on their real code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cli.common import print_json
from harness.explore.bounds import ExploreRequest

if TYPE_CHECKING:
    from harness.explore.run import Explored


def explore(request: ExploreRequest) -> int:
    """Explore everything that can happen within bounds.

    Steps the brokers themselves, breadth first, while the clock stands still. Prints the bounds,
    the reductions, and the shortest path to a violation, which is written as a run folder.
    Exit code: 1 when an invariant was violated, 0 when none was within the bounds, 2 when that is
    open at a limit."""
    from harness.sim import compiled

    compiled.leave()
    from msgspec.structs import replace

    from harness.explore.run import explore as run
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress

    request = replace(request, bounds=request.bounds.checked())
    with Interrupts() as interrupts, Progress(quiet=request.quiet) as progress:
        progress.phase(f"exploring {request.bounds.protocol}", request.budget_s)
        explored = run(request, stop=lambda: interrupts.asked, tell=progress.tell)
    if request.json:
        print_json(explored)
    else:
        _print(explored)
    return explored.exit_code


def _print(explored: Explored) -> None:
    from harness.explore.run import lines
    from harness.runs.program import command_line

    if explored.result is not None:
        for line in lines(explored.result, explored.found):
            print(line)
    if explored.found is not None:
        print(f"judged: {explored.sentence}")
        print(f"page: {command_line('report', explored.folder)}")
        print(f"again: {command_line('explore', '--replay', explored.folder)}")
