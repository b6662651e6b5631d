"""Kills a part of many runs at random instants, and counts the verdicts that blame the system.

    python -m tests.support.kill_campaign --times 50 --parts hub,clients,v1,n1,harness,jvm

Each run has one broker and one voter, and a storm of a second whose only fault comes at its end.
The instant is drawn from the whole life of the part. A run that was over before the part was there,
or before the instant came, is repeated. With `--table FILE` each result is a line of the file, with
the instant and the processor time of the run, and what the file has is not done again. A result is
wrong unless it names what was killed:

* hub, clients, a voter, a broker: exit code 2, with the problem of that kind first in run.json; or
  70 while the cluster starts;
* the harness: `floodmark check` says unknown, and no process is left;
* the JVM: the verdict is valid, judged in the process of the command.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil

from checker.engine.local import check_run
from checker.formats.verdict import Verdict
from harness.runs.judge import IN_PROCESS_VARIABLE
from nemesis.faults import Pause
from nemesis.formats.schedule import Cluster, Schedule, Workload
from tests.support.paths import ROOT
from tests.support.running_harness import FAST, descendants, lives, part, run_folder

STORM_MS = 1_000
SCHEDULE = Schedule(
    cluster=Cluster(brokers=1, replication_factor=1, min_isr=1, partitions=1, timings=FAST),
    workload=Workload(
        seed=3, clients=2, consumers=1, rate=30, timeout_ms=500, duration_ms=STORM_MS
    ),
    faults=(Pause(on="n1", at_ms=800, for_ms=100),),
)
KINDS = {"hub": "hub-ended", "clients": "clients-ended", "v1": "node-ended", "n1": "node-ended"}
LIMIT_S = 600.0
"""By the clock, which says little on a busy machine: what a run costs is in the table."""
LOOK_S = 0.01
MOST_TRIES = 5
NAMED, NEVER = "named", "instant never came"


def start(folder: Path, *, spark: bool) -> subprocess.Popen[str]:
    """Start a run whose store is in `folder`."""
    file = folder / "schedule.json"
    file.write_bytes(SCHEDULE.to_json())
    words = ["run", "--schedule", str(file), "--name", "test", "--no-report", "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "harness.cli", *words, *([] if spark else ["--no-spark"])],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # So short a run would be judged without Spark.
        env=os.environ | {"PYTHONPATH": str(ROOT), IN_PROCESS_VARIABLE: "0"},
    )


def find(harness: subprocess.Popen[str], name: str) -> int:
    """The process to kill, 0 while there is none."""
    if name == "harness":
        return harness.pid if part(harness.pid, "n1") else 0
    if name == "jvm":
        for child in descendants(harness.pid):
            try:
                # Spark's launcher, which only prints a command line, is a JVM too.
                if b"deploy.SparkSubmit" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return child
            except OSError:
                continue
        return 0
    return part(harness.pid, name)


@dataclass(frozen=True)
class Ran:
    """What came of one run: "" if the instant did not come, when it was, and how long the part
    lived."""

    result: str
    instant_s: float
    lived_s: float


def once(name: str, rng: random.Random, folder: Path, life_s: float) -> Ran:
    """One run."""
    harness = start(folder, spark=name == "jvm")
    began = 0.0
    instant_s = rng.random() * life_s
    killed = pid = 0
    below: list[int] = []
    end_s = time.monotonic() + LIMIT_S
    while harness.poll() is None and time.monotonic() < end_s:
        if not began:
            # A process that ends while they are listed is not the one that is looked for.
            with contextlib.suppress(OSError):
                pid = find(harness, name)
            began = time.monotonic() if pid else 0.0
        elif not lives(pid):
            break
        if began and time.monotonic() - began >= instant_s:
            below = descendants(harness.pid)
            os.kill(pid, signal.SIGKILL)
            killed = pid
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            harness.wait(LOOK_S)
    lived_s = time.monotonic() - began if began else 0.0
    out, err = harness.communicate(timeout=LIMIT_S)
    result = ""
    if killed:
        result = _judge(name, harness.returncode, out, err, run_folder(folder), below)
    return Ran(result, instant_s, lived_s)


def _judge(name: str, code: int, out: str, err: str, folder: Path, below: list[int]) -> str:
    """ "named", or what is wrong."""
    if "Traceback" in out + err:
        return f"a traceback: {err[-300:]}"
    if name == "harness":
        left = [psutil.Process(pid) for pid in below if lives(pid)]
        if psutil.wait_procs(left, timeout=10)[1]:
            return "processes are left"
        if json.loads((folder / "run.json").read_text()).get("seal"):
            return ""  # Nothing of the run was left to do.
        verdict = check_run(folder).verdict
        return NAMED if verdict is Verdict.UNKNOWN else f"judged {verdict}"
    if code == 70 and name != "jvm":
        return NAMED if "ended" in err or "hub" in err else f"70: {err[-300:]}"
    if not out:
        return f"no result, code {code}: {err[-300:]}"
    result = json.loads(out)["result"]
    if name == "jvm":
        return NAMED if result["verdict"] == "valid" else result["sentence"]
    problems = json.loads((folder / "run.json").read_text())["problems"]
    first = problems[0]["kind"] if problems else "no problem"
    if (code, result["verdict"], first) == (2, "unknown", KINDS[name]):
        return NAMED
    return f"{result['verdict']}, {first}: {result['sentence']}"


def main() -> int:
    """Kill, print a table; exit code 1 if a result was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--parts", default="hub,clients,v1,n1,harness,jvm")
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    done = _read(given.table)
    parts = given.parts.split(",")
    lives_s = {name: _life_s(name) for name in parts}
    for number in range(given.times):
        for name in parts:
            if (name, number) in done:
                continue
            rng = random.Random(f"{name} {number}")
            before_s = _used_s()
            for _ in range(MOST_TRIES):
                with tempfile.TemporaryDirectory(prefix="floodmark-kill-") as place:
                    ran = once(name, rng, Path(place), lives_s[name])
                if ran.result:
                    break
                lives_s[name] = max(1.0, 0.5 * (lives_s[name] + ran.lived_s))
            done[name, number] = " ".join(ran.result.split()) or NEVER
            line = (
                f"{name} {number} after {ran.instant_s:.2f} s, {_used_s() - before_s:.0f} s used: "
                f"{done[name, number]}\n"
            )
            sys.stdout.write(line)
            sys.stdout.flush()
            if given.table:
                with given.table.open("a") as table:
                    table.write(line)
    counts: dict[str, Counter[str]] = {}
    for (name, _), result in done.items():
        counts.setdefault(name, Counter())[result] += 1
    for name, found in counts.items():
        sys.stdout.write(f"{name:10} {dict(found)}\n")
    return int(any(result not in (NAMED, NEVER) for result in done.values()))


def _life_s(name: str) -> float:
    """How long the part lives when nobody kills it."""
    with tempfile.TemporaryDirectory(prefix="floodmark-kill-") as place:
        return max(1.0, once(name, random.Random(1), Path(place), math.inf).lived_s)


def _read(table: Path | None) -> dict[tuple[str, int], str]:
    """What a table has already."""
    found = {}
    for line in table.read_text().splitlines() if table and table.exists() else []:
        about, result = line.split(": ", 1)
        name, number = about.split()[:2]
        found[name, int(number)] = result
    return found


def _used_s() -> float:
    """The processor time of all runs that have ended, with all that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())
