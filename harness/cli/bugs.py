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

    Results of earlier calls count, and open searches continue. Exit code: 0 when each bug was
    found, else 1, or 2 when it was ended early."""
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress
    from harness.search.catalogue import catalogue, table
    from harness.search.catalogue.catalogue import entries

    wanted = entries(request)
    with Interrupts() as interrupts, Progress(quiet=request.quiet) as progress:
        result = catalogue.find(request, interrupts, progress, output_of(request.json))
    if request.page is not None:
        markdown = table.as_markdown(wanted, result.results)
        table.put_into_file(request.page, lambda document: markdown, (table.BEGIN, table.END))
    if request.json:
        print_json(result)
    else:
        print(table.as_text(wanted, result.results))
    return 0 if not result.open else 2 if interrupts.asked else 1


SUBCOMMANDS: Final[dict[str, Command]] = {"find": find}
