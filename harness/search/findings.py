"""What a search found, as a folder: schedules to replay in both worlds, and why it fails."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from harness.formats.finding import DRAWN, EXPLANATION, REAL, SCHEDULE, Explanation
from harness.search.campaign import Finding
from harness.search.explain import explain, write
from harness.search.real_schedule import MOST_RUNS, RealForm, real_form


class SavedFinding(NamedTuple):
    """Where a finding is kept, and why it fails."""

    folder: Path
    explanation: Explanation


def save(finding: Finding, store: Path) -> SavedFinding:
    """Keep a finding in a folder of its own under `store`, explained. Raises OSError."""
    smallest = finding.smallest
    folder = store / f"{smallest.name}-{smallest.digest()}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCHEDULE).write_bytes(smallest.to_pretty_json())
    (folder / DRAWN).write_bytes(finding.schedule.to_pretty_json())
    explanation = explain(smallest)
    write(explanation, folder / EXPLANATION)
    return SavedFinding(folder, explanation)


def save_real(finding: Finding, folder: Path, *, runs: int = MOST_RUNS) -> RealForm | None:
    """Keep the form for real processes too, if there is one. Takes up to three times `runs`. Raises
    OSError."""
    form = real_form(finding.smallest, finding.property, runs=runs)
    if form is not None:
        (folder / REAL).write_bytes(form.schedule.to_pretty_json())
    return form
