"""The demonstration: the search for a lost write, its page, and the repaired protocol.

Kafka before KIP-101 (0.11) truncated a follower to its own high watermark and could lose an
acknowledged write; KIP-101 repaired that."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.formats.finding import SCHEDULE
from harness.replay.pages import page_of_finding
from harness.replay.replay import replay
from harness.runs.interrupts import Interrupts
from harness.runs.judge import Tell
from harness.runs.program import command_line
from harness.runs.progress import Progress
from harness.runs.requests import ReplayRequest
from harness.search.requests import DemoRequest, SearchRequest
from harness.search.run import search
from node.formats.errors import FloodmarkError

FAULTY: Final = "high-watermark"
REPAIRED: Final = "kip-101"
BUDGET_S: Final = 120.0
"""Far more time than the search needs: a few schedules, some 15 s of one core."""


def demo(request: DemoRequest, interrupts: Interrupts, progress: Progress, output: Tell) -> bool:
    """Search the faulty protocol until a write is lost, build the page, and run the same schedule
    under the repaired protocol. Return whether the faulty protocol lost the write and the repaired
    one kept it. Raises FloodmarkError if the search finds no failure within `BUDGET_S`."""
    output(f"1. A search for a schedule that breaks {FAULTY} (Kafka before KIP-101), without hints")
    wanted = SearchRequest(
        protocol=FAULTY,
        budget_s=BUDGET_S,
        until_failure=True,
        jobs=request.jobs,
        store=request.store,
    )
    found = search(wanted, interrupts, progress, output)
    if not found.folders:
        raise FloodmarkError(
            f"the search found nothing within {BUDGET_S:g} s; a longer one: "
            f"{command_line('search', '--protocol', FAULTY, '--until-failure')}"
        )
    folder = Path(found.folders[0])
    output("\n2. The page of the smallest schedule: how the write was lost")
    progress.phase("building the page")
    page = page_of_finding(folder, output)
    output(f"  {page}")
    output(f"\n3. The same faults under {REPAIRED}")
    progress.phase(f"running {REPAIRED}")
    (outcome,) = replay(ReplayRequest(file=folder / SCHEDULE, protocol=REPAIRED, quiet=True))
    keeps = outcome.verdict != "invalid"
    output(f"  {REPAIRED} keeps the record." if keeps else f"  {outcome.sentence}")
    output(f"\nThe page, for a browser: {page}")
    output(f"Next: {command_line('run')} breaks a cluster of real processes.")
    return keeps
