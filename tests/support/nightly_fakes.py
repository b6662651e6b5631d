"""Nightly runs whose jobs take no time: on a clock that jobs move, with canned results."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from checker.formats.verdict import Anomaly, PropertyResult, RunResult, Verdict
from harness.formats import nightly_journal
from harness.formats.finding import Finding
from harness.formats.journal import FinishedRow, SearchedRow
from harness.formats.nightly_journal import AnyRow, DeterminismChecked, Ran, Replayed
from harness.formats.nightly_run import Bucket, NightlyRun, nightly_runs
from harness.nightly import corpus
from harness.nightly.kinds import DeterminismJob, ReplayJob
from harness.nightly.main import run_nightly
from harness.nightly.night import NightlyEnvironment, RealJob
from harness.nightly.requests import NightlyRequest
from harness.replay import pages
from harness.runs import run_folder
from harness.runs.interrupts import Interrupts
from harness.runs.options import load_schedule
from harness.runs.progress import Progress
from harness.search.jobs import EndedJob
from harness.search.search_jobs import FinishJob, SearchJob
from harness.search.worlds.subject import RunFolders
from nemesis.disk import control
from nemesis.faults import Kill
from nemesis.formats.schedule import Cluster, Expectation, Schedule, Workload
from node.formats.errors import FloodmarkError
from node.formats.host_tools import ONLY_FOLDER
from reports import build
from tests.support.fake_tools import OF_FAULTS, make_tools
from tests.support.local_pool import LocalPool
from tests.support.paths import lasting_folder

LOST = "no-lost-acknowledged-write"
JOB_S = 10.0
RUN_S = 30.0
GB = 1 << 30


class Killed(BaseException):
    """Ends a nightly run at once, like SIGKILL."""


def loses_a_write(name: str, faults: int = 1) -> Finding:
    """Return a finding of a search on kafka, as a job would report it."""
    schedule = Schedule(
        name=f"kafka-{name}",
        cluster=Cluster(brokers=1, partitions=1, replication_factor=1, min_isr=1),
        workload=Workload(clients=1, consumers=0, duration_ms=300, rate=5.0),
        faults=tuple(Kill(on="n1", at_ms=100 + n, for_ms=50) for n in range(faults)),
        expectation=Expectation(verdict="invalid", property=LOST),
    )
    return Finding(
        subject="kafka",
        bucket=f"{LOST}: {name}",
        property=LOST,
        sentence=f"1 record was lost, by {name}.",
        drawn=schedule,
        smallest=schedule,
    )


class FakeEnvironment(NightlyEnvironment):
    """An environment on a clock of its own, and the pool of its jobs. Its fields say what happens.

    `finds` has the findings of searches on kafka. `at` has by number what happens before a job."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self.output = Path("output")
        self.pool = FakePool(self)
        self.clock_s = 1000.0
        self.begun = 0
        self.free = 100 * GB
        self.finds: list[Finding] = []
        self.at: dict[int, Callable[[FakeEnvironment], None]] = {}
        self.canary = Verdict.INVALID
        self.storms: dict[str, str] = {}
        """By protocol, the anomaly of lost writes that its storms show."""
        self.idle = ""
        """The protocol whose storms find no target."""
        self.differ = False
        self.fixed = False
        """Whether saved findings hold when they are replayed."""
        self.lose = ""
        self.missing: dict[str, str] = {}
        self.start: Callable[[Schedule], None] = lambda schedule: None
        """Raises what the start of a run raises."""
        self.notes: list[str] = []
        self.made: list[str] = []

    def now_s(self) -> float:
        return self.clock_s

    def free_bytes(self) -> int:
        return self.free

    def missing_tools(self) -> dict[str, str]:
        return dict(self.missing)

    def stopping(self) -> bool:
        return self._interrupts.asked

    def tell(self, sentence: str) -> None:
        self.notes.append(sentence)

    def status(self, words: str) -> None:
        pass

    def do_all(self, jobs: list[Any]) -> list[EndedJob]:
        took_s = RUN_S if isinstance(jobs[0], RealJob) else JOB_S
        self.clock_s += took_s
        found = []
        for job in jobs:
            self.begun += 1
            self.at.get(self.begun, lambda environment: None)(self)
            if self.stopping():
                break
            if job.key == self.lose:
                found.append(EndedJob(job, None, took_s, "its process ended with -9 after 3 s"))
                continue
            try:
                found.append(EndedJob(job, self._done(job), took_s))
            except FloodmarkError as error:
                found.append(EndedJob(job, None, took_s, str(error), type(error).__name__))
        return found

    def _done(self, job: Any) -> Any:
        match job:
            case SearchJob() if job.key.startswith("search/"):
                return self._searched(job)
            case SearchJob():
                finding = loses_a_write("known")
                row = SearchedRow(key=job.key, subject=job.subject.name, seed=job.seed)
                row.schedules, row.core_s = 40, 4.0
                row.findings = [finding] if row.subject != "M2" else []
                return row
            case FinishJob():
                return keep(job)
            case DeterminismJob():
                row = DeterminismChecked(key=job.key, protocol=job.protocol, seed=job.seed, runs=1)
                row.differing = [Schedule()] * self.differ
                return row
            case ReplayJob():
                return self._replayed(job)
        return self._ran(job)

    def _searched(self, job: SearchJob) -> SearchedRow:
        found = self.finds if job.subject.name == "kafka" else []
        row = SearchedRow(key=job.key, subject=job.subject.name, seed=job.seed)
        row.schedules = row.runs = 100
        row.virtual_us, row.events = 200_000_000, 5000
        row.findings = [f for f in found if f.bucket not in job.known]
        row.buckets = {f.bucket: 2 for f in found}
        row.failures = sum(row.buckets.values())
        row.fault_coverage = {"kill/leader/in-sync": 3}
        return row

    def _replayed(self, job: ReplayJob) -> Replayed:
        gone = self.fixed and "findings" in job.file
        schedule = load_schedule(Path(job.file))
        return Replayed(
            key=job.key,
            file=job.file,
            protocol=schedule.cluster.protocol,
            expectation=schedule.expectation,
            met=not gone,
            verdict="valid",
            sentence="valid.",
            bugs=schedule.cluster.bugs,
            faults=9,
            found=corpus.named(Path(job.file), schedule),
        )

    def _ran(self, job: RealJob) -> Ran:
        row = job.row()
        self.start(job.schedule)
        folder = run_folder.create(Path(job.store), job.name)
        folder.write_schedule(job.schedule)
        protocol = job.setup.settings.get("speed", row.protocol)
        about = {"protocol": protocol, "bugs": row.bugs, "world": "real", "state": "finished"}
        (folder.path / "run.json").write_bytes(msgspec.json.encode(about | {"run": folder.run}))
        self.made.append(job.key)
        result = self._verdict(folder.run, protocol)
        (folder.path / "results.json").write_bytes(msgspec.json.encode(result))
        return job.judged(row, folder.path, result)

    def _verdict(self, run: str, protocol: str) -> RunResult:
        anomaly = self.storms.get(protocol, "")
        verdict = Verdict.INVALID if anomaly else Verdict.VALID
        if "canary" in run:
            verdict, anomaly = self.canary, "lost"
        elif protocol == self.idle:
            return RunResult(
                run=run,
                verdict=Verdict.NOT_EXERCISED,
                sentence="not-exercised: fault 0 found no target.",
            )
        if verdict is Verdict.VALID:
            return RunResult(run=run, verdict=verdict, sentence="valid: all is well.")
        return RunResult(
            run=run,
            verdict=verdict,
            sentence=f"{verdict}: a record is gone.",
            properties=(PropertyResult(property=LOST, verdict=verdict),),
            anomalies=(Anomaly(property=LOST, name=anomaly),),
        )


