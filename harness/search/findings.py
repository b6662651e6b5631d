"""What a search found, as a folder: schedules to replay in both worlds, and why it fails."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from harness.formats.finding import DRAWN, EXPLANATION, REAL, SCHEDULE, Explanation
from harness.search.campaign import Finding
from harness.search.explain import explain, write
from harness.search.real_schedule import MOST_RUNS, RealSchedule, real_schedule


class SavedFinding(NamedTuple):
    """Where a finding is kept, and why it fails."""

    folder: Path
    explanation: Explanation


def save(finding: Finding, store: Path) -> SavedFinding:
    """Save and explain a finding, in a folder of its own under `store`. Raises OSError."""
    smallest = finding.smallest
    folder = store / f"{smallest.name}-{smallest.digest()}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCHEDULE).write_bytes(smallest.to_pretty_json())
    (folder / DRAWN).write_bytes(finding.schedule.to_pretty_json())
    explanation = explain(smallest)
    write(explanation, folder / EXPLANATION)
    return SavedFinding(folder, explanation)


def save_real_schedule(
    finding: Finding, folder: Path, *, runs: int = MOST_RUNS
) -> RealSchedule | None:
    """Save the real schedule too, if one is found within three times `runs`. Raises OSError."""
    real = real_schedule(finding.smallest, finding.property, runs=runs)
    if real is not None:
        (folder / REAL).write_bytes(real.schedule.to_pretty_json())
    return real
