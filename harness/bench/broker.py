"""`floodmark bench`: what broker, link hub and judging cost on this machine, in one run.

Every figure comes from real processes and from the history of the clients; no fault is injected.
Producers send as fast as they get answers, each with one batch in flight."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from harness.bench.frame import as_table
from harness.bench.requests import BenchRequest
from harness.bench.usage import children_seconds, seconds_of
from harness.formats.history import Op, decode
from harness.runs import run_folder
from harness.runs.clock import now_us
from harness.runs.interrupts import Interrupts
from harness.runs.judge import SparkSoon, build_page, get_ready, judge
from harness.runs.options import requested
from harness.runs.progress import Progress
from harness.runs.requests import RunRequest
from harness.runs.run import Run, RunOrder
from harness.systems.floodmark.system import HUB_LINKS, SYSTEM
from harness.systems.interface import NO_LINKS, ClusterUnderTest, RunClients, System
from nemesis.formats import schedule as schedules
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.formats.errors import FloodmarkError

CLIENTS: Final = (1, 8, 64)
WARM_UP_S: Final = 1.0
START_UPS: Final = 3
FIRST_ACK_S: Final = 30.0
"""How long a busy machine may take until the clients have begun, which is not measured."""
HUB_TURNS: Final = 3
_LOOK_S: Final = 0.02

Flush = Literal["sync", "async"]


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one cluster under one load. Rates are of acknowledged batches, latencies
    in ms, `cpu_ms` is the processor time of nodes, hub and clients per batch, `clients_core` the
    share of one core that the process of the clients used."""

    flush: Flush
    clients: int
    hub: bool
    batches_s: float
    records_s: float
    p50_ms: float
    p99_ms: float
    start_ms: float
    cpu_ms: float = 0.0
    clients_core: float = 0.0


