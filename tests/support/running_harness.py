"""A `floodmark run` that goes on while a test looks at it, signals it, or ends a part of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.runs.interrupts import descendants
from nemesis.formats.schedule import Cluster, Schedule, Timings, Workload
from tests.support.paths import ROOT
from tests.support.waiting import until

FAST = Timings(heartbeat_ms=100, session_ms=700, lag_ms=500)
SMALL = Cluster(partitions=2, timings=FAST)
LONGEST_S = 900.0
"""For broken code: the longest command takes a tenth of it on a quiet machine."""
CALM = Workload(seed=3, clients=4, consumers=2, rate=20, timeout_ms=1500, duration_ms=5_000)


def command(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start a command of floodmark in a folder, without limits of time (`patience`)."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.patience", *words],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def start(folder: Path, schedule: Schedule, *more: str) -> subprocess.Popen[str]:
    """Start `floodmark run` on a schedule, with its store in `folder`."""
    file = folder / "schedule.json"
    file.write_bytes(schedule.to_json())
    return command(folder, "run", "--schedule", str(file), "--name", "test", "--no-spark", *more)


def told(folder: Path, *words: str, code: int = 0) -> Any:
    """Return what a command prints with `--json`; it must end with this exit code."""
    ended = command(folder, *words, "--json")
    out, err = ended.communicate(timeout=LONGEST_S)
    assert ended.returncode == code, out + err
    return json.loads(out)


def ran(folder: Path, *words: str, verdict: str = "valid") -> tuple[Path, dict[str, Any]]:
    """Run without Spark and page to a verdict; returns the run folder and the result."""
    code = {"valid": 0, "invalid": 1, "unknown": 2}[verdict]
    found = told(folder, *words, "--no-spark", "--no-report", "--quiet", code=code)
    assert found["result"]["verdict"] == verdict, found["result"]["sentence"]
    return folder / found["path"], found["result"]


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def events(folder: Path, node: str, name: str) -> list[dict[str, Any]]:
    return [line for line in lines(folder / "trace" / f"{node}.jsonl") if line["event"] == name]


def broken_properties(result: dict[str, Any]) -> set[str]:
    """Return the properties that a result says are broken."""
    return {each["property"] for each in result["properties"] if each["verdict"] == "invalid"}


def run_folder(folder: Path) -> Path:
    return (folder / "store" / "test" / "latest").resolve()


def wait_until(is_so: Callable[[], bool], harness: subprocess.Popen[str]) -> None:
    """Wait for something to be seen; `harness` must go on running until then."""

    def seen() -> bool:
        assert harness.poll() is None, harness.communicate()
        return is_so()

    until(seen)


def problems(info: dict[str, Any]) -> list[str]:
    """Return the kinds of the problems in a run.json."""
    return [each["kind"] for each in info["problems"]]


def acknowledged(folder: Path) -> int:
    """Count the sends that the running harness has recorded as acknowledged."""
    try:
        lines = (run_folder(folder) / "history.jsonl").read_bytes()
    except OSError:
        return 0
    return lines.count(b'"type":"ok","f":"send"')


def lives(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def part(pid: int, name: str) -> int:
    """Return the process below `pid` that writes to `output/NAME.txt` ("hub", "clients", a node); 0
    while there is none."""
    for child in descendants(pid):
        try:
            if Path(f"/proc/{child}/fd/1").readlink().name == f"{name}.txt":
                return child
        except OSError:
            continue
    return 0
