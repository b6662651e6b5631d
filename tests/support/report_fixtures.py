"""Run folders for tests of pages: simulated runs, judged by the checker as any run is.

Each schedule is simulated once a process, and tests get copies. `storm` has kills, a pause, cuts,
a fault without a target and one that affects no message; with `broken=True` its brokers acknowledge
too early, and the isolated leader loses records. The other kinds are runs that go wrong in one way.
"""

from __future__ import annotations

import functools
import json
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from checker.engine.local import check_run
from checker.ingest.external_history import run_folder_of
from checker.story.story import write_story
from harness.formats.finding import EXPLANATION, Finding
from harness.formats.run_info import RunInfo
from harness.formats.seal import seal_run
from harness.replay.pages import bring_finding, make_baseline
from harness.search import findings
from harness.search.shrink import explain
from harness.search.worlds.outcome import run_simulated
from harness.sim.run import simulate
from nemesis import ready_made
from nemesis.formats import schedule as s
from tests.support.paths import lasting_folder

ZERO_US: Final = 1_100_000
"""Where the storm of a run of `STORM` begins."""
BROKERS: Final = ("n1", "n2", "n3")
LOST: Final = "no-lost-acknowledged-write"

_FILES: Final = Path(__file__).with_name("report_schedules")
STORM: Final = s.load(_FILES / "storm.json")
LEAST: Final = s.load(_FILES / "least.json")
DRAWN: Final = s.load(_FILES / "drawn.json")
"""What a search drew before it shrank it to `LEAST`: one fault more before, one after."""
HANGS: Final = s.load(_FILES / "hangs.json")


def us(seconds: float) -> int:
    """Return the moment that is so many seconds after the storm began."""
    return ZERO_US + round(seconds * 1e6)


def write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Write JSON lines, and make the folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.Encoder().encode_lines(lines))


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@functools.cache
def _cache() -> Path:
    """Return the folder of this process with one run of each schedule."""
    return lasting_folder("pages")


def run(folder: Path, schedule: s.Schedule) -> Path:
    """Write the simulated run of a schedule with its story, and return its folder."""
    kept = _cache() / schedule.digest()
    if not kept.exists():
        result = simulate(schedule, seed=schedule.workload.seed, stop_at="never", keep=kept)
        write_story(kept, result.checked)
    return Path(shutil.copytree(kept, folder))


def storm(folder: Path, *, broken: bool = False, judged: bool = True) -> Path:
    """Write a run of `STORM`, dated and named as a run of real processes is."""
    bugs = ("ack-before-isr",) if broken else ()
    run(folder, replace(STORM, cluster=replace(STORM.cluster, bugs=bugs)))
    name = f"{folder.parent.name}/{folder.name}"
    edit(
        folder / "run.json",
        run=name,
        world="real",
        replay=f"floodmark run --schedule store/{name}",
        epoch_us=1_767_268_800_000_000,
    )
    if not judged:
        (folder / "results.json").unlink()
        (folder / "story.json").unlink(missing_ok=True)
        shutil.rmtree(folder / "tables")
    return folder


def diverged(folder: Path) -> Path:
    """Write KIP-101's second scenario: n2 keeps records of its own; the promise allows losses."""
    return run(folder, ready_made.load("kip-101-scenario-2"))


def hanging(folder: Path) -> Path:
    """Write a run whose partition acknowledges nothing more after its faults are healed."""
    return run(folder, HANGS)


def crashed(folder: Path) -> Path:
    """Write a storm in which broker n3 ended by itself with code 70."""
    storm(folder)
    line = {"node": "n3", "incarnation": 1, "t_us": us(3), "code": 70, "by": "itself"}
    write_lines(folder / "exits.jsonl", [{**line, "expected": False}])
    (folder / "output" / "n3.txt").write_text("InvariantBroken: the log end fell back\n")
    seal_run(folder)
    write_story(folder, check_run(folder, write=True))
    return folder


