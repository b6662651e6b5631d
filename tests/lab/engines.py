"""How long engines need to find known bugs, and the table that compares them.

    python -m tests.lab engines [--engines drawn,random] [--seeds 3] [--seconds 60] [--only M2 ...]

All engines get the same rows, the same number of seeds, and the same seconds of one core for each
search. A search that ends without a find counts as longer than its budget (`tests.lab.survival`).
The first engine is the one that the others are compared with. With `--journal FILE` each search is
a line of the file, and a search that the file has is not made again.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from fractions import Fraction
from pathlib import Path
from typing import Final

import msgspec

from harness.search.attempt import Attempt
from harness.search.bug_search import wanted_targets
from harness.search.engines import ENGINES, Subject
from harness.search.generator import GENERATOR_VERSION
from harness.search.known_bugs import SearchTarget, reproduces
from harness.sim.run import batched_collections
from nemesis.formats.schedule import Schedule
from node.formats.errors import UsageError
from tests.lab.survival import LogRank, Time, geometric_mean, log_rank, mean, median, stratified

OFTEN: Final = Fraction(25, 30)
"""A bug counts as often found when this share of the seeds found it."""
HEADINGS: Final = ("engine", "found", "median s", "mean s", "times faster", "p")


class SearchTime(msgspec.Struct, frozen=True, kw_only=True):
    """One search of one engine for one known bug.

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

    @property
    def time(self) -> Time:
        """As statistics take it."""
        return Time(self.seconds, self.found)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One engine on one row. `faster` is the mean time of the first engine by that of this one;
    `p` is how probable the difference is where there is none."""

    engine: str
    found: int
    seeds: int
    median_s: float
    mean_s: float
    faster: float
    p: float

    def cells(self) -> tuple[str, ...]:
        """In the order of `HEADINGS`."""
        half = "-" if math.isinf(self.median_s) else f"{self.median_s:.0f}"
        mean_s = f"{self.mean_s:.0f}" if self.found else f"over {self.mean_s:.0f}"
        found = f"{self.found} of {self.seeds}"
        return (self.engine, found, half, mean_s, f"{self.faster:.2f}", f"{self.p:.2g}")


class AllRows(msgspec.Struct, frozen=True, kw_only=True):
    """One engine on all rows: the geometric mean of `faster` over the rows on which it or the first
    engine found something, the row where it is worst, and the log-rank test over all rows."""

    engine: str
    rows: int
    faster: float
    worst: float
    worst_row: str
    p: float


def engines_of(text: str) -> tuple[str, ...]:
    """Return `drawn,random` as names. Raises UsageError for an unknown one."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if wrong := [name for name in names if name not in ENGINES]:
        raise UsageError(f"unknown engine '{wrong[0]}' (known: {', '.join(ENGINES)})")
    return names


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
    engines: Sequence[str],
    seeds: int,
    seconds: float,
    *,
    jobs: int,
    journal: Path | None,
) -> list[SearchTime]:
    """Let each engine search for each target with all seeds; return the times, also those that the
    journal has."""
    known: dict[tuple[str, str, int], SearchTime] = {}
    if journal is not None and journal.exists():
        for line in journal.read_bytes().splitlines():
            before = msgspec.json.decode(line, type=SearchTime)
            known[before.code, before.engine, before.seed] = before
    wanted = [(t, engine, seed) for seed in range(seeds) for t in targets for engine in engines]
    open_ = [
        (target, engine, seed)
        for target, engine, seed in wanted
        if (before := known.get((target.code, engine, seed))) is None
        or not before.is_current(seconds)
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=20) as pool:
        for done in as_completed([pool.submit(time_to_bug, *job, seconds) for job in open_]):
            made = done.result()
            known[made.code, made.engine, made.seed] = made
            if journal is not None:
                with journal.open("ab") as file:
                    file.write(msgspec.json.encode(made) + b"\n")
    return [known[target.code, engine, seed] for target, engine, seed in wanted]


