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
    and no correct protocol broke a promise, else 1, or 2 when it was ended early."""
    if request.system is not None:
        return _find_losses(request)
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress
    from harness.search.catalogue import known_bugs_table
    from harness.search.catalogue.find_bugs import find_bugs

    with Interrupts() as interrupts, Progress(quiet=request.quiet) as progress:
        result = find_bugs(request, interrupts, progress, output_of(request.json))
    if request.json:
        print_json(result)
    else:
        print(known_bugs_table.as_text(result.rows, result.correct))
    return 0 if result.is_complete(request.only) else 2 if interrupts.asked else 1


def _find_losses(request: BugSearchRequest) -> int:
    """Search for the known losses of third-party systems, on real processes."""
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress
    from harness.search.catalogue import find_losses
    from harness.search.catalogue.known_losses import wanted_losses

    rows = wanted_losses(request.system or "", request.only)
    with Interrupts() as interrupts, Progress(quiet=request.quiet) as progress:
        made = find_losses.find_losses(request, interrupts, progress, output_of(request.json))
    if request.page is not None:
        find_losses.put_into_file(request.page, find_losses.as_markdown(rows, made))
    if request.json:
        print_json(made)
    else:
        print(find_losses.as_text(rows, made))
    found = {one.code for one in made if one.found}
    return 0 if all(row.code in found for row in rows) else 2 if interrupts.asked else 1


SUBCOMMANDS: Final[dict[str, Command]] = {"find": find}
