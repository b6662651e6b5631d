"""Kills and stops every process of many runs, in every phase, on good and on failing stores.

    python -m tests.lab kill_campaign --times 300 --table FILE [--first N]

Each number is one run, and draws: the form of the run, a phase and an instant in it, what happens
to the store at that instant, SIGKILL or SIGSTOP, and which process gets it. The processes are those
that the process tree of the run has at that instant, and the harness itself, so a new kind of
process is part of the campaign without being named here. With `--table` each result is a line of
the file, and numbers that the file has are not run again.

A result is wrong if the system is blamed (exit code 1), if a run is valid though a process that it
needed was gone or stood still, if a problem has no name, if a traceback is printed, if the run
hangs, or if it leaves a process, a mount or a file outside its folder. See `verdict_of`. As root
the store can also be full, read-only or gone; for anyone else it is always good."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from checker.engine.local import check_run
from checker.formats.verdict import Verdict
from harness.formats.seal import FILE
from harness.runs.judge import IN_PROCESS_VARIABLE
from harness.systems.disks import USER_SPACE
from nemesis.disk.control import why_impossible
from nemesis.faults import Pause, PowerCut
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.formats.owned_folder import OwnedFolder
from tests.lab.stores import STORES, Store, can_mount, store_of
from tests.support.paths import ROOT
from tests.support.running_harness import FAST, descendants, lives, run_folder
from tests.support.waiting import until

PHASES: Final = (
    "starting the cluster",
    "storm",
    "recovery",
    "letting writers finish",
    "final reads",
    "stopping the cluster",
    "reading the replicas' logs",
    "judging",
)
LATEST_S: Final = {"starting the cluster": 1.5, "storm": 0.9, "recovery": 1.5, "judging": 1.0}
"""How long into a phase the instant is at most; in the short phases it is at once."""
FORMS: Final = ("plain", "plain", "disk", "disk", "proxy", "spark")
STOPPED_S: Final = 1.5
"""The harness itself is resumed after so long: no process of the run can do that."""
LIMIT_S: Final = 240.0
GONE_S: Final = 20.0
OWN_NAMES: Final = {"schedule.json", "store"}
SAID: Final = "said.txt"
"""The file beside the store with what the harness writes to standard error."""
KINDS: Final = {
    "hub": {"hub-ended"},
    "links": {"hub-ended"},
    "clients": {"clients-ended"},
    "disk": {"disk-ended"},
    "node": {"node-ended"},
    "logs": {"log-not-read"},
}
"""What the end of a process is called. Without the others, such as the template and the guardian, a
run goes on: nodes are started, and evidence is judged, in another way."""
OF_STORES: Final = {
    *("disk-full", "disk-failed", "not-saved", "clients-ended", "hub-ended", "log-not-read")
}
NAMED, FINE, NEVER = "named", "fine", "instant never came"


@dataclass(frozen=True)
class Case:
    """A drawn case of one number. `which` draws a process; a `role` names one instead."""

    form: str
    phase: str
    delay_s: float
    store: str
    signal: signal.Signals
    which: float = 0.9
    role: str = ""


def draw(number: int) -> Case:
    rng = random.Random(f"kill {number}")
    form = rng.choice(FORMS)
    phase = rng.choice(PHASES)
    store = rng.choice(STORES) if rng.random() < 0.3 and can_mount() else "good"
    return Case(
        form="plain" if form == "disk" and why_impossible() else form,
        phase=phase,
        delay_s=rng.random() * LATEST_S.get(phase, 0.05),
        store=store,
        signal=rng.choice((signal.SIGKILL, signal.SIGSTOP)),
        which=rng.random(),
    )


def schedule_of(form: str) -> Schedule:
    """Return a short storm with one fault, late in it."""
    fault = PowerCut if form == "disk" else Pause
    brokers = 3 if form == "proxy" else 1
    cluster = Cluster(
        brokers=brokers,
        replication_factor=brokers,
        min_isr=brokers // 2 + 1,
        partitions=1,
        timings=FAST,
    )
    return Schedule(
        cluster=cluster,
        workload=Workload(
            seed=3, clients=2, consumers=1, rate=30, batch=1, timeout_ms=500, duration_ms=1_000
        ),
        faults=(fault(on="n1", at_ms=700, for_ms=100),),
    )


def start(case: Case, folder: Path) -> subprocess.Popen[str]:
    """Start a run whose store is in `folder`."""
    file = folder / "schedule.json"
    file.write_bytes(schedule_of(case.form).to_json())
    words = ["run", "--schedule", str(file), "--name", "test", "--no-report", "--no-baseline"]
    if case.form == "proxy":
        words += ["--system", "pysyncobj"]
    if case.form == "disk":
        words += ["--disk", USER_SPACE]
    if case.form != "spark":
        words += ["--no-spark"]
    bound = {IN_PROCESS_VARIABLE: "0"} if case.which < 0.5 or case.form == "spark" else {}
    with (folder.parent / SAID).open("w") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "harness.cli", *words],
            cwd=folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=said,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | bound,
        )


def role_of(pid: int) -> str:
    """Return what a process of a run is: the name of its output file, or of its program."""
    with contextlib.suppress(OSError):
        output = Path(f"/proc/{pid}/fd/1").readlink()
        if output.suffix == ".txt" and output.parent.name == "output":
            return output.stem
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if any(b"node.runtime.template" in word for word in words):
            return "template"
        if any(b"resource_tracker" in word for word in words):
            return "resource_tracker"
        for word in words:
            if word.endswith(b".py"):
                return Path(word.decode()).name
        return Path(words[0].decode()).name
    return ""


def kind_of(role: str) -> str:
    """Return the key of `KINDS` for a role, "" if a run can do without it."""
    if role.startswith("disk-"):
        return "disk"
    if role[:1] in "nv" and role[1:].isdigit():
        return "node"
    return role if role in KINDS else ""


def begins(phase: str, said: Path, harness: subprocess.Popen[str]) -> float:
    """Wait until the harness says that a phase begins; return when, 0 if it never does."""

    def has_begun() -> bool:
        return f"\n{phase} ..." in f"\n{said.read_text(errors='replace')}"

    with contextlib.suppress(AssertionError):
        until(lambda: has_begun() or harness.poll() is not None)
    return time.monotonic() if has_begun() else 0.0


@dataclass
class Done:
    """The damage done to a run, and its result."""

    case: Case
    folder: Path
    role: str
    code: int | None
    out: str
    err: str
    left: list[str]


def once(case: Case, folder: Path, store: Store) -> Done | None:
    """Do one run; None if the instant never came."""
    harness, said = start(case, folder), folder.parent / SAID
    below: list[int] = []
    try:
        if not begins(case.phase, said, harness):
            assert harness.poll() != 64, said.read_text()
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            harness.wait(case.delay_s)
            return None
        below = descendants(harness.pid)
        target, role = choose(harness.pid, below, case)
        store.fail()
        try:
            os.kill(target, case.signal)
        except ProcessLookupError:
            if case.store == "good":
                return None  # Else the store alone has ended the run by now.
        if role == "harness" and case.signal == signal.SIGSTOP:
            threading.Event().wait(STOPPED_S)
            os.kill(target, signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            harness.wait(LIMIT_S)
        code = harness.poll()
        left = remaining(below, folder) if code is not None else []
        if case.store == "good":
            left += [path.name for path in folder.iterdir() if path.name not in OWN_NAMES]
    finally:
        for pid in (harness.pid, *descendants(harness.pid), *below):
            if harness.poll() is None or pid != harness.pid:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        assert harness.stdout is not None
        out = harness.stdout.read()
        harness.wait()
    err = said.read_text(errors="replace")
    return Done(case, folder, role, code, out, err, left)


def choose(harness: int, below: list[int], case: Case) -> tuple[int, str]:
    """Return a process of the run and its role; all roles that it has now are equally likely."""
    roles: dict[str, int] = {"harness": harness}
    for pid in below:
        if lives(pid) and (role := role_of(pid)):
            roles.setdefault(role, pid)
    role = case.role or sorted(roles)[int(case.which * len(roles))]
    return roles[role], role


def remaining(below: list[int], folder: Path) -> list[str]:
    """Return the processes and mounts that a run left behind."""
    found = []
    for pid in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    alive = psutil.wait_procs(found, timeout=GONE_S)[1]
    left = [f"process {role_of(each.pid)}" for each in alive if lives(each.pid)]
    with contextlib.suppress(AssertionError):
        until(lambda: not mounts(folder / "store"))
    return left + mounts(folder / "store")


def mounts(folder: Path) -> list[str]:
    """Return the mounts below a folder that any process sees."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{name}/mountinfo").read_text().splitlines()
            found += [line for line in lines if str(folder) in line]
    return found


