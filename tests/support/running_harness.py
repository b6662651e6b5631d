"""A `floodmark run` that goes on while a test looks at it, signals it, or ends a part of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nemesis.formats.schedule import Cluster, Schedule, Timings, Workload
from tests.support.paths import ROOT
from tests.support.waiting import until

FAST = Timings(heartbeat_ms=100, session_ms=700, lag_ms=500)
SMALL = Cluster(partitions=2, timings=FAST)
CALM = Workload(seed=3, clients=4, consumers=2, rate=20, timeout_ms=1500, duration_ms=5_000)


def start(folder: Path, schedule: Schedule, *more: str) -> subprocess.Popen[str]:
    """Start `floodmark run` on a schedule, with its store in `folder`."""
    file = folder / "schedule.json"
    file.write_bytes(schedule.to_json())
    words = ["run", "--schedule", str(file), "--name", "test", "--no-spark", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "harness.cli", *words],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def run_folder(folder: Path) -> Path:
    return (folder / "store" / "test" / "latest").resolve()


def wait_until(is_so: Callable[[], bool], harness: subprocess.Popen[str]) -> None:
    """Wait for something to be seen; `harness` must go on running until then."""

    def seen() -> bool:
        assert harness.poll() is None, harness.communicate()
        return is_so()

    until(seen)


def problems(info: dict[str, Any]) -> list[str]:
    """The kinds of the problems in a run.json. What a busy machine adds is left out: it says that
    nothing can be concluded from what took too long, and the rest holds all the same."""
    return [each["kind"] for each in info["problems"] if each["kind"] != "too-busy"]


def acknowledged(folder: Path) -> int:
    """How many sends the running harness has on record as acknowledged."""
    try:
        lines = (run_folder(folder) / "history.jsonl").read_bytes()
    except OSError:
        return 0
    return lines.count(b'"type":"ok","f":"send"')


def descendants(pid: int) -> list[int]:
    """All processes that `pid` started, and theirs; threads and processes end meanwhile."""
    found = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                for child in (task / "children").read_text().split():
                    found += [int(child), *descendants(int(child))]
    except OSError:
        pass
    return found


def lives(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has buried yet does not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def part(pid: int, name: str) -> int:
    """The process below `pid` that writes to `output/NAME.txt` ("hub", "clients", a node); 0 while
    there is none."""
    for child in descendants(pid):
        try:
            if Path(f"/proc/{child}/fd/1").readlink().name == f"{name}.txt":
                return child
        except OSError:
            continue
    return 0
