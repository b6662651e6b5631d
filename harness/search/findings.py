"""What a search found, as a folder: schedules to replay in both worlds, and why it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from harness.search.attempt import attempt
from harness.search.campaign import Finding
from harness.search.explain import EXPLANATION, Explanation, explain, write
from harness.search.steady import for_real
from nemesis.schedule import Schedule

SCHEDULE: Final = "schedule.json"
DRAWN: Final = "drawn.json"
REAL: Final = "real.json"


class Saved(NamedTuple):
    """Where a finding is kept, why it fails, and its form for real processes, None without any."""

    folder: Path
    explanation: Explanation
    real: Schedule | None


def save(finding: Finding, store: Path) -> Saved:
    """Keep a finding in a folder of its own under `store`. Raises OSError."""
    smallest = finding.smallest
    folder = store / f"{smallest.name}-{smallest.digest()}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCHEDULE).write_bytes(smallest.to_pretty_json())
    (folder / DRAWN).write_bytes(finding.schedule.to_pretty_json())
    explanation = explain(smallest)
    write(explanation, folder / EXPLANATION)
    real = real_form(smallest, finding.property)
    if real is not None:
        (folder / REAL).write_bytes(real.to_pretty_json())
    return Saved(folder, explanation, real)


def real_form(smallest: Schedule, broken: str) -> Schedule | None:
    """The form of a shrunk schedule that real processes can carry out, None if there is none."""

    def fails_alike(candidate: Schedule, seed: int) -> bool:
        return broken in attempt(candidate, seed, stop_at="never").broken

    return for_real(smallest, fails_alike)
