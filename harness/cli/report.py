"""`floodmark report`: the pages of run folders and findings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import tell


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders (store/<name>/<time>) or findings.")
    ],
) -> int:
    """Build the page of run folders or findings; of a failure, make its baseline run first."""
    from harness.runs.judge import run_folder
    from harness.runs.page_builder import is_finding, page_of, page_of_finding

    wanted = [path if is_finding(path) else run_folder(path) for path in runs]
    for path in wanted:
        print(page_of_finding(path, tell) if is_finding(path) else page_of(path, tell))
    return 0
