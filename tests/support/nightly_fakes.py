"""Nightly runs whose jobs take no time: on a clock that jobs move, with canned results."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from checker.formats.verdict import Anomaly, PropertyResult, RunResult, Verdict
from harness.formats import nightly_journal
from harness.formats.nightly_journal import AnyRow, KnownBugSearched, Replayed, Searched
from harness.formats.nightly_run import Bucket, NightlyRun, nightly_runs
from harness.nightly import corpus
from harness.nightly.environment import FinishedJob, NightlyEnvironment
from harness.nightly.jobs import AnyJob, DeterminismJob, Digests, KnownBugJob, ReplayJob, SearchJob
from harness.nightly.main import run_nightly
from harness.nightly.plan import Settings
from harness.nightly.requests import NightlyRequest
from harness.replay import pages
from harness.runs import run_folder
from harness.runs.interrupts import Interrupts
from harness.runs.options import load_schedule
from harness.runs.progress import Progress
from harness.search.campaign import Finding
from harness.search.real.storms import StormSubject
from nemesis.faults import Kill
from nemesis.formats.schedule import Cluster, Expectation, Schedule, Workload
from reports import build

LOST = "no-lost-acknowledged-write"
JOB_S = 10.0
RUN_S = 30.0
GB = 1 << 30


class Killed(BaseException):
    """Ends a nightly run at once, like SIGKILL."""


def loses_a_write(name: str, faults: int = 1) -> Finding:
    """A finding of a search on kafka, as a worker would report it."""
    schedule = Schedule(
        name=f"kafka-{name}",
        cluster=Cluster(brokers=1, partitions=1, replication_factor=1, min_isr=1),
        workload=Workload(clients=1, consumers=0, duration_ms=300, rate=5.0),
        faults=tuple(Kill(on="n1", at_ms=100 + n, for_ms=50) for n in range(faults)),
        expectation=Expectation(verdict="invalid", property=LOST),
    )
    return Finding(
        bucket=f"{LOST}: {name}",
        property=LOST,
        sentence=f"1 record was lost, by {name}.",
        schedule=schedule,
        smallest=schedule,
        schedules_before=3,
        seconds_before=1.0,
        shrink_tries=9,
    )


class FakeEnvironment(NightlyEnvironment):
    """An environment on a clock of its own. Its fields say what happens.

    `finds` has the findings of searches on kafka. `at` has by number what happens before a job or
    run.
    """

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
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
        self.judged: list[list[Path]] = []
        self.made: list[Path] = []

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

    def side_by_side(self, jobs: Sequence[AnyJob], limit_s: float) -> Iterator[FinishedJob]:
        self.clock_s += JOB_S
        for nth, job in enumerate(jobs):
            self._begin()
            if self.stopping():
                return
            if job.key == self.lose:
                yield FinishedJob(job, None, JOB_S, "its process ended with -9 after 3 s")
            else:
                yield FinishedJob(job, self._done(job, nth), JOB_S)

    def _begin(self) -> None:
        self.begun += 1
        self.at.get(self.begun, lambda environment: None)(self)

    def _done(self, job: AnyJob, nth: int) -> AnyRow | Digests:
        match job:
            case SearchJob():
                found = self.finds if job.protocol == "kafka" else []
                buckets = {f.bucket: 2 for f in found}
                new = [f for f in found if f.bucket not in job.known]
                kept = [
                    keep(f, Path(job.store), self.notes.append, nth < job.pages)
                    for nth, f in enumerate(new)
                ]
                return Searched(
                    key=job.key,
                    protocol=job.protocol,
                    seed=job.seed,
                    schedules=100,
                    virtual_us=200_000_000,
                    events=5000,
                    kept=kept,
                    buckets=buckets,
                    failures=sum(buckets.values()),
                    fault_coverage={"kill/leader/in-sync": 3},
                )
            case KnownBugJob():
                return KnownBugSearched(
                    key=job.key,
                    code=job.code,
                    name=f"bug {job.code}",
                    protocol="kafka",
                    breaks=LOST,
                    found=job.code != "M2",
                    schedules=40,
                    core_s=4.0,
                )
            case DeterminismJob():
                digest = f"{nth if self.differ else 0:016x}"
                return Digests(schedules=(Schedule(),), digests=(digest,))
            case ReplayJob():
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

    def run(
        self, schedule: Schedule, name: str, store: Path, subject: StormSubject | None = None
    ) -> Path:
        self._begin()
        self.clock_s += RUN_S
        self.start(schedule)
        folder = run_folder.create(store, name)
        folder.write_schedule(schedule)
        about = {
            "protocol": schedule.cluster.protocol if subject is None else subject.settings["speed"],
            "bugs": schedule.cluster.bugs,
            "world": "real",
            "state": "finished",
            "run": folder.run,
        }
        (folder.path / "run.json").write_bytes(msgspec.json.encode(about))
        self.made.append(folder.path)
        return folder.path

    def judge(self, folders: Sequence[Path]) -> list[RunResult]:
        self.judged.append(list(folders))
        results = [self._verdict(folder) for folder in folders]
        for folder, result in zip(folders, results, strict=True):
            (folder / "results.json").write_bytes(msgspec.json.encode(result))
        return results

    def _verdict(self, folder: Path) -> RunResult:
        run = f"{folder.parent.name}/{folder.name}"
        about = msgspec.json.decode((folder / "run.json").read_bytes())
        anomaly = self.storms.get(about["protocol"], "")
        verdict = Verdict.INVALID if anomaly else Verdict.VALID
        if "canary" in run:
            verdict, anomaly = self.canary, "lost"
        elif about["protocol"] == self.idle:
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


def settings(store: Path, **changes: object) -> Settings:
    """A nightly run of ten minutes on the fake clock, with small jobs."""
    made = Settings(store=store, budget_s=600.0, cores=2, judge_every=100)
    return msgspec.structs.replace(made, **changes)


_kept: Final[dict[tuple[str, bool], tuple[Path, Bucket]]] = {}


def keep(finding: Finding, store: Path, tell: Callable[[str], None], with_page: bool) -> Bucket:
    """Keep a finding as `corpus.keep` does, without a form for real processes or plots.

    A class of findings is explained and replayed once a process, and copied from there.
    """
    key = finding.bucket, with_page
    if key not in _kept:
        place = Path(tempfile.mkdtemp(prefix="floodmark-finding-"))
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(corpus, "save_real_schedule", lambda *_, **__: None)
            patch.setattr(pages, "build", lambda run, plots, program: build(run, program=program))
            _kept[key] = place, corpus.keep(finding, place, tell, with_page=with_page)
    place, bucket = _kept[key]
    shutil.copytree(place, store, dirs_exist_ok=True)
    replay = bucket.replay.replace(str(place), str(store))
    return msgspec.structs.replace(bucket, replay=replay)


def bucket(key: str = "0" * 12, **fields: Any) -> Bucket:
    """Return a bucket of lost writes with these fields."""
    lost = {"protocol": "kafka", "world": "simulated", "property": LOST, "name": f"{LOST}: lost"}
    return Bucket(**{"key": key, "expected": False, "count": 1, **lost, **fields})


def nightly_run(number: int = 1, **fields: Any) -> NightlyRun:
    """Return a finished nightly run with these fields."""
    times = {"started": f"2026-01-{number:02d}T01:00:00+00:00", "budget_s": 1200, "used_s": 1190}
    state = {"seed": number * 1_000_000, "state": "finished", "cores": 2}
    return NightlyRun(**{"number": number, **times, **state, **fields})


def write_nightly_run(store: Path, nightly: NightlyRun) -> None:
    """Write a nightly run to a store."""
    (store / "nightly").mkdir(parents=True, exist_ok=True)
    file = store / "nightly" / f"{nightly.number:04d}.json"
    file.write_bytes(msgspec.json.encode(nightly))


class NightlyRuns:
    """Nightly runs in one store."""

    def __init__(self, store: Path) -> None:
        self.store = store
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
        """The text of the index."""
        return (self.store / "index.html").read_text()

    def journal(self, number: int = 1) -> list[AnyRow]:
        """Read the journal of a nightly run."""
        return nightly_journal.read(nightly_journal.journal_of(self.store, number))

    def nightly(self, *, fresh: bool = False, **changes: object) -> int:
        """Carry one out and return the exit code.

        `changes` sets fields of the environment and of the settings.
        """

        def make(wanted: Settings, interrupts: Interrupts, progress: Progress) -> FakeEnvironment:
            self.environment = FakeEnvironment(interrupts)
            for name in changes.keys() - fields:
                assert hasattr(self.environment, name), name
                setattr(self.environment, name, changes[name])
            return self.environment

        fields = set(Settings.__struct_fields__)
        given = {name: value for name, value in changes.items() if name in fields}
        return run_nightly(
            settings(self.store, **given), NightlyRequest(quiet=True, fresh=fresh), make
        )
