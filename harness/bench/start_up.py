"""`floodmark bench start`: how long it takes until something happens.

Three brokers up to the first acknowledgement, first with the template process of this command still
to be started and then with it there; `floodmark --help`; and `floodmark run` up to its storm. Wall
clock and processor time: on a busy machine only the second says something.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.bench.broker import let_pass
from harness.bench.processor_time import family_seconds
from harness.formats.history import decode
from harness.formats.run_info import RunInfo
from harness.runs import run_folder
from harness.runs.clock import now_us
from harness.runs.program import program
from harness.runs.progress import Progress
from harness.systems.floodmark.system import SYSTEM
from harness.systems.interface import NO_LINKS
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.formats.errors import FloodmarkError
from node.formats.json_input import read_file

LONGEST_S: Final = 60.0
_LOOK_S: Final = 0.005
_RATE: Final = 20.0
"""Sends per second of the one client: the load after the first answer shall cost nothing."""


class StartUp(msgspec.Struct, frozen=True, kw_only=True):
    """One start: milliseconds of wall clock, and of processor time of all its processes."""

    what: str
    wall_ms: tuple[float, ...]
    cpu_ms: tuple[float, ...]


def run_start_bench(repeat: int, progress: Progress) -> list[StartUp]:
    """Measure each start `repeat` times. Raises FloodmarkError when something does not start."""
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
        store = Path(folder)
        progress.phase("three brokers, first with a template to be started", repeat)
        clusters = [_cluster(store, number) for number in range(repeat + 1)]
        progress.phase("floodmark --help")
        helps = [_command(["--help"], store) for _ in range(repeat)]
        progress.phase("floodmark run, up to its storm")
        runs = [_run_to_storm(store / f"run-{number}") for number in range(repeat)]
    return [
        _start("3 brokers to the first acknowledgement, without a template", clusters[:1]),
        _start("3 brokers to the first acknowledgement", clusters[1:]),
        _start("floodmark --help", helps),
        _start("floodmark run to its storm", runs),
    ]


def start_table(found: Sequence[StartUp]) -> str:
    """The figures for a person: medians, lowest and highest."""
    width = max(len(each.what) for each in found)
    lines = [f"{'':<{width}} {'wall ms':>22} {'processor ms':>22}"]
    lines += [
        f"{each.what:<{width}} {_range(each.wall_ms)} {_range(each.cpu_ms)}" for each in found
    ]
    return "\n".join(lines)


def _range(values: Sequence[float]) -> str:
    if not values:
        return f"{'-':>22}"
    ends = f"[{min(values):,.0f} to {max(values):,.0f}]"
    return f"{f'{statistics.median(values):,.0f} {ends}':>22}"


def _start(what: str, found: Sequence[tuple[float, float | None]]) -> StartUp:
    return StartUp(
        what=what,
        wall_ms=tuple(round(wall, 1) for wall, _ in found),
        cpu_ms=tuple(round(cpu, 1) for _, cpu in found if cpu is not None),
    )


def _cluster(store: Path, number: int) -> tuple[float, float]:
    """Three brokers, a voter and a client, up to the first acknowledgement."""
    workload = Workload(clients=1, consumers=0, rate=_RATE, batch=1)
    folder = run_folder.create(store, f"start-{number}")
    schedule = Schedule(cluster=Cluster(), workload=workload)
    began_us, used_s = now_us(), family_seconds()
    cluster = SYSTEM.launch(schedule, folder, links=NO_LINKS)
    try:
        driver = cluster.clients()
        cluster.start()
        driver.go()
        first_us, deadline = 0, time.monotonic() + LONGEST_S
        while not first_us:
            let_pass(cluster, _LOOK_S, lambda: driver.status.problem)
            first_us = _first_ack_us(folder.path / "history.jsonl")
            if time.monotonic() > deadline:
                raise FloodmarkError(f"nothing was acknowledged within {LONGEST_S:g} s")
        used_s = family_seconds() - used_s
        driver.close()
    finally:
        cluster.close()
    return (first_us - began_us) / 1000, 1000 * used_s


def _first_ack_us(history: Path) -> int:
    for line in history.read_bytes().splitlines(keepends=True):
        if b'"ok"' in line and line.endswith(b"\n"):
            return decode(line).t_us
    return 0


def _command(words: Sequence[str], folder: Path) -> tuple[float, float]:
    """A command of ours from its start to its end."""
    before = os.times()
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", *words],
        cwd=folder,
        env=_environment(),
        capture_output=True,
        timeout=LONGEST_S,
    )
    wall = time.monotonic() - began
    after = os.times()
    if done.returncode != 0:
        raise FloodmarkError(f"{program()} {' '.join(words)} ended with {done.returncode}")
    cpu = after.children_user + after.children_system
    return 1000 * wall, 1000 * (cpu - before.children_user - before.children_system)


def _run_to_storm(folder: Path) -> tuple[float, None]:
    """`floodmark run` with faults, up to the begin of its storm. What its processes use of the
    processor by then is not known."""
    folder.mkdir()
    words = ["run", "--time-limit", "1", "--seed", "1", "--no-report", "--quiet", "--store", "."]
    began_us = now_us()
    subprocess.run(
        [sys.executable, "-m", "harness.cli", *words],
        cwd=folder,
        env=_environment(),
        capture_output=True,
        timeout=2 * LONGEST_S,
    )
    (info,) = folder.rglob("run.json")
    return (read_file(info, RunInfo).phases.storm_us - began_us) / 1000, None


def _environment() -> dict[str, str]:
    """Ours; the command is that of these very sources."""
    return os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent)}
