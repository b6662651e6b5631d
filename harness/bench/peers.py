"""`floodmark bench peers`: our brokers in one run with NATS, Redis and etcd.

Every system is loaded by its own client through the same harness; each client has one record of 100
bytes in flight. The systems take turns, and synced appends to the same disk are measured in
between, so that a busy period of the machine affects all of them."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.bench.broker import Load, measure_system
from harness.bench.frame import as_table
from harness.bench.requests import BenchRequest, PeersBench
from harness.runs.progress import Progress
from harness.systems import registry
from harness.systems.interface import System
from node.formats.errors import FloodmarkError, UsageError

RECORD_BYTES: Final = 100
_SYNCS: Final = 200


class MeasuredSystem(msgspec.Struct, frozen=True, kw_only=True):
    """A system in one configuration."""

    label: str
    system: str
    settings: dict[str, str] = {}


PEERS: Final = (
    MeasuredSystem(label="floodmark, sync", system="floodmark"),
    MeasuredSystem(label="NATS, sync always", system="nats", settings={"sync": "always"}),
    MeasuredSystem(label="NATS, default", system="nats"),
    MeasuredSystem(
        label="Redis, always, WAIT 2", system="redis", settings={"fsync": "always", "wait": "2"}
    ),
    MeasuredSystem(label="Redis, everysec", system="redis"),
    MeasuredSystem(label="etcd", system="etcd"),
)
REFERENCE: Final = "NATS, sync always"


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one system under one load: acknowledged records per second, and p50 and p99 in
    ms, of each round; the largest share of a core that its clients used."""

    label: str
    clients: int
    acked_s: tuple[float, ...]
    p50_ms: tuple[float, ...]
    p99_ms: tuple[float, ...]
    clients_core: float


class PeersFound(msgspec.Struct, frozen=True, kw_only=True):
    """All figures. `absent` has a sentence for each system that was not measured. `synced_us`: for
    each round the median time of appending one record to a file with fsync."""

    rates: tuple[Rates, ...]
    synced_us: tuple[float, ...]
    absent: tuple[str, ...]


def run_peers_bench(
    settings: PeersBench, progress: Progress, peers: Sequence[MeasuredSystem] = PEERS
) -> PeersFound:
    """Measure the installed systems alternately. Raises UsageError if none is installed."""
    present, absent = _present(peers)
    if not present:
        raise UsageError(f"there is no system to measure: {'; '.join(absent)}")
    loads: dict[tuple[str, int], list[Load]] = {}
    synced_us = []
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        store = Path(folder)
        for number in range(settings.rounds):
            for peer, system in present:
                for clients in settings.clients:
                    turn = f"{peer.label}, {clients} clients, {number + 1}/{settings.rounds}"
                    progress.phase(turn, settings.budget_s)
                    try:
                        load = _measured(store, system, settings, clients)
                    except FloodmarkError as error:
                        absent.append(f"{turn}: {error}")
                        continue
                    loads.setdefault((peer.label, clients), []).append(load)
                synced_us.append(_synced_append_us(store))
    return PeersFound(
        rates=tuple(_rates(label, clients, each) for (label, clients), each in loads.items()),
        synced_us=tuple(synced_us),
        absent=tuple(absent),
    )


def _present(
    peers: Sequence[MeasuredSystem],
) -> tuple[list[tuple[MeasuredSystem, System]], list[str]]:
    present, absent = [], []
    for peer in peers:
        try:
            present.append((peer, registry.find(peer.system, peer.settings)))
        except FloodmarkError as error:
            absent.append(f"{peer.label}: {error}")
    return present, absent


def _measured(store: Path, system: System, settings: PeersBench, clients: int) -> Load:
    wanted = BenchRequest(
        budget_s=settings.budget_s, batch=1, record_bytes=RECORD_BYTES, judged_s=0.0
    )
    return measure_system(store, system, wanted, "sync", clients)


def _synced_append_us(folder: Path) -> float:
    took = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_SYNCS):
            began_ns = time.perf_counter_ns()
            os.write(file.fileno(), bytes(RECORD_BYTES))
            os.fdatasync(file.fileno())
            took.append(time.perf_counter_ns() - began_ns)
    return round(statistics.median(took) / 1000, 1)


def _rates(label: str, clients: int, loads: Sequence[Load]) -> Rates:
    return Rates(
        label=label,
        clients=clients,
        acked_s=tuple(load.batches_s for load in loads),
        p50_ms=tuple(load.p50_ms for load in loads),
        p99_ms=tuple(load.p99_ms for load in loads),
        clients_core=max(load.clients_core for load in loads),
    )


def peers_table(found: PeersFound) -> str:
    """Format medians, ranges, and rates relative to NATS with fsync as a text table."""
    reference = {
        each.clients: statistics.median(each.acked_s)
        for each in found.rates
        if each.label == REFERENCE
    }
    lines = [
        f"3 nodes, records of {RECORD_BYTES} B, one under way per client; median [lowest to "
        "highest] of the rounds:",
        *as_table(
            ("system", "clients", "acked/s", "p50 ms", "p99 ms", "client core", "x NATS"),
            (_cells(each, reference.get(each.clients)) for each in found.rates),
        ),
    ]
    lines.append("client core: what the process of the clients took of one core, at most")
    lines.append(f"synced append (fdatasync): {_with_range(found.synced_us)} us")
    lines += [f"not measured: {sentence}" for sentence in found.absent]
    return "\n".join(lines)


def _cells(each: Rates, reference: float | None) -> tuple[str, ...]:
    rate = statistics.median(each.acked_s)
    return (
        each.label,
        f"{each.clients}",
        _with_range(each.acked_s),
        f"{statistics.median(each.p50_ms):.2f}",
        f"{statistics.median(each.p99_ms):.2f}",
        f"{each.clients_core:.0%}",
        f"{rate / reference:.2f}" if reference else "-",
    )


def _with_range(values: Iterable[float]) -> str:
    ordered = sorted(values)
    if not ordered:
        return "-"
    return f"{statistics.median(ordered):,.0f} [{ordered[0]:,.0f} to {ordered[-1]:,.0f}]"
