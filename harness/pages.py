"""What is made for a page before it is built: a finding brought along, the control of a failure.

Nothing here may change a verdict: what cannot be made is told in a sentence and left out.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from checker.story_file import write_story
from checker.verdict import RunResult, Verdict
from harness.control import CONTROL, make_control
from harness.options import load_schedule
from harness.search.explain import EXPLANATION
from harness.search.findings import DRAWN, REAL, SCHEDULE
from harness.sim.run import simulate
from node.errors import FloodmarkError
from reports import build

FINDING: Final = "finding"
SIMULATED: Final = "simulated"

Tell = Callable[[str], None]


def bring_finding(source: Path | None, run: Path, tell: Tell) -> None:
    """Copy what a search said of the schedule into the run folder that replays it: `finding/`.

    `source` is what the run was asked to replay; nothing happens unless it is a finding's folder.
    """
    if source is None or not (source / EXPLANATION).is_file():
        return
    target = run / FINDING
    try:
        target.mkdir(exist_ok=True)
        for name in (EXPLANATION, SCHEDULE, DRAWN, REAL):
            if (source / name).is_file():
                shutil.copyfile(source / name, target / name)
    except OSError as error:
        tell(f"What the search said of {source} could not be copied: {error.strerror}")


def page_of(run: Path, tell: Tell) -> Path:
    """Build the page of a run folder, with the control of a failure if it has none yet.

    Raises ReportError when there is no page to be had.
    """
    if _is_invalid(run) and not (run / CONTROL).exists():
        tell(f"Running the schedule of {run} twice in the simulated world, for its control ...")
        try:
            make_control(run)
        except (FloodmarkError, AssertionError, LookupError, TypeError, ValueError) as error:
            tell(f"The control of {run} could not be run: {error}")
    return build(run, plots=True)


def page_of_finding(finding: Path, tell: Tell) -> Path:
    """Run a finding in the simulated world, leave that run in its folder, build the run's page.

    Raises FloodmarkError when the run or the page cannot be had.
    """
    run = finding / SIMULATED
    schedule = load_schedule(finding / SCHEDULE)
    shutil.rmtree(run, ignore_errors=True)
    result = simulate(schedule, seed=schedule.workload.seed, stop_at="never", keep=run)
    write_story(run, result.checked)
    bring_finding(finding, run, tell)
    return page_of(run, tell)


def is_finding(path: Path) -> bool:
    """Whether a folder is what a search kept of a failure."""
    return (path / EXPLANATION).is_file()


def _is_invalid(run: Path) -> bool:
    try:
        result = msgspec.json.decode((run / "results.json").read_bytes(), type=RunResult)
    except (OSError, msgspec.DecodeError):
        return False
    return result.verdict is Verdict.INVALID and (run / "schedule.json").exists()