class FakePool(LocalPool):
    """The pool of a fake environment, which does jobs side by side."""

    def __init__(self, environment: FakeEnvironment) -> None:
        super().__init__(size=2)
        self._environment = environment

    def ended(self, within_s: float) -> list[EndedJob]:
        jobs, self._waiting = self._waiting, []
        return self._environment.do_all(jobs)


def settings(store: Path, **changes: object) -> NightlyRequest:
    """Return a nightly run of ten minutes on the fake clock, with small jobs."""
    made = NightlyRequest(store=store, budget_s=600.0, jobs=2, quiet=True)
    return msgspec.structs.replace(made, **changes)


_kept: Final[dict[tuple[str, bool], tuple[Path, FinishedRow]]] = {}


def keep(job: FinishJob) -> FinishedRow:
    """Finish a finding as its job does, without shrinking, a form for real processes or plots.

    A class of findings is explained and replayed once a process, and copied from there."""
    key = job.finding.bucket, job.page
    if key not in _kept:
        place = lasting_folder("finding")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pages, "build", lambda run, plots, program: build(run, program=program))
            finding = msgspec.structs.replace(job.finding, shrunk=True)
            quick = {"finding": finding, "form": False, "place": RunFolders(str(place))}
            _kept[key] = place, msgspec.structs.replace(job, **quick).do()
    place, row = _kept[key]
    shutil.copytree(place, Path(job.place.store), dirs_exist_ok=True)
    return msgspec.structs.replace(row, key=job.key)


