"""How long blind search needs to find each known bug, as the table of docs/time-to-bug.md.

    python -m tests.lab time-to-bug [--seeds 3] [--seconds 60] [--only M2 ...] [--engine random]

With `--journal FILE` each search is a line of the file. A search that the file has is not made
again, unless it found nothing within a smaller budget.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from harness.search.attempt import Attempt
from harness.search.bug_search import wanted_targets
from harness.search.engines import ENGINES, Subject
from harness.search.generator import GENERATOR_VERSION
from harness.search.known_bugs import SearchTarget, reproduces
from harness.sim.run import batched_collections
from nemesis.formats.schedule import Schedule

HEADINGS: Final = (
    "| code | under | must break | found | schedules | median core s | worst |\n"
    "|---|---|---|--:|--:|--:|--:|\n"
)


class SearchTime(msgspec.Struct, frozen=True, kw_only=True):
    """One search for one known bug.

    `seconds` of processor time and `schedules` (escalations included) until the find, or until the
    budget of `budget_s` was used up. `version` is that of the generator.
    """

    code: str
    engine: str
    seed: int
    found: bool
    seconds: float
    schedules: int
    budget_s: float
    version: int = GENERATOR_VERSION

    def is_current(self, budget_s: float) -> bool:
        """Return whether the search need not be made again, with that budget."""
        return self.version == GENERATOR_VERSION and (self.found or self.budget_s >= budget_s)


def time_to_bug(target: SearchTarget, engine: str, seed: int, seconds: float) -> SearchTime:
    """Search for a known bug with an engine, for at most `seconds` of this core."""
    subject = Subject(target.protocol, target.bugs, target.faults, target.dimensions)
    began_s = time.process_time()
    schedules, found = 0, False

    def judge(schedule: Schedule) -> Attempt:
        nonlocal schedules, found
        schedules += 1
        outcome = target.judge(schedule)
        if outcome.failed:
            found = found or reproduces(target, schedule) is not None
        return outcome

    def enough() -> bool:
        return found or time.process_time() - began_s >= seconds

    with batched_collections():
        ENGINES[engine](subject, seed, judge, enough)
    return SearchTime(
        code=target.code,
        engine=engine,
        seed=seed,
        found=found,
        seconds=round(time.process_time() - began_s, 2),
        schedules=schedules,
        budget_s=seconds,
    )


def searched(
    targets: Sequence[SearchTarget],
    engine: str,
    seeds: int,
    seconds: float,
    *,
    jobs: int,
    journal: Path | None,
) -> list[SearchTime]:
    """Search for each target with all seeds; return the times, also those in the journal."""
    known: dict[tuple[str, str, int], SearchTime] = {}
    if journal is not None and journal.exists():
        for line in journal.read_bytes().splitlines():
            before = msgspec.json.decode(line, type=SearchTime)
            if before.is_current(seconds):
                known[before.code, before.engine, before.seed] = before
    wanted = [(target, engine, seed) for seed in range(seeds) for target in targets]
    open_ = [job for job in wanted if (job[0].code, *job[1:]) not in known]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=20) as pool:
        for done in as_completed([pool.submit(time_to_bug, *job, seconds) for job in open_]):
            made = done.result()
            known[made.code, made.engine, made.seed] = made
            if journal is not None:
                with journal.open("ab") as file:
                    file.write(msgspec.json.encode(made) + b"\n")
    return [known[target.code, engine, seed] for target, _, seed in wanted]


def rows(targets: Sequence[SearchTarget], times: Sequence[SearchTime]) -> Iterator[str]:
    """Return a row of Markdown for each target. A search without a find counts with its budget."""
    for target in targets:
        mine = [each for each in times if each.code == target.code]
        found = f"{sum(each.found for each in mine)} of {len(mine)}"
        schedules = f"{median(each.schedules for each in mine):,.0f}"
        seconds = [each.seconds for each in mine]
        half, worst = f"{median(seconds):.1f}", f"{max(seconds):.1f}"
        cells = (target.code, target.protocol, target.breaks, found, schedules, half, worst)
        yield f"| {' | '.join(cells)} |\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the search."""
    parser.add_argument("--engine", choices=ENGINES, default="random")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="of one core, for each search")
    parser.add_argument("--only", nargs="*", default=[], help="codes or names of known bugs")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--journal", type=Path)


def run(given: argparse.Namespace) -> int:
    """Search, and print the table."""
    targets = wanted_targets(tuple(given.only))
    times = searched(
        targets, given.engine, given.seeds, given.seconds, jobs=given.jobs, journal=given.journal
    )
    print(HEADINGS, *rows(targets, times), sep="", end="")
    return 0
