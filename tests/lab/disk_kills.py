"""Kills the harness of runs on disks in user space at every moment, and looks what is left.

    python -m tests.lab disk-kills --times 5

Each run has three nodes of a trial system and a row of power cuts. It is killed as soon as the
moment has come, which is seen in its files. Afterwards there must be no process of it, no mount of
its folder in any namespace, and no file outside its run folder.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from harness.systems.disks import USER_SPACE
from nemesis.faults import PowerCut
from nemesis.formats.schedule import Cluster, Schedule, Workload
from tests.support import running_harness, trial_adapters
from tests.support.running_harness import acknowledged, descendants, lives, run_folder
from tests.support.waiting import until

SCHEDULE: Final = Schedule(
    cluster=Cluster(partitions=1, replication_factor=1, min_isr=1),
    workload=Workload(seed=3, clients=2, consumers=1, rate=20, batch=1, duration_ms=3_000),
    faults=tuple(PowerCut(on=f"n{n}", at_ms=600 * n, for_ms=300) for n in (1, 2, 3)),
)
SYSTEM: Final = f"{trial_adapters.__name__}:Trial"
GONE_S: Final = 60.0


def mounts(folder: Path) -> list[str]:
    """Return the mounts below a folder that any process sees."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{name}/mountinfo").read_text().splitlines()
            found += [line for line in lines if str(folder) in line]
    return found


def written(file: str, text: bytes, times: int, folder: Path) -> bool:
    """Return whether a text stands in a file of the run so often."""
    try:
        return (run_folder(folder) / file).read_bytes().count(text) >= times
    except OSError:
        return False


MOMENTS: Final[dict[str, Callable[[Path], bool]]] = {
    "the run has a folder": lambda folder: (run_folder(folder) / "run.json").exists(),
    "a disk is mounted": lambda folder: bool(mounts(folder)),
    "the first acknowledgement": lambda folder: acknowledged(folder) > 0,
    "the first power cut": partial(written, "faults.jsonl", b'"inject"', 1),
    "the first disk is back": partial(written, "faults.jsonl", b'"heal"', 1),
    "the last power cut": partial(written, "faults.jsonl", b'"inject"', 3),
    "the final reads": partial(written, "history.jsonl", b'"final":true', 1),
    "the logs are read": lambda folder: any((run_folder(folder) / "logs").glob("*.jsonl")),
}


def once(moment: str, folder: Path) -> str:
    """Kill one run at a moment; returns "clean", or what is left."""
    words = ("--system", SYSTEM, "--disk", USER_SPACE, "--no-report", "--json")
    harness = running_harness.start(folder, SCHEDULE, *words)
    running_harness.wait_until(lambda: MOMENTS[moment](folder), harness)
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


def temporary() -> set[str]:
    """Return the names of our files in the folder for temporary files."""
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("floodmark")}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the campaign."""
    parser.add_argument("--times", type=int, default=5)


def run(given: argparse.Namespace) -> int:
    """Kill, print a table; the exit code is 1 if anything was left."""
    counts: Counter[str] = Counter()
    before = temporary()
    for moment in list(MOMENTS) * given.times:
        with tempfile.TemporaryDirectory(prefix="floodmark-disks-") as place:
            result = once(moment, Path(place))
        counts[result] += 1
        print(f"{moment}: {result}", flush=True)
    new = temporary() - before
    print(f"{dict(counts)}, new in the folder for temporary files: {new}")
    return int(bool(set(counts) - {"clean"}))
