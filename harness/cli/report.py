"""`floodmark report`: the pages of run folders, findings and stores."""

from __future__ import annotations

from harness.cli.common import tell
from harness.runs.requests import ReportRequest


def report(request: ReportRequest) -> int:
    """Build the HTML page of runs and findings.

    For a failed run, first runs its schedule under a correct protocol, to compare (the baseline
    run). For a finding, first runs its schedule in the simulated world. Prints the path of each
    page; of a store, last that of the list of all its runs. Exit code: 0, or that of the first page
    that could not be built."""
    from harness.cli.common import exit_code_of
    from harness.formats.finding import is_finding
    from harness.replay.pages import page_of, page_of_finding
    from harness.runs.progress import Progress
    from harness.runs.run_paths import folders_with_pages, holds_runs
    from node.formats.errors import FloodmarkError
    from reports.nightly_page.store_page import build_list

    codes, folders = [], folders_with_pages(request.runs)
    for number, path in enumerate(folders, 1):
        try:
            with Progress(state=str) as progress:
                progress.phase(f"building page {number} of {len(folders)}: {path}")
                page = page_of_finding(path, tell) if is_finding(path) else page_of(path, tell)
            print(page)
        except FloodmarkError as error:
            code, sentence = exit_code_of(error)
            tell(f"floodmark: {sentence}")
            codes.append(code)
    for store in filter(holds_runs, request.runs):
        print(build_list(store))
    return codes[0] if codes else 0