def bucket(key: str = "0" * 12, **fields: Any) -> Bucket:
    """Return a bucket of lost writes with these fields."""
    lost = {"protocol": "kafka", "world": "simulated", "property": LOST, "name": f"{LOST}: lost"}
    return Bucket(**{"key": key, "expected": False, "count": 1, **lost, **fields})


def nightly_run(number: int = 1, **fields: Any) -> NightlyRun:
    times = {"started": f"2026-01-{number:02d}T01:00:00+00:00", "budget_s": 1200, "used_s": 1190}
    state = {"seed": number * 1_000_000, "state": "finished", "cores": 2}
    return NightlyRun(**{"number": number, **times, **state, **fields})


def write_nightly_run(store: Path, nightly: NightlyRun) -> None:
    (store / "nightly").mkdir(parents=True, exist_ok=True)
    file = store / "nightly" / f"{nightly.number:04d}.json"
    file.write_bytes(msgspec.json.encode(nightly))


class NightlyRuns:
    """Nightly runs in one store, on a machine that has the tools in `tools`, disks in user
    space, and no others."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.tools = make_tools(lasting_folder("tools"), *OF_FAULTS)
        self.environment: FakeEnvironment | None = None

    @property
    def all(self) -> list[NightlyRun]:
        """The nightly runs of the store, each of which can be read."""
        known, unread = nightly_runs(self.store)
        assert not unread
        return known

    @property
    def last(self) -> NightlyRun:
        """The last nightly run of the store."""
        return self.all[-1]

    @property
    def index(self) -> str:
        return (self.store / "index.html").read_text()

    def journal(self, number: int = 1) -> list[AnyRow]:
        """Read the journal of a nightly run."""
        return nightly_journal.read(nightly_journal.journal_of(self.store, number))

    def nightly(self, *, fresh: bool = False, **changes: object) -> int:
        """Carry one out and return the exit code.

        `changes` sets fields of the environment and of the settings."""

        def make(_: NightlyRequest, interrupts: Interrupts, progress: Progress) -> FakeEnvironment:
            self.environment = FakeEnvironment(interrupts)
            for name in changes.keys() - fields:
                assert hasattr(self.environment, name), name
                setattr(self.environment, name, changes[name])
            return self.environment

        fields = set(NightlyRequest.__struct_fields__)
        given = {name: value for name, value in changes.items() if name in fields}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(ONLY_FOLDER, str(self.tools))
            patch.setattr(control, "why_impossible", lambda: "")
            return run_nightly(settings(self.store, fresh=fresh, **given), make)
