"""Findings that a run of a third-party system shows."""

from __future__ import annotations

from pathlib import Path

from checker.formats.verdict import RunResult
from harness.runs.options import load_schedule
from harness.search import findings
from harness.search.worlds.outcome import ScheduleOutcome
from harness.search.worlds.real import StormSubject, outcome_in
from harness.search.worlds.subject import GIVEN, Drawn
from node.formats.json_input import read_file

LOST = "no-lost-acknowledged-write"


def kept_finding(subject: StormSubject, run: Path) -> Path:
    """Keep the finding of a run in its store, and return its folder. A run that did not fail is
    taken for one that lost a write."""
    made = outcome_in(run, read_file(run / "results.json", RunResult), 0.0)
    if not made.failed:
        lost = {LOST: "lost"}
        made = ScheduleOutcome(
            failed=True, property=LOST, broken=lost, sentence="-", folder=str(run)
        )
    store = run.parent.parent
    drawn = Drawn(GIVEN, load_schedule(run), made)
    return findings.keep(subject.finding(drawn), store)
