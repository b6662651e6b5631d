"""`floodmark bench`: what broker, link hub and judging cost on this machine, in one run.

Every figure comes from real processes and from what the clients put on record; no fault is made.
Producers send as fast as answers come, each with one batch under way.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from checker.formats.errors import CheckerError
from harness.formats.history import Op, decode
from harness.runs import run_folder
from harness.runs.clock import now_us
from harness.runs.interrupts import Interrupts
from harness.runs.judge import SparkSoon
from harness.runs.options import RunRequest, to_schedule
from harness.runs.progress import Progress
from harness.runs.run import Run, RunSettings
from harness.systems import registry
from harness.systems.floodmark.system import HUB_LINKS, SYSTEM
from harness.systems.interface import NO_LINKS, ClusterUnderTest
from nemesis.formats import schedule as schedules
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.formats.errors import FloodmarkError, UsageError

CLIENTS: Final = (1, 8, 64)
WARM_UP_S: Final = 1.0
START_UPS: Final = 3
HUB_TURNS: Final = 3
CURVE_CLIENTS: Final = 8
CURVE_TURNS: Final = 4
_LOOK_S: Final = 0.02

Flush = Literal["sync", "async"]


class BenchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds each load is measured, records a batch, bytes a record, seconds of the judged run;
    whether the processes have keys (`curve`)."""

    seconds: float = 4.0
    batch: int = 100
    record_bytes: int = 100
    judged_s: float = 30.0
    curve: bool = True


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What one cluster did under one load: rates of acknowledged batches, latencies in ms."""

    flush: Flush
    clients: int
    hub: bool
    batches_s: float
    records_s: float
    p50_ms: float
    p99_ms: float
    start_ms: float


class Judging(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a judged run: seconds from the last operation to the verdict, and the checker."""

    storm_s: float
    operations: int
    verdict: str
    last_op_to_verdict_s: float
    check_s: float
    operations_s: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of one bench. `start_ms`: three brokers up to the first acknowledgement, median;
    `hub_added_ms`: what the hub adds to the median latency of one client. `curve_costs_percent`:
    batches per second lost to keys, in each pair of measurements by turns."""

    settings: BenchSettings
    start_ms: float
    loads: tuple[Load, ...]
    hub_added_ms: float
    curve_costs_percent: tuple[float, ...] = ()
    judging: Judging | None = None


def run_bench(settings: BenchSettings, progress: Progress) -> Figures:
    """Measure everything. Raises FloodmarkError when a cluster does not start."""
    if settings.seconds <= 0 or settings.judged_s < 0:
        raise UsageError("--seconds must be positive and --judged not negative")
    loads: list[Load] = []
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        store = Path(folder)
        for flush in ("sync", "async"):
            for clients in CLIENTS:
                progress.phase(f"flush={flush}, {clients} clients", settings.seconds)
                loads.append(measure(store, settings, flush, clients, hub=False))
        through_hub, hub_added_ms = _cost_of_the_hub(store, settings, progress)
        costs = cost_of_curve(store, settings, progress) if settings.curve else ()
        judging = judge_a_run(store, settings, progress) if settings.judged_s else None
    starts = [load.start_ms for load in loads[:START_UPS]]
    return Figures(
        settings=settings,
        start_ms=statistics.median(starts),
        loads=(*loads, through_hub),
        hub_added_ms=hub_added_ms,
        curve_costs_percent=costs,
        judging=judging,
    )


def _cost_of_the_hub(
    store: Path, settings: BenchSettings, progress: Progress
) -> tuple[Load, float]:
    """One client with and without the hub by turns: the last load with it, and what it adds in ms.

    By turns, so that a machine that is busier for a while is so for both; and without waiting for
    the disk, whose moods are larger than what is measured here.
    """
    found: dict[bool, list[Load]] = {True: [], False: []}
    for turn in range(HUB_TURNS):
        for hub in (True, False):
            with_or_without = "through" if hub else "without"
            progress.phase(f"one client {with_or_without} the link hub, {turn + 1}/{HUB_TURNS}")
            found[hub].append(measure(store, settings, "async", 1, hub=hub))
    medians = {hub: statistics.median(load.p50_ms for load in found[hub]) for hub in found}
    return found[True][-1], round(medians[True] - medians[False], 3)


def cost_of_curve(
    store: Path, settings: BenchSettings, progress: Progress, *, hub: bool = False
) -> tuple[float, ...]:
    """CURVE_CLIENTS clients with and without keys by turns: what keys cost in each pair, in percent
    of the batches per second without them. As in `_cost_of_the_hub`, nothing waits for the disk."""
    costs = []
    for turn in range(CURVE_TURNS):
        rates = {}
        # The first of a pair is now this one, now the other.
        for curve in (True, False) if turn % 2 else (False, True):
            with_or_without = "with" if curve else "without"
            progress.phase(
                f"{CURVE_CLIENTS} clients {with_or_without} keys, {turn + 1}/{CURVE_TURNS}"
            )
            wanted = msgspec.structs.replace(settings, curve=curve)
            rates[curve] = measure(store, wanted, "async", CURVE_CLIENTS, hub=hub).batches_s
        costs.append(round(100 * (1 - rates[True] / rates[False]), 1))
    return tuple(costs)


def measure(store: Path, settings: BenchSettings, flush: Flush, clients: int, *, hub: bool) -> Load:
    """Start a cluster, load it for a while, and read off the history what it did."""
    schedule = Schedule(
        cluster=Cluster(flush=flush),
        workload=Workload(
            clients=clients,
            consumers=0,
            rate=0,
            batch=settings.batch,
            payload_bytes=settings.record_bytes,
        ),
    )
    schedules.check(schedule, source="options")
    folder = run_folder.create(store, f"{flush}-{clients}-{'hub' if hub else 'direct'}")
    links = HUB_LINKS if hub else NO_LINKS
    system = SYSTEM.with_settings({"curve": "on" if settings.curve else "off"})
    cluster = system.launch(schedule, folder, links=links)
    try:
        began_us = now_us()
        driver = cluster.clients()
        cluster.start()
        driver.go()
        let_pass(cluster, WARM_UP_S + settings.seconds, lambda: driver.status.problem)
        driver.stop_writing()
        let_pass(cluster, 0.5, lambda: driver.status.problem)
        driver.close()
    finally:
        cluster.close()
    lines = (folder.path / "history.jsonl").read_bytes().splitlines()
    return _load(map(decode, lines), settings, flush, clients, hub, began_us)


def judge_a_run(store: Path, settings: BenchSettings, progress: Progress) -> Judging:
    """One whole run with faults, judged by Spark as `floodmark run` does it."""
    schedule = to_schedule(RunRequest(seed=1, time_limit=settings.judged_s))
    run = Run(
        schedule,
        RunSettings(name="judged", seed=1, store=store),
        registry.find(registry.DEFAULT),
        progress=progress,
        interrupts=Interrupts(),
    )
    spark = SparkSoon(run.folder.path / "output" / "spark.txt")
    run.execute(on_storm=spark.begin)
    progress.phase("judging")
    began_us = now_us()
    try:
        (result,) = spark.check([run.folder.path])
    except CheckerError as error:
        raise FloodmarkError(str(error)) from None
    ended_us = now_us()
    operations = sum(1 for line in (run.folder.path / "history.jsonl").open()) // 2
    seconds = (ended_us - began_us) / 1e6
    return Judging(
        storm_s=settings.judged_s,
        operations=operations,
        verdict=result.verdict,
        last_op_to_verdict_s=round((ended_us - run.last_op_us) / 1e6, 2),
        check_s=round(seconds, 2),
        operations_s=round(operations / seconds),
    )


def table(figures: Figures) -> str:
    """The figures for a person."""
    settings = figures.settings
    lines = [
        f"3 brokers up and first acknowledgement: {figures.start_ms:.0f} ms (median)",
        f"RF 3, acks=all, batches of {settings.batch} records of {settings.record_bytes} B, "
        f"{settings.seconds:g} s each:",
        f"{'flush':<6} {'clients':>7} {'hub':<4} {'batches/s':>10} {'records/s':>11} "
        f"{'p50 ms':>8} {'p99 ms':>8}",
    ]
    lines += [
        f"{load.flush:<6} {load.clients:>7} {'yes' if load.hub else 'no':<4} "
        f"{load.batches_s:>10,.0f} {load.records_s:>11,.0f} {load.p50_ms:>8.2f} {load.p99_ms:>8.2f}"
        for load in figures.loads
    ]
    lines.append(f"the link hub adds {figures.hub_added_ms:.2f} ms to the median of one client")
    if costs := figures.curve_costs_percent:
        lines.append(
            f"keys (CURVE) cost {statistics.median(costs):.1f} % of the batches per second of "
            f"{CURVE_CLIENTS} clients ({min(costs):.1f} to {max(costs):.1f} in {len(costs)} pairs)"
        )
    if (judging := figures.judging) is not None:
        lines.append(
            f"a storm of {judging.storm_s:g} s: {judging.last_op_to_verdict_s:.1f} s from the last "
            f"operation to the verdict ({judging.verdict}), of which Spark {judging.check_s:.1f} s "
            f"for {judging.operations:,} operations ({judging.operations_s:,.0f}/s)"
        )
    return "\n".join(lines)


def let_pass(cluster: ClusterUnderTest, seconds: float, problem: Callable[[], str]) -> None:
    """Let time pass over a cluster that is left in peace. Raises FloodmarkError when a process
    ends, or with the sentence of `problem`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        cluster.poll()
        if ended := cluster.ended():
            raise FloodmarkError(f"{ended[0]} ended by itself")
        if cluster.problems:
            raise FloodmarkError(cluster.problems[0].sentence)
        if sentence := problem():
            raise FloodmarkError(sentence)
        time.sleep(_LOOK_S)


def _load(
    ops: map[Op], settings: BenchSettings, flush: Flush, clients: int, hub: bool, began_us: int
) -> Load:
    invoked: dict[int, int] = {}
    acked: list[tuple[int, int]] = []
    for op in ops:
        if op.f != "send":
            continue
        if op.type == "invoke":
            invoked[op.op] = op.t_us
        elif op.type == "ok":
            acked.append((op.t_us, op.t_us - invoked[op.op]))
    if not acked:
        raise FloodmarkError("nothing was acknowledged during the measurement")
    from_us = acked[0][0] + WARM_UP_S * 1e6
    to_us = from_us + settings.seconds * 1e6
    latencies = sorted(took for at, took in acked if from_us <= at < to_us) or [0]
    rate = len(latencies) / settings.seconds
    return Load(
        flush=flush,
        clients=clients,
        hub=hub,
        batches_s=round(rate, 1),
        records_s=round(rate * settings.batch),
        p50_ms=round(latencies[len(latencies) // 2] / 1000, 3),
        p99_ms=round(latencies[len(latencies) * 99 // 100] / 1000, 3),
        start_ms=round((acked[0][0] - began_us) / 1000, 1),
    )
