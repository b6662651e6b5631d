"""`floodmark bench sim`: how fast virtual time passes in the simulated world, with all checks on.

Two shapes of schedules: a storm of 3 brokers and 4 clients, and the small experiments of a search.
Rates are per second of processor time, which does not depend on other load."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from harness.bench.frame import as_table
from harness.bench.requests import SimBench
from harness.runs.progress import Progress
from harness.search.draw.choice_source import RandomChoices
from harness.search.draw.generator import draw_schedule
from harness.search.worlds.attempt import attempt
from harness.sim import compiled
from harness.sim.run import batched_collections, simulate
from nemesis.draw import draw
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.core.protocol import protocol as protocol_of

RATE: Final = 10.0


class SimSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one shape of schedules. `operations_s` are per virtual second, all other rates
    per second of processor time. `compiled` says whether compiled modules ran."""

    shape: str
    runs: int
    verdicts: dict[str, int]
    cpu_s: float
    wall_s: float
    virtual_s: float
    operations_s: float
    virtual_per_s: float
    events_per_s: float
    schedules_per_s: float
    compiled: bool


class _Run(msgspec.Struct, frozen=True):
    """The figures of one run."""

    verdict: str
    virtual_us: int
    events: int
    operations: int


def run_sim_bench(settings: SimBench, progress: Progress) -> list[SimSpeed]:
    """Measure both shapes of schedules. Raises UsageError for an unknown protocol."""
    protocol_of(settings.protocol)
    found = []
    for shape, run in (("storm", _storm), ("search", _experiment)):
        progress.phase(f"{shape}, in the simulated world", settings.budget_s)
        found.append(_measure(shape, run, settings))
    return found


def _storm(settings: SimBench, number: int) -> _Run:
    """Half a minute of storm: 3 brokers, 2 producers and 2 consumers, all faults."""
    seed = settings.seed + number
    cluster = Cluster(protocol=settings.protocol)
    workload = Workload(seed=seed, clients=2, consumers=2, rate=RATE)
    faults = draw(cluster, workload, ("all",), seed)
    schedule = Schedule(cluster=cluster, workload=workload, faults=faults, drawn=True)
    result = simulate(schedule, seed=seed)
    invoked = sum(op.type == "invoke" for op in result.ops)
    return _Run(result.verdict, result.virtual_us, result.events, invoked)


def _experiment(settings: SimBench, number: int) -> _Run:
    """Try one schedule of a search."""
    rng = random.Random(f"bench/{settings.seed}/{number}")
    outcome = attempt(draw_schedule(RandomChoices(rng), settings.protocol))
    verdict = "unknown" if outcome.problem else "invalid" if outcome.failed else "valid"
    return _Run(verdict, outcome.virtual_us, outcome.events, 0)


def _measure(shape: str, run: Callable[[SimBench, int], _Run], settings: SimBench) -> SimSpeed:
    """Make runs until their time is over; the first is for warming up and does not count."""
    run(settings, 0)
    runs: list[_Run] = []
    with batched_collections():
        began_s, wall_s = time.process_time(), time.monotonic()
        while (cpu_s := time.process_time() - began_s) < settings.budget_s:
            runs.append(run(settings, len(runs) + 1))
        wall_s = time.monotonic() - wall_s
    virtual_s = sum(each.virtual_us for each in runs) / 1e6
    return SimSpeed(
        shape=shape,
        runs=len(runs),
        verdicts=dict(Counter(each.verdict for each in runs)),
        cpu_s=round(cpu_s, 2),
        wall_s=round(wall_s, 2),
        virtual_s=round(virtual_s, 1),
        operations_s=round(sum(each.operations for each in runs) / virtual_s, 1),
        virtual_per_s=round(virtual_s / cpu_s, 1),
        events_per_s=round(sum(each.events for each in runs) / cpu_s),
        schedules_per_s=round(len(runs) / cpu_s, 2),
        compiled=compiled.in_use(),
    )


def sim_table(found: list[SimSpeed], settings: SimBench) -> str:
    """Format the figures as a text table."""
    first = found[0]
    return "\n".join(
        [
            f"{settings.protocol}, all checks on, by second of one core; storms of 3 brokers and 4 "
            f"clients, {RATE:g} batches/s a producer ({first.operations_s:g} operations/s "
            f"in all)" + (", compiled" if first.compiled else ""),
            *as_table(
                ("shape", "runs", "virtual s/s", "events/s", "schedules/s"),
                (
                    (
                        each.shape,
                        f"{each.runs}",
                        f"{each.virtual_per_s:,.1f}",
                        f"{each.events_per_s:,.0f}",
                        f"{each.schedules_per_s:,.2f}",
                    )
                    for each in found
                ),
            ),
        ]
    )