class Judging(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a run: seconds to the verdict, the checker's part of them, and on to the page."""

    storm_s: float
    operations: int
    verdict: str
    last_op_to_verdict_s: float
    page_s: float
    check_s: float
    operations_s: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of one bench. `start_ms`: from the start of three brokers to the first
    acknowledgement, median; `hub_added_ms`: latency that the hub adds to one client, by medians."""

    settings: BenchRequest
    start_ms: float
    loads: tuple[Load, ...]
    hub_added_ms: float
    judging: Judging | None = None


def run_bench(settings: BenchRequest, progress: Progress) -> Figures:
    """Measure loads, hub and a judged run. Raises FloodmarkError if a cluster does not start."""
    loads: list[Load] = []
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        store = Path(folder)
        for flush in ("sync", "async"):
            for clients in CLIENTS:
                progress.phase(f"flush={flush}, {clients} clients", settings.budget_s)
                loads.append(measure(store, settings, flush, clients, hub=False))
        through_hub, hub_added_ms = _cost_of_the_hub(store, settings, progress)
        judging = judge_a_run(store, settings, progress) if settings.judged_s else None
    starts = [load.start_ms for load in loads[:START_UPS]]
    return Figures(
        settings=settings,
        start_ms=statistics.median(starts),
        loads=(*loads, through_hub),
        hub_added_ms=hub_added_ms,
        judging=judging,
    )


def _cost_of_the_hub(store: Path, settings: BenchRequest, progress: Progress) -> tuple[Load, float]:
    """Measure one client with and without the hub alternately: return the last load with it, and
    what it adds in ms.

    Alternately, so that a machine that is busier for a while is so for both; and without waiting
    for the disk, whose jitter is larger than what is measured here."""
    found: dict[bool, list[Load]] = {True: [], False: []}
    for turn in range(HUB_TURNS):
        for hub in (True, False):
            with_or_without = "through" if hub else "without"
            progress.phase(f"one client {with_or_without} the link hub, {turn + 1}/{HUB_TURNS}")
            found[hub].append(measure(store, settings, "async", 1, hub=hub))
    medians = {hub: statistics.median(load.p50_ms for load in found[hub]) for hub in found}
    return found[True][-1], round(medians[True] - medians[False], 3)


def measure(store: Path, settings: BenchRequest, flush: Flush, clients: int, *, hub: bool) -> Load:
    """Start a cluster of our brokers, load it for a while, and return rates and latencies."""
    links = HUB_LINKS if hub else NO_LINKS
    return measure_system(store, SYSTEM, settings, flush, clients, links=links)


def measure_system(
    store: Path,
    system: System,
    settings: BenchRequest,
    flush: Flush,
    clients: int,
    *,
    links: str = NO_LINKS,
) -> Load:
    """Start any system and load it for a while. Return rates and latencies of its clients."""
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
    folder = run_folder.create(store, f"{system.short_name}-{flush}-{clients}-{links}")
    cluster = system.launch(schedule, folder, links=links, disk=system.disk_form(None))
    try:
        began_us = now_us()
        driver = cluster.clients()
        cluster.start()
        driver.go()
        deadline = time.monotonic() + FIRST_ACK_S
        while not driver.status.acked and time.monotonic() < deadline:
            let_pass(cluster, _LOOK_S, lambda: driver.status.problem)
        let_pass(cluster, WARM_UP_S, lambda: driver.status.problem)
        before = Moment(now_us(), children_seconds(), seconds_of(driver.pid))
        let_pass(cluster, settings.budget_s, lambda: driver.status.problem)
        _await_acknowledgement(cluster, driver, before.t_us)
        after = Moment(now_us(), children_seconds(), seconds_of(driver.pid))
        driver.stop_writing()
        let_pass(cluster, 0.5, lambda: driver.status.problem)
        driver.close()
    finally:
        cluster.close()
    lines = (folder.path / "history.jsonl").read_bytes().splitlines()
    acked = _latencies(map(decode, lines))
    took_us = sorted(took for at, took in acked if before.t_us <= at < after.t_us)
    if not took_us:
        raise FloodmarkError(f"{system.name}: no send was acknowledged during the measurement")
    seconds = (after.t_us - before.t_us) / 1e6
    return Load(
        flush=flush,
        clients=clients,
        hub=links != NO_LINKS,
        batches_s=round(len(took_us) / seconds, 1),
        records_s=round(len(took_us) / seconds * settings.batch),
        p50_ms=round(took_us[len(took_us) // 2] / 1000, 3),
        p99_ms=round(took_us[len(took_us) * 99 // 100] / 1000, 3),
        start_ms=round((acked[0][0] - began_us) / 1000, 1),
        cpu_ms=round((after.used_s - before.used_s) / len(took_us) * 1000, 4),
        clients_core=round((after.clients_s - before.clients_s) / seconds, 2),
    )


def _await_acknowledgement(cluster: ClusterUnderTest, driver: RunClients, since_us: int) -> None:
    """Return when something was acknowledged since `since_us`, late on a busy machine."""
    deadline = time.monotonic() + FIRST_ACK_S
    acked: int | None = None
    while time.monotonic() < deadline:
        status = driver.status
        if acked is None and status.t_us > since_us:
            acked = status.acked
        if acked is not None and status.acked > acked:
            return
        let_pass(cluster, _LOOK_S, lambda: driver.status.problem)


class Moment(NamedTuple):
    """A time, and the processor seconds of all children, and of the clients, until then."""

    t_us: int
    used_s: float
    clients_s: float


def judge_a_run(store: Path, settings: BenchRequest, progress: Progress) -> Judging:
    """Make one whole run with faults, judge it as `floodmark run` does, and build its page."""
    schedule, on = requested(RunRequest(seed=1, time_limit=settings.judged_s))
    run = Run(RunOrder(schedule, on, "judged", store), progress=progress, interrupts=Interrupts())
    spark = SparkSoon(run.folder.path / "output" / "spark.txt")
    run.execute(on_storm=lambda: get_ready(spark, schedule))
    progress.phase("judging")
    began_us = now_us()
    (result,) = judge([run.folder.path], spark, progress.note)
    ended_us = now_us()
    build_page(run.folder.path, progress.note)
    page_us = now_us()
    operations = sum(1 for line in (run.folder.path / "history.jsonl").open()) // 2
    seconds = (ended_us - began_us) / 1e6
    return Judging(
        storm_s=settings.judged_s,
        operations=operations,
        verdict=result.verdict,
        last_op_to_verdict_s=round((ended_us - run.last_op_us) / 1e6, 2),
        page_s=round((page_us - ended_us) / 1e6, 2),
        check_s=round(seconds, 2),
        operations_s=round(operations / seconds),
    )


def table(figures: Figures) -> str:
    """Format the figures as a text table."""
    settings = figures.settings
    lines = [
        f"3 brokers up and first acknowledgement: {figures.start_ms:.0f} ms (median)",
        f"RF 3, acks=all, batches of {settings.batch} records of {settings.record_bytes} B, "
        f"{settings.budget_s:g} s each:",
        *as_table(
            (
                "flush",
                "clients",
                "hub",
                "batches/s",
                "records/s",
                "p50 ms",
                "p99 ms",
                "client core",
            ),
            (
                (
                    load.flush,
                    f"{load.clients}",
                    "yes" if load.hub else "no",
                    f"{load.batches_s:,.0f}",
                    f"{load.records_s:,.0f}",
                    f"{load.p50_ms:.2f}",
                    f"{load.p99_ms:.2f}",
                    f"{load.clients_core:.0%}",
                )
                for load in figures.loads
            ),
        ),
    ]
    lines.append("client core: what the process of the clients took of one core")
    lines.append(f"the link hub adds {figures.hub_added_ms:.2f} ms to the median of one client")
    if (judging := figures.judging) is not None:
        lines.append(
            f"a storm of {judging.storm_s:g} s: {judging.last_op_to_verdict_s:.1f} s from the last "
            f"operation to the verdict ({judging.verdict}), of which the checker "
            f"{judging.check_s:.1f} s for {judging.operations:,} operations "
            f"({judging.operations_s:,.0f}/s), and {judging.page_s:.1f} s more to the page"
        )
    return "\n".join(lines)


def let_pass(cluster: ClusterUnderTest, seconds: float, problem: Callable[[], str]) -> None:
    """Wait while the cluster works without faults. Raises FloodmarkError when a process ends, or
    when `problem` returns a sentence."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        cluster.poll()
        if ended := cluster.ended():
            raise FloodmarkError(f"the process of {ended[0]} ended during the measurement")
        if cluster.problems:
            raise FloodmarkError(cluster.problems[0].sentence)
        if sentence := problem():
            raise FloodmarkError(sentence)
        time.sleep(_LOOK_S)


def _latencies(ops: Iterable[Op]) -> list[tuple[int, int]]:
    """Return when each send was acknowledged, and how long that took."""
    invoked: dict[int, int] = {}
    acked: list[tuple[int, int]] = []
    for op in ops:
        if op.f == "send" and op.type == "invoke":
            invoked[op.op] = op.t_us
        elif op.f == "send" and op.type == "ok":
            acked.append((op.t_us, op.t_us - invoked[op.op]))
    return acked
