"""`floodmark compare`: the facts of two runs side by side."""

from __future__ import annotations

from harness.cli.common import print_table
from harness.runs.requests import CompareRequest


def compare(request: CompareRequest) -> int:
    """Show the facts of two runs side by side.

    A star marks what differs: verdict, properties, findings, faults, longest gap, latency,
    settings. Judges nothing. Exit code: 0."""
    from harness.runs.run_paths import run_folder
    from reports.evidence.model import PROGRAM, read
    from reports.run_page.comparison import compared

    folders = [run_folder(path) for path in (request.before, request.after)]
    one, two = (read(folder, PROGRAM) for folder in folders)
    rows = [
        (fact.name, fact.before, fact.after, "*" if fact.differs else "")
        for fact in compared(one, two)
    ]
    columns = ("fact", *map(str, folders), "differs")
    if request.json:
        columns = ("fact", "before", "after", "differs")
    print_table(columns, rows, json=request.json)
    return 0