def verdict_of(done: Done) -> str:
    """Return "named", "fine" (nothing that the run needed was gone), or what is wrong."""
    case, said = done.case, done.out + done.err
    if done.code is None:
        return "it hangs"
    if done.left:
        return f"left: {done.left}"
    if done.role == "harness" and case.signal == signal.SIGKILL:
        return _after_the_harness(done)
    if "Traceback" in said:
        return f"a traceback: {said[-300:]}"
    if done.code == 70:
        named = "floodmark: " in said and "unexpected" not in said
        named &= done.case.store != "full" or case.phase in (PHASES[0], PHASES[-1])
        return NAMED if named else f"70: {said[-300:]}"
    if done.code not in (0, 1, 2):
        return f"code {done.code}: {said[-300:]}"
    if done.code == 1:
        return f"invalid: {done.out[:300]} {done.err[-300:]}"
    if done.code == 0:
        return FINE if _was_not_needed(done) else f"valid: {done.out[:200]}"
    return _problem_of(done)


def _after_the_harness(done: Done) -> str:
    folder = run_folder(done.folder)
    if not (folder / "run.json").exists() or json.loads((folder / "run.json").read_text()).get(
        "seal"
    ):
        return FINE
    if done.case.store != "good":
        return FINE
    verdict = check_run(folder).verdict
    return NAMED if verdict is Verdict.UNKNOWN else f"the rest was judged {verdict}"