def compared(
    times: Sequence[SearchTime], engines: Sequence[str]
) -> tuple[dict[str, list[Comparison]], list[AllRows]]:
    """Each row, by the code of its bug, with all engines; then each engine but the first, over all
    rows. A row counts only with the seeds that all engines have searched."""
    rows: dict[str, list[Comparison]] = {}
    tests: dict[str, list[LogRank]] = {engine: [] for engine in engines}
    for code in dict.fromkeys(each.code for each in times):
        groups = _groups([each for each in times if each.code == code], engines)
        if not groups[engines[0]]:
            continue
        rows[code] = list(_row(groups, engines))
        for engine in engines:
            tests[engine].append(log_rank(groups[engine], groups[engines[0]]))
    return rows, [_whole(n, engine, rows, tests[engine]) for n, engine in enumerate(engines) if n]


def _groups(times: Iterable[SearchTime], engines: Sequence[str]) -> dict[str, list[Time]]:
    """The times of each engine, of the seeds that all have searched."""
    by = {(each.engine, each.seed): each.time for each in times}
    seeds = sorted({seed for _, seed in by})
    seeds = [seed for seed in seeds if all((engine, seed) in by for engine in engines)]
    return {engine: [by[engine, seed] for seed in seeds] for engine in engines}


def _row(groups: dict[str, list[Time]], engines: Sequence[str]) -> Iterator[Comparison]:
    first = groups[engines[0]]
    for engine in engines:
        mine = groups[engine]
        yield Comparison(
            engine=engine,
            found=sum(time.happened for time in mine),
            seeds=len(mine),
            median_s=median(mine),
            mean_s=mean(mine),
            faster=max(mean(first), 0.01) / max(mean(mine), 0.01),
            p=log_rank(mine, first).p,
        )


def _whole(
    number: int, engine: str, rows: dict[str, list[Comparison]], tests: Sequence[LogRank]
) -> AllRows:
    counted = {c: row[number] for c, row in rows.items() if row[0].found or row[number].found}
    worst = min(counted, key=lambda code: counted[code].faster, default="")
    return AllRows(
        engine=engine,
        rows=len(counted),
        faster=geometric_mean([row.faster for row in counted.values()]),
        worst=counted[worst].faster if worst else 1.0,
        worst_row=worst,
        p=stratified(tests).p,
    )


def _often_found(rows: dict[str, list[Comparison]], engine: str) -> str:
    """On how many rows nearly all seeds of an engine found the bug."""
    mine = [each for row in rows.values() for each in row if each.engine == engine]
    often = [each for each in mine if each.found >= each.seeds * OFTEN]
    seeds = sorted({each.seeds for each in mine})
    return (
        f"* {engine}: {len(often)} of {len(mine)} rows found by at least {OFTEN} of the seeds "
        f"(seeds a row: {', '.join(map(str, seeds))})."
    )


def as_markdown(times: Sequence[SearchTime], engines: Sequence[str]) -> str:
    """The comparison as a table of Markdown, which is also what the terminal shows."""
    rows, wholes = compared(times, engines)
    heads = ("row", *HEADINGS)
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for code, row in rows.items():
        lines += [f"| {' | '.join((code, *each.cells()))} |" for each in row]
    lines.append("")
    lines += [_often_found(rows, engine) for engine in engines]
    lines += [
        f"* {each.engine}: {each.faster:.2f} times as fast as {engines[0]} (geometric mean of "
        f"{each.rows} rows), worst {each.worst:.2f} ({each.worst_row}); log-rank p = {each.p:.2g}."
        for each in wholes
    ]
    return "\n".join(lines) + "\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the comparison."""
    parser.add_argument("--engines", default="drawn,random")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="of one core, for each search")
    parser.add_argument("--only", nargs="*", default=[], help="codes or names of known bugs")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--journal", type=Path)


def run(given: argparse.Namespace) -> int:
    """Compare engines, and print the table."""
    engines = engines_of(given.engines)
    targets = wanted_targets(tuple(given.only))
    times = searched(
        targets, engines, given.seeds, given.seconds, jobs=given.jobs, journal=given.journal
    )
    print(as_markdown(times, engines), end="")
    return 0
