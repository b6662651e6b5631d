"""What a search knows of a run's failure, and the baseline run: `finding/` and `baseline.json`.

A run folder holds them only when they were made; the page says so where they were not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.formats import baseline, finding
from harness.formats.baseline import Baseline
from harness.formats.finding import Explanation
from nemesis.formats.schedule import Schedule
from nemesis.formats.schedule import parse as parse_schedule
from node.formats.errors import UsageError
from reports.run_page.files import Notes, json_file


@dataclass(frozen=True)
class Provenance:
    """The finding that a run replays: why it fails, the schedule as drawn and as shrunk."""

    explained: Explanation
    drawn: Schedule | None
    minimal: Schedule | None
    for_real: bool = False


def read_provenance(run_dir: Path, notes: Notes) -> Provenance | None:
    """What `finding/` says, None where the run comes from no shrunk finding."""
    folder = run_dir / finding.FOLDER
    if not (folder / finding.EXPLANATION).exists():
        return None
    explained = json_file(folder / finding.EXPLANATION, Explanation, notes)
    if explained is None:
        return None
    return Provenance(
        explained,
        _schedule(folder / finding.DRAWN, notes),
        _schedule(folder / finding.SCHEDULE, notes),
        (folder / finding.REAL).exists(),
    )


def read_baseline(run_dir: Path, notes: Notes) -> Baseline | None:
    """The baseline run, None where none was made."""
    file = run_dir / baseline.FILE
    return json_file(file, Baseline, notes) if file.exists() else None


def _schedule(file: Path, notes: Notes) -> Schedule | None:
    try:
        return parse_schedule(file.read_bytes(), source=file.name)
    except (OSError, UsageError) as error:
        notes.add(f"finding/{file.name} is not shown: {error}.")
        return None