def _was_not_needed(done: Done) -> bool:
    """Return whether a run may be valid after what was done to it."""
    late = PHASES.index(done.case.phase) >= PHASES.index("stopping the cluster")
    kind = kind_of(done.role)
    if done.case.store != "good" and not late:
        return False
    if not kind or late:
        return True
    # The pause of the storm takes over a stop that it finds, and ends it.
    paused = (done.role, done.case.phase) == ("n1", "storm") and done.case.delay_s < 0.8
    return paused and done.case.form != "disk" and done.case.signal == signal.SIGSTOP


def _problem_of(done: Done) -> str:
    """Return "named" if the first problem of an unknown run is what was done to it."""
    file = run_folder(done.folder) / "run.json"
    try:
        problems = json.loads(file.read_text())["problems"]
    except (OSError, ValueError):
        return NAMED if done.case.store != "good" else f"no run.json: {done.out[:300]}"
    kinds = [each["kind"] for each in problems]
    expected = set(KINDS.get(kind_of(done.role), ()))
    if done.case.signal == signal.SIGSTOP:
        expected |= {"suspended", "too-busy"}
    if done.case.store != "good":
        expected |= OF_STORES
    if not kind_of(done.role):
        expected |= {"too-busy", "suspended"}
    if done.case.phase in ("stopping the cluster", "reading the replicas' logs"):
        # The process that reads them has no role while it begins.
        expected |= {"log-not-read"}
    if filled := done.case.store == "full" and done.case.phase != PHASES[-1]:
        expected = {"disk-full", *(KINDS.get(kind_of(done.role), ()))}
    if filled and not (file.with_name(FILE).exists() and "disk-full" in kinds):
        return f"not sealed, or another problem: {kinds}"
    if kinds and kinds[0] in expected:
        return NAMED
    if not kinds and "NOT-EXERCISED" in done.out and _was_not_needed(done):
        return FINE
    return f"{done.code}, {kinds}: {done.out[:300]}"


@contextlib.contextmanager
def place(case: Case) -> Iterator[tuple[Path, Store]]:
    """Make a folder whose store can fail as the case wants."""
    with OwnedFolder() as name, store_of(case.store, Path(name)) as store:
        yield store.folder, store


def run_number(number: int) -> tuple[str, str]:
    """Do the case of a number; return sentences on the damage and on the result."""
    return run_case(draw(number))


def run_case(case: Case) -> tuple[str, str]:
    """Do a case; return sentences on the damage and on the result."""
    with place(case) as (folder, store):
        done = once(case, folder, store)
        if done is None:
            return f"{case.form} {case.phase}", NEVER
        result = verdict_of(done)
    what = f"{case.form}, {case.phase} + {case.delay_s:.2f} s, store {case.store}"
    return f"{what}, {case.signal.name} {done.role}", " ".join(result.split())


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the experiment."""
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--table", type=Path, default=Path(os.devnull))


def run(given: argparse.Namespace) -> int:
    """Run the numbers that the table lacks; return 1 if a result was wrong."""
    given.table.touch()
    known = (line.split(": ", 1) for line in given.table.read_text().splitlines())
    done = {int(about.split()[0]): result for about, result in known}
    for number in sorted({*range(given.first, given.first + given.times)} - done.keys()):
        what, done[number] = run_number(number)
        with given.table.open("a") as table:
            for file in (sys.stdout, table):
                print(f"{number} {what}: {done[number]}", file=file, flush=True)
    counts = Counter(each if each in (NAMED, FINE, NEVER) else "wrong" for each in done.values())
    print(dict(counts))
    return int(counts["wrong"] > 0)
