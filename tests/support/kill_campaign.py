"""Kills a part of many runs at random instants, and counts the verdicts that blame the system.

    python -m tests.support.kill_campaign --times 50 --parts hub,clients,v1,n1,harness,jvm

Each run has one broker and one voter, and a storm of two seconds whose only fault comes at its end.
The instant is drawn from the whole life of the run. A run that was over before the part was there,
or before the instant came, is repeated. A result is wrong unless it names what was killed:

* hub, clients, a voter, a broker: exit code 2, with the problem of that kind first in run.json; or
  70 while the cluster starts;
* the harness: `floodmark check` says unknown, and no process is left;
* the JVM: the verdict is valid, judged in the process of the command.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from checker.engine.local import check_run
from checker.formats.verdict import Verdict
from nemesis.faults import Pause
from nemesis.formats.schedule import Cluster, Schedule, Workload
from tests.support.paths import ROOT
from tests.support.running_harness import FAST, descendants, lives, part, run_folder

STORM_MS = 2_000
SCHEDULE = Schedule(
    cluster=Cluster(brokers=1, replication_factor=1, min_isr=1, partitions=1, timings=FAST),
    workload=Workload(
        seed=3, clients=2, consumers=1, rate=30, timeout_ms=500, duration_ms=STORM_MS
    ),
    faults=(Pause(on="n1", at_ms=1_700, for_ms=100),),
)
KINDS = {"hub": "hub-ended", "clients": "clients-ended", "v1": "node-ended", "n1": "node-ended"}
LIMIT_S = 120.0
LOOK_S = 0.01


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
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def find(harness: subprocess.Popen[str], name: str) -> int:
    """The process to kill, 0 while there is none."""
    if name == "harness":
        return harness.pid if part(harness.pid, "n1") else 0
    if name == "jvm":
        for child in descendants(harness.pid):
            try:
                if b"java" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0]:
                    return child
            except OSError:
                continue
        return 0
    return part(harness.pid, name)


def once(name: str, rng: random.Random, folder: Path, life_s: float) -> tuple[str, float]:
    """One run; what came of it ("" if the instant did not come), and how long the part lived."""
    harness = start(folder, spark=name == "jvm")
    began = 0.0
    instant_s = rng.random() * life_s
    killed = pid = 0
    below: list[int] = []
    while harness.poll() is None:
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
    if not killed:
        return "", lived_s
    return _judge(name, harness.returncode, out, err, run_folder(folder), below), lived_s


def _judge(name: str, code: int, out: str, err: str, folder: Path, below: list[int]) -> str:
    """ "named", or what is wrong."""
    if "Traceback" in out + err:
        return f"a traceback: {err[-300:]}"
    if name == "harness":
        left = [psutil.Process(pid) for pid in below if lives(pid)]
        if psutil.wait_procs(left, timeout=10)[1]:
            return "processes are left"
        verdict = check_run(folder).verdict
        return "named" if verdict is Verdict.UNKNOWN else f"judged {verdict}"
    if code == 70 and name != "jvm":
        return "named" if "ended" in err or "hub" in err else f"70: {err[-300:]}"
    if not out:
        return f"no result, code {code}: {err[-300:]}"
    result = json.loads(out)["result"]
    if name == "jvm":
        return "named" if result["verdict"] == "valid" else result["sentence"]
    problems = json.loads((folder / "run.json").read_text())["problems"]
    first = problems[0]["kind"] if problems else "no problem"
    if (code, result["verdict"], first) == (2, "unknown", KINDS[name]):
        return "named"
    return f"{result['verdict']}, {first}: {result['sentence']}"


def main() -> int:
    """Kill, print a table; exit code 1 if a result was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--parts", default="hub,clients,v1,n1,harness,jvm")
    given = parser.parse_args()
    wrong = 0
    counts: dict[str, Counter[str]] = {name: Counter() for name in given.parts.split(",")}
    lives_s = dict.fromkeys(counts, 5.0)
    for number in range(given.times):
        for name, found in counts.items():
            rng = random.Random(f"{name} {number}")
            for _ in range(5):
                with tempfile.TemporaryDirectory(prefix="floodmark-kill-") as place:
                    result, lived_s = once(name, rng, Path(place), lives_s[name])
                if result:
                    break
                lives_s[name] = max(1.0, 0.5 * (lives_s[name] + lived_s))
            found[result or "instant never came"] += 1
            if result not in ("", "named"):
                wrong += 1
                sys.stdout.write(f"WRONG: {name} {number}: {result}\n")
            sys.stdout.write(f"{number} {name}: {result}\n")
            sys.stdout.flush()
    for name, found in counts.items():
        sys.stdout.write(f"{name:10} {dict(found)}\n")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
