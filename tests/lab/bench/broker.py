"""Measures what broker, link hub and judging cost on this machine.

Every figure comes from real processes and from the history of the clients; no fault is injected.
Producers send as fast as they get answers, each with one batch in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from harness.cli.common import print_table
from harness.formats.history import Op, decode
from harness.runs.clock import now_us
from harness.runs.interrupts import Interrupts
from harness.runs.judge import SparkSoon, build_page, get_ready, judge
from harness.runs.options import requested
from harness.runs.progress import Progress
from harness.runs.requests import RunRequest
from harness.runs.run import Run, RunOrder
from harness.systems import registry
from harness.systems.interface import NO_LINKS
from harness.systems.setup import Resolved
from nemesis.formats import schedule as schedules
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.formats.errors import FloodmarkError
from node.formats.owned_folder import OwnedFolder

CLIENTS: Final = (1, 8, 64)
WARM_UP_S: Final = 1.0

Flush = Literal["sync", "async"]


class Load(NamedTuple):
    """The load to measure, `seconds` for each way to flush and each number of clients."""

    batch: int
    record_bytes: int
    seconds: float


class LoadFigures(NamedTuple):
    """The measurements of one cluster under one load. The rate is of acknowledged batches."""

    flush: Flush
    clients: int
    batches_s: float
    p50_ms: float
    p99_ms: float


def run_loads(load: Load) -> list[LoadFigures]:
    """Measure each cluster alone. Raises FloodmarkError if one does not start."""
    ways: tuple[Flush, ...] = ("sync", "async")
    with OwnedFolder() as folder:
        return [measure(Path(folder), load, way, count) for way in ways for count in CLIENTS]


def measure(store: Path, load: Load, flush: Flush, clients: int) -> LoadFigures:
    """Run a storm without faults. Return rate and latencies of its clients."""
    schedule = Schedule(
        cluster=Cluster(flush=flush),
        workload=Workload(
            clients=clients,
            consumers=0,
            rate=0,
            batch=load.batch,
            payload_bytes=load.record_bytes,
            duration_ms=round((WARM_UP_S + load.seconds) * 1000),
        ),
    )
    schedules.check(schedule, source="options")
    system = registry.find(registry.DEFAULT)
    on = Resolved(system, NO_LINKS, system.disk_form(None))
    run = executed(RunOrder(schedule, on, f"{flush}-{clients}", store))
    began_us = run.info.phases.storm_us + round(WARM_UP_S * 1e6)
    ended_us = run.info.phases.heal_us
    lines = (run.folder.path / "history.jsonl").read_bytes().splitlines()
    acked = _latencies(map(decode, lines))
    took_us = sorted(took for at, took in acked if began_us <= at < ended_us)
    if not took_us:
        raise FloodmarkError("no send was acknowledged during the measurement")
    return LoadFigures(
        flush=flush,
        clients=clients,
        batches_s=len(took_us) / (ended_us - began_us) * 1e6,
        p50_ms=took_us[len(took_us) // 2] / 1000,
        p99_ms=took_us[len(took_us) * 99 // 100] / 1000,
    )


def executed(order: RunOrder, on_storm: Callable[[], None] = lambda: None) -> Run:
    """Return a run after its end. Raises FloodmarkError if it had a problem."""
    run = Run(order, progress=Progress(quiet=True), interrupts=Interrupts())
    run.execute(on_storm)
    if run.info.problems:
        raise FloodmarkError(run.info.problems[0].sentence)
    return run


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


def print_loads(load: Load, found: Sequence[LoadFigures]) -> None:
    """Print the figures of all loads as a table."""
    print(
        f"RF 3, acks=all, batches of {load.batch} records of {load.record_bytes} B, "
        f"{load.seconds:g} s each:"
    )
    rows = (
        (
            each.flush,
            f"{each.clients}",
            f"{each.batches_s:,.0f}",
            f"{each.batches_s * load.batch:,.0f}",
            f"{each.p50_ms:.2f}",
            f"{each.p99_ms:.2f}",
        )
        for each in found
    )
    titles = ("flush", "clients", "batches/s", "records/s", "p50 ms", "p99 ms")
    print_table(titles, rows, json=False)


def judge_a_run(storm_s: float) -> str:
    """Make one whole run with faults, judge it as `floodmark run` does, and build its page. Return
    a sentence about the time from its last operation to verdict and page."""
    schedule, on = requested(RunRequest(seed=1, time_limit=storm_s))
    note = Progress(quiet=True).note
    with OwnedFolder() as store:
        spark = SparkSoon(Path(store) / "spark.txt")
        order = RunOrder(schedule, on, "judged", Path(store))
        run = executed(order, lambda: get_ready(spark, schedule))
        folder = run.folder.path
        (result,) = judge([folder], spark, note)
        judged_us = now_us()
        build_page(folder, note)
        page_us = now_us()
        operations = sum(1 for _ in (folder / "history.jsonl").open()) // 2
    return (
        f"a storm of {storm_s:g} s, {operations:,} operations: "
        f"{(judged_us - run.last_op_us) / 1e6:.2f} s from the last operation to the verdict "
        f"({result.verdict}), and {(page_us - judged_us) / 1e6:.2f} s more to the page"
    )
