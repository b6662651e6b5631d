"""Kills the harness of many runs on disks in user space at random instants, and looks what is left.

    python -m tests.support.disk_kill_campaign --times 50

Each run has three nodes of a trial system and a row of power cuts. The instant is drawn from the
whole life of the run. Afterwards there must be no process of it, no mount of its folder in any
namespace, and no file outside its run folder.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import psutil

from harness.systems.disks import USER_SPACE
from nemesis.faults import PowerCut
from nemesis.formats.schedule import Cluster, Schedule, Workload
from tests.support import running_harness, trial_adapters
from tests.support.running_harness import descendants, lives
from tests.support.waiting import until

SCHEDULE = Schedule(
    cluster=Cluster(partitions=1, replication_factor=1, min_isr=1),
    workload=Workload(seed=3, clients=2, consumers=1, rate=20, batch=1, duration_ms=3_000),
    faults=tuple(PowerCut(on=f"n{n}", at_ms=600 * n, for_ms=300) for n in (1, 2, 3)),
)
SYSTEM = f"{trial_adapters.__name__}:Trial"
LIFE_S = 12.0
"""From the first process to the end of a run, about."""
GONE_S = 20.0


def mounts(folder: Path) -> list[str]:
    """The mounts below a folder that any process sees."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{name}/mountinfo").read_text().splitlines()
            found += [line for line in lines if str(folder) in line]
    return found


def temporary() -> set[str]:
    """What is in the folder for temporary files."""
    return set(os.listdir(tempfile.gettempdir()))


def once(rng: random.Random, folder: Path) -> str:
    """One run; "clean", "over" if it ended before the instant, or what is left."""
    words = ("--system", SYSTEM, "--disk", USER_SPACE, "--no-report", "--json")
    instant_s = rng.random() * LIFE_S
    harness = running_harness.start(folder, SCHEDULE, *words)
    with contextlib.suppress(subprocess.TimeoutExpired):
        harness.wait(instant_s)
        harness.communicate()
        return "over"
    below = descendants(harness.pid)
    os.kill(harness.pid, signal.SIGKILL)
    harness.communicate(timeout=GONE_S)
    left = [psutil.Process(pid) for pid in below if lives(pid)]
    if remaining := psutil.wait_procs(left, timeout=GONE_S)[1]:
        return f"processes: {[p.cmdline() for p in remaining if p.is_running()]}"
    with contextlib.suppress(AssertionError):
        until(lambda: not mounts(folder))
    if found := mounts(folder):
        return f"mounts: {found}"
    outside = {path.name for path in folder.iterdir()} - {"schedule.json", "store"}
    return f"files: {outside}" if outside else "clean"


def main() -> int:
    """Kill, print a table; exit code 1 if anything was left."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=50)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    before = {name for name in temporary() if name.startswith("floodmark")}
    number = done = 0
    while done < given.times:
        with tempfile.TemporaryDirectory(prefix="floodmark-disks-") as place:
            result = once(random.Random(number), Path(place))
        number += 1
        done += result != "over"
        counts[result] += 1
        sys.stdout.write(f"{number}: {result}\n")
        sys.stdout.flush()
    after = {name for name in temporary() if name.startswith("floodmark")}
    sys.stdout.write(f"{dict(counts)}, new in the folder for temporary files: {after - before}\n")
    return int(bool(set(counts) - {"clean", "over"}))


if __name__ == "__main__":
    raise SystemExit(main())