def empty(folder: Path) -> Path:
    """Write a run whose cluster never came up: two JSON files and an empty history."""
    folder.mkdir(parents=True, exist_ok=True)
    schedule = s.Schedule(name="empty", workload=s.Workload(seed=1))
    (folder / "schedule.json").write_bytes(schedule.to_json())
    name = f"{folder.parent.name}/{folder.name}"
    info = RunInfo(run=name, state="finished", replay=f"floodmark run --schedule store/{name}")
    problem = {"kind": "not-healed", "sentence": "n2 could not be started: its port was taken"}
    (folder / "run.json").write_bytes(msgspec.json.encode(info))
    edit(folder / "run.json", phases={"start_us": ZERO_US}, problems=[problem])
    (folder / "history.jsonl").write_bytes(b"")
    return folder


def killed(folder: Path) -> Path:
    """Write a storm whose harness was killed at 4 s: no verdict, no logs, half lines."""
    storm(folder, judged=False)
    shutil.rmtree(folder / "logs")
    for file in [*folder.glob("*.jsonl"), *folder.glob("trace/*.jsonl")]:
        kept = [x for x in file.read_text().splitlines() if json.loads(x)["t_us"] < us(4)]
        half = kept.pop() if kept else ""
        file.write_text("".join(x + "\n" for x in kept) + half[: len(half) // 2])
    edit(folder / "run.json", state="running", phases={"start_us": 1_000_000, "storm_us": ZERO_US})
    return folder


@functools.cache
def _finding() -> Path:
    """Keep and explain the finding `LEAST`, and return its folder."""
    found = Finding(
        subject=LEAST.cluster.protocol,
        bucket=run_simulated(LEAST).bucket,
        property=LOST,
        sentence="5 records were lost.",
        drawn=DRAWN,
        smallest=LEAST,
    )
    folder = findings.keep(found, _cache())
    explain.write(explain.explain(LEAST), folder / EXPLANATION)
    return folder


def explained(folder: Path) -> Path:
    """Write the run of a finding, with its explanation, its schedules and its baseline run."""
    run(folder, LEAST)
    bring_finding(_finding(), folder, print)
    make_baseline(folder, lambda sentence: None)
    return folder


def jepsen(folder: Path) -> Path:
    """Write a judged history of Jepsen's Kafka workload: a reader skipped value 1 of key 0."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "history.edn"
    file.write_bytes((_FILES / "jepsen.edn").read_bytes())
    made = run_folder_of(file)
    check_run(made, write=True)
    return made


def many(folder: Path, operations: int, *, clients: int = 64, partitions: int = 2) -> Path:
    """Write a valid storm with a history of so many sends, one in fifty failed or unknown."""
    storm(folder)
    rng = random.Random(3)
    step = 9.5e6 / operations
    lines = []
    for i in range(operations):
        t, client = ZERO_US + int(i * step), f"c{1 + i % clients}"
        outcome = "ok" if i % 50 else ("info", "fail")[i // 50 % 2]
        head = f'{{"op":{i},"process":{i % clients},"client":"{client}","f":"send","t_us":'
        part, base = f"log-{i % partitions}", i // partitions * 5
        send = f'"sends":[{{"partition":"{part}","value":{i * 5},"count":5'
        lines.append(f'{head}{t},"type":"invoke",{send}}}]}}')
        end = t + int(rng.lognormvariate(9, 0.8))
        lines.append(f'{head}{end},"type":"{outcome}",{send},"offset":{base}}}]}}')
    (folder / "history.jsonl").write_text("\n".join(lines) + "\n")
    # The logs of the storm would contradict this history.
    shutil.rmtree(folder / "logs")
    return folder


KINDS: Final[dict[str, Callable[[Path], Path]]] = {
    "valid": storm,
    "invalid": functools.partial(storm, broken=True),
    "diverged": diverged,
    "explained": explained,
    "hanging": hanging,
    "crashed": crashed,
    "empty": empty,
    "killed": killed,
    "jepsen": jepsen,
}
"""What writes each kind of run folder."""
