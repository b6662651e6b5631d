"""`floodmark bugs`: the known bugs; `floodmark bugs find`: a blind search for each."""

from __future__ import annotations

from typing import Final

from harness.cli.common import output_of, print_json, print_table
from harness.cli.options import Command
from harness.formats.options import ListRequest
from harness.search.requests import BugSearchRequest


def bugs(request: ListRequest) -> None:
    """List the known bugs; `bugs find` searches for each of them."""
    from node.core.bugs import KNOWN_BUGS

    rows = [
        (b.name, b.code, f"{b.breaks} under {b.protocol}", f"{b.summary} ({b.seen_in})")
        for b in KNOWN_BUGS
    ]
    columns = ("bug", "code", "breaks", "change of the broker (seen in)")
    print_table(columns, rows, json=request.json)


def find(request: BugSearchRequest) -> int:
    """Search for every known bug, or known loss of other systems, without hints.

    Results of earlier calls count, and open searches continue. Exit code: 0 when each bug was found
    and no correct protocol broke a promise, else 1.
    """
    if request.system is not None:
        return _find_losses(request)
    from harness.runs.progress import Progress
    from harness.search import known_bugs_table
    from harness.search.bug_search import find_bugs

    with Progress(quiet=request.quiet) as progress:
        result = find_bugs(request, progress)
    if request.json:
        print_json(result)
    else:
        print(known_bugs_table.as_text(result.rows, result.correct))
    return 0 if result.is_complete(request.only) else 1


def _find_losses(request: BugSearchRequest) -> int:
    """Search for the known losses of third-party systems, on real processes."""
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress
    from harness.search.real import losses_table
    from harness.search.real.known_losses import find_losses, wanted_losses
    from node.formats.files import write_whole

    rows = wanted_losses(request)
    with Interrupts() as interrupts, Progress(quiet=request.quiet) as progress:
        made = find_losses(request, interrupts, progress, output_of(request.json))
    if request.page is not None:
        before = request.page.read_text("utf-8") if request.page.is_file() else ""
        document = losses_table.put_into(before, losses_table.as_markdown(rows, made))
        write_whole(request.page, document.encode())
    if request.json:
        print_json(made)
    else:
        print(losses_table.as_text(rows, made))
    found = {one.code for one in made if one.found}
    return 0 if all(row.code in found for row in rows) else 2 if interrupts.asked else 1


SUBCOMMANDS: Final[dict[str, Command]] = {"find": find}
