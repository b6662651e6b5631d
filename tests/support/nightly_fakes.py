"""A nightly run whose jobs take no time: a clock that jobs move, canned searches, canned runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from checker.formats.verdict import Anomaly, PropertyResult, RunResult, Verdict
from harness.formats.nightly_journal import AnyRow, KnownBugSearched, Replayed, Searched
from harness.nightly import corpus
from harness.nightly.environment import FinishedJob, NightlyEnvironment
from harness.nightly.jobs import AnyJob, DeterminismJob, Digests, KnownBugJob, ReplayJob, SearchJob
from harness.nightly.main import Options, run_nightly
from harness.nightly.plan import Settings
from harness.runs import run_folder
from harness.runs.interrupts import Interrupts
from harness.runs.options import load_schedule
from harness.runs.progress import Progress
from harness.search.campaign import Finding
from harness.search.real.storms import StormSubject
from nemesis.faults import Kill
from nemesis.formats.schedule import Cluster, Expectation, Schedule, Workload

LOST = "no-lost-acknowledged-write"
JOB_S = 10.0
RUN_S = 30.0
GB = 1 << 30


class Killed(BaseException):
    """What happens to a process that gets a SIGKILL: nothing after it."""


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
    """`finds` are what the first search on kafka comes upon; `at` is called before each job or
    run with its number, and may do what it likes."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self.clock_s = 1000.0
        self.begun = 0
        self.free = 100 * GB
        self.finds: list[Finding] = []
        self.at: Callable[[int], None] = lambda number: None
        self.canary = Verdict.INVALID
        self.storms: dict[str, str] = {}
        """By protocol, the anomaly of lost writes that its storms show."""
        self.idle = ""
        """The protocol whose storms strike nobody."""
        self.differ = False
        self.fixed = False
        """Whether what was once found no longer fails."""
        self.lose = ""
        self.notes: list[str] = []
        self.judged: list[list[Path]] = []

    def now_s(self) -> float:
        return self.clock_s

    def free_bytes(self) -> int:
        return self.free

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
        self.at(self.begun)

    def _done(self, job: AnyJob, nth: int) -> AnyRow | Digests:
        match job:
            case SearchJob():
                found = self.finds if job.protocol == "kafka" else []
                buckets = {f.bucket: 2 for f in found}
                new = [f for f in found if f.bucket not in job.known]
                kept = [
                    corpus.keep(f, Path(job.store), self.notes.append, with_page=nth < job.pages)
                    for nth, f in enumerate(new)
                ]
                return Searched(
                    key=job.key,
                    protocol=job.protocol,
                    engine=job.engine,
                    seed=job.seed,
                    schedules=100,
                    virtual_us=200_000_000,
                    events=5000,
                    kept=kept,
                    buckets=buckets,
                    failures=sum(buckets.values()),
                    fault_coverage={"kill/leader/in-sync": 3},
                    states=70,
                    unseen=0.5,
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


class NightlyRuns:
    """Nightly runs in one store; `prepare` gets the environment of each before it begins."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.environment: FakeEnvironment | None = None

    def nightly(
        self,
        prepare: Callable[[FakeEnvironment], None] = lambda environment: None,
        *,
        fresh: bool = False,
        **changes: object,
    ) -> int:
        """Carry one out; returns the exit code."""

        def make(wanted: Settings, interrupts: Interrupts, progress: Progress) -> FakeEnvironment:
            self.environment = FakeEnvironment(interrupts)
            prepare(self.environment)
            return self.environment

        return run_nightly(settings(self.store, **changes), Options(quiet=True, fresh=fresh), make)
