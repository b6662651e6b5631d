"""What a search found, as a folder: schedules to replay in both worlds, and why it fails.

A finding is kept as soon as it is known, as it was drawn, so that nothing is lost when the search
is killed; its shrunk form takes that folder's place.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from harness.formats.finding import DRAWN, EXPLANATION, REAL, SCHEDULE, Explanation
from harness.search.campaign import Finding
from harness.search.deadline import Stop, never
from harness.search.explain import explain, write
from harness.search.real_schedule import MOST_RUNS, RealSchedule, real_schedule


class SavedFinding(NamedTuple):
    """Where a finding is kept, and why it fails."""

    folder: Path
    explanation: Explanation


def keep(finding: Finding, store: Path, before: Path | None = None) -> Path:
    """Write the schedules of a finding to a folder of its own under `store`; returns that.

    `before`: the folder of the same finding when it was larger, which goes. Raises OSError.
    """
    smallest = finding.smallest
    folder = store / f"{smallest.name}-{smallest.digest()}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCHEDULE).write_bytes(smallest.to_pretty_json())
    (folder / DRAWN).write_bytes(finding.schedule.to_pretty_json())
    if before is not None and before != folder:
        shutil.rmtree(before)
    return folder


def save(
    finding: Finding, store: Path, *, before: Path | None = None, stop: Stop = never
) -> SavedFinding:
    """Keep a finding and explain it, until `stop`. Raises OSError."""
    folder = keep(finding, store, before)
    explanation = explain(finding.smallest, stop)
    write(explanation, folder / EXPLANATION)
    return SavedFinding(folder, explanation)


def save_real_schedule(
    finding: Finding, folder: Path, *, runs: int = MOST_RUNS, stop: Stop = never
) -> RealSchedule | None:
    """Save the real schedule too, if one is found within three times `runs` and before `stop`.
    Raises OSError."""
    real = real_schedule(finding.smallest, finding.property, runs=runs, stop=stop)
    if real is not None:
        (folder / REAL).write_bytes(real.schedule.to_pretty_json())
    return real
