"""`floodmark report`: the pages of run folders and findings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import tell


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Run folders (store/<name>/<time>) or findings (store/findings/<name>)."
        ),
    ],
) -> int:
    """Build the HTML page of runs and findings.

    For a failed run, first runs its schedule under a correct protocol, to compare (the baseline
    run). For a finding, first runs its schedule in the simulated world. Prints the path of each
    page.
    """
    from harness.runs.judge import run_folder
    from harness.runs.page_builder import is_finding, page_of, page_of_finding

    wanted = [path if is_finding(path) else run_folder(path) for path in runs]
    for path in wanted:
        print(page_of_finding(path, tell) if is_finding(path) else page_of(path, tell))
    return 0
