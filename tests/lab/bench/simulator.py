"""Measures how fast virtual time passes in the simulated world, with all checks on.

Two shapes of schedules: a storm of 3 brokers and 4 clients, and the small experiments of a search.
Rates are per second of processor time, which does not depend on other load."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from harness.cli.common import print_table
from harness.search.grammar.phrases import compose
from harness.search.worlds.outcome import run_simulated
from harness.sim import compiled
from harness.sim.run import batched_collections, simulate
from nemesis.draw import draw
from nemesis.formats.schedule import Cluster, Schedule, Workload

RATE: Final = 10.0
PROTOCOL: Final = Cluster().protocol


class SimSpeed(NamedTuple):
    """The figures of one shape of schedules, with their number for each verdict. `operations_s` are
    per virtual second, all other rates per second of processor time."""

    shape: str
    verdicts: dict[str, int]
    operations_s: float
    virtual_per_s: float
    events_per_s: float
    schedules_per_s: float


class _Run(NamedTuple):
    """The figures of one run."""

    verdict: str
    virtual_us: int
    events: int
    operations: int


def run_sim_bench(seconds: float) -> list[SimSpeed]:
    """Measure both shapes of schedules, `seconds` of processor time each."""
    return [
        _measure(shape, run, seconds) for shape, run in (("storm", _storm), ("search", _experiment))
    ]


def _storm(seed: int) -> _Run:
    """Half a minute of storm: 3 brokers, 2 producers and 2 consumers, all faults."""
    cluster = Cluster()
    workload = Workload(seed=seed, clients=2, consumers=2, rate=RATE)
    faults = draw(cluster, workload, ("all",), seed)
    schedule = Schedule(cluster=cluster, workload=workload, faults=faults, drawn=True)
    result = simulate(schedule, seed=seed)
    invoked = sum(op.type == "invoke" for op in result.ops)
    return _Run(result.verdict, result.virtual_us, result.events, invoked)


def _experiment(seed: int) -> _Run:
    """Try one schedule of a search."""
    rng = random.Random(f"bench/{seed}")
    outcome = run_simulated(compose(rng, PROTOCOL))
    verdict = "unknown" if outcome.problem else "invalid" if outcome.failed else "valid"
    return _Run(verdict, outcome.virtual_us, outcome.events, 0)


def _measure(shape: str, run: Callable[[int], _Run], seconds: float) -> SimSpeed:
    """Make runs until their time is over; the first is for warming up and does not count."""
    run(1)
    runs: list[_Run] = []
    with batched_collections():
        began_s = time.process_time()
        while (cpu_s := time.process_time() - began_s) < seconds:
            runs.append(run(len(runs) + 2))
    virtual_s = sum(each.virtual_us for each in runs) / 1e6
    return SimSpeed(
        shape=shape,
        verdicts=dict(Counter(each.verdict for each in runs)),
        operations_s=sum(each.operations for each in runs) / virtual_s,
        virtual_per_s=virtual_s / cpu_s,
        events_per_s=sum(each.events for each in runs) / cpu_s,
        schedules_per_s=len(runs) / cpu_s,
    )


def print_speeds(found: list[SimSpeed]) -> None:
    """Print the figures as a table."""
    print(
        f"{PROTOCOL}, all checks on, by second of one core; storms of 3 brokers and 4 clients, "
        f"{RATE:g} batches/s a producer ({found[0].operations_s:.1f} operations/s in all)"
        + (", compiled" if compiled.in_use() else "")
    )
    rows = (
        (
            each.shape,
            f"{sum(each.verdicts.values())}",
            f"{each.virtual_per_s:,.1f}",
            f"{each.events_per_s:,.0f}",
            f"{each.schedules_per_s:,.2f}",
        )
        for each in found
    )
    print_table(("shape", "runs", "virtual s/s", "events/s", "schedules/s"), rows, json=False)
