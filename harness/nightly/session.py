"""The policy of a nightly run: which job is next (`plan`), until the budget is used up.

Each finished job becomes a row of the journal at once, and the session keeps no other state. So a
nightly run can end at any moment (by itself, a signal, a full disk, SIGKILL) and continue later.
Simulated jobs run at the same time; a run of real processes has the machine for itself."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from checker.formats.verdict import Verdict
from harness.formats import nightly_journal
from harness.formats.journal import (
    FINISHED,
    STOPPED,
    Ended,
    Finished,
    JobJournal,
    Lost,
    Searched,
    state_of,
)
from harness.formats.nightly_journal import AnyRow, Began, Ran, Skipped
from harness.formats.nightly_run import NightlyRun
from harness.nightly import corpus, plan, rows
from harness.nightly.environment import NightlyEnvironment
from harness.nightly.jobs import DeterminismJob, Digests, RealJob, ReplayJob, compared
from harness.nightly.requests import NightlyRequest
from harness.nightly.summary import CANARY, spent
from harness.runs.host_disk import kind_of
from harness.runs.options import to_schedule
from harness.runs.requests import RunRequest
from harness.runs.run import machine
from harness.runs.run_folder import remove
from harness.search import findings
from harness.search.catalogue.known_bugs import correct_protocols, search_targets
from harness.search.draw.storms import StormGenerator
from harness.search.jobs import MOST_LOSSES_IN_A_ROW, EndedJob, Job, work_through
from harness.search.search_jobs import FinishJob, SearchJob
from harness.search.worlds.known_bug import CHUNK, BugSubject
from harness.search.worlds.real import StormSubject
from harness.search.worlds.simulated import SimulatedSubject
from harness.search.worlds.subject import RunFolders
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError, StorageError, UsageError
from node.formats.host_errors import refused

DISK_FULL: Final = "disk-full"
FAILED: Final = "failed"
LATE_S: Final = 600.0
"""The time beyond its limit after which a job's process is killed."""
AROUND_A_RUN_S: Final = 50.0
"""Start, recovery, final reads, end and verdict of a real run."""
LEAST_FINISH_S: Final = 60.0
"""The time that shrinking and explaining a finding may take even after the budget."""
FORM_RUNS: Final = 150
"""The number of runs in which a nightly run looks for a form for real processes."""
KEPT_EXPECTED: Final = 2
"""The number of failing runs that one nightly run keeps of each protocol that is known to fail, of
each configuration of a third-party system that is not safe, and of the canary."""
_TOO_LITTLE_S: Final = 1.0
MOST_LOSSES_OF_A_CELL: Final = 2


class NightlySession:
    """One session of a nightly run: from the start of the command to its end."""

    def __init__(
        self,
        settings: NightlyRequest,
        systems: Sequence[StormSubject],
        environment: NightlyEnvironment,
        journal: JobJournal[AnyRow],
        past: Sequence[NightlyRun],
    ) -> None:
        """`past` are the earlier nightly runs, `systems` the third-party systems to storm."""
        self._settings = settings
        self._systems = systems
        self._environment = environment
        self._journal = journal
        self._past = past
        self._before_s = journal.worked_s()
        self._began_s = environment.now_s()
        self._seed = settings.number * plan.SEEDS_PER_RUN
        self._idle: set[str] = set() if settings.real else {"storm", plan.SYSTEM, plan.ROW}
        self._systems_share = settings.systems_share if systems else 0
        self._rows_share = settings.rows_share if settings.rows else 0
        self._share = ""
        self._batch: list[Job] = []
        """The jobs that are done at the same time; the next share is chosen after them."""
        self._together = 1
        self._digests: list[Digests] = []
        self.state = ""
        self.sentence = ""

    def work(self) -> str:
        """Work until the budget is used up. Record and return how the session ended."""
        try:
            self._add_first()
            self._remove_cut_off()
            work_through(self, self._environment.pool, self._environment.stopping)
            if self._environment.stopping():
                self.state = STOPPED
        except (FloodmarkError, OSError) as error:
            self._fail(error)
        try:
            self._add(Ended(state=self.state), 0.0)
        except StorageError as error:
            self._fail(error)
        return self.state

    def _fail(self, error: FloodmarkError | OSError) -> None:
        """Note why the session cannot go on; the first reason stays."""
        sentence = refused(error) if isinstance(error, OSError) else str(error)
        self.state = DISK_FULL if kind_of(sentence) == DISK_FULL else FAILED
        self.sentence = self.sentence or sentence

    # -- the policy

    def next_job(self) -> Job | None:
        if self._batch:
            return self._batch.pop(0)
        if self._environment.pool.running or self.state:
            return None
        self._settle_last()
        while self._may_go_on():
            left_s = self._left_s()
            share = self._next_share(left_s)
            if share is None:
                self.state = FINISHED
                return None
            self._share, self._batch = share, self._jobs(share, left_s)
            self._together = len(self._batch)
            if self._batch:
                self._environment.status(f"{share}; {self._so_far()}")
                return self._batch.pop(0)
            self._idle.add(share)
        return None

    def longest_s(self, job: Job) -> float:
        if isinstance(job, RealJob):
            return job.schedule.workload.duration_ms / 1000 + LATE_S
        return self._left_s() + LATE_S

    def take(self, ended: EndedJob) -> None:
        """Record a job that is done, or lost (see `Policy`)."""
        seconds = ended.seconds / self._together
        row = ended.row
        if row is None:
            self._lost(ended, seconds)
        elif isinstance(row, Digests):
            self._digests.append(row)
            if len(self._digests) == 2:
                assert isinstance(ended.job, DeterminismJob)
                self._add(compared(ended.job, *self._digests), ended.seconds)
        else:
            if isinstance(row, Searched):
                self._new(row)
            self._add(row, seconds)

    def cut_off(self, job: Job) -> None:
        self._remove_cut_off()

    def _lost(self, ended: EndedJob, seconds: float) -> None:
        key = ended.job.key
        if key in self._journal.done():
            return
        if ended.error == StorageError.__name__:
            raise StorageError(ended.sentence)
        self._add(Lost(key=key, sentence=ended.sentence), seconds)

    def _settle_last(self) -> None:
        """Give up a share whose last jobs were all lost."""
        self._digests.clear()
        if self._share and self._is_hopeless(self._share):
            self._idle.add(self._share)
        self._share = ""

    def _may_go_on(self) -> bool:
        """Return whether there is room for another job."""
        if self._environment.free_bytes() >= self._settings.least_free_bytes:
            return True
        free_mb = self._settings.least_free_bytes >> 20
        self.sentence = f"{self._settings.store}: less than {free_mb} MB are free"
        self.state = DISK_FULL
        return False

    def _next_share(self, left_s: float) -> str | None:
        if self._settings.real and CANARY not in self._journal.done():
            return CANARY
        if left_s < _TOO_LITTLE_S:
            return None
        shares = plan.shares(self._systems_share, self._rows_share)
        return plan.next_share(spent(self._journal.rows), self._idle, shares)

    def _is_hopeless(self, share: str) -> bool:
        """Return whether a share has lost too many jobs in a row, and give it up."""
        rows = [row for row in self._journal.rows if row.key.startswith(f"{share}/")]
        last = rows[-MOST_LOSSES_IN_A_ROW:]
        lost = [row.sentence for row in last if isinstance(row, Lost)]
        if len(lost) < MOST_LOSSES_IN_A_ROW:
            return False
        sentence = f"given up after {len(lost)} lost jobs in a row; the last: {lost[-1]}"
        self._add(Skipped(key=share, sentence=sentence), 0.0)
        return True

    def _so_far(self) -> str:
        searched = sum(r.runs for r in self._journal.rows if isinstance(r, Searched))
        runs = sum(isinstance(row, Ran) for row in self._journal.rows)
        return f"{searched:,} simulated and {runs} real runs so far"

    def _left_s(self) -> float:
        return self._settings.budget_s - self._worked_s()

    def _worked_s(self) -> float:
        return self._before_s + self._environment.now_s() - self._began_s

    def _add(self, row: AnyRow, seconds: float) -> None:
        row.seconds, row.worked_s = round(seconds, 2), round(self._worked_s(), 2)
        self._journal.add(row)

    def _add_first(self) -> None:
        now = datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds")
        began = Began(
            number=self._settings.number,
            seed=self._seed,
            budget_s=self._settings.budget_s,
            cores=self._settings.cores,
            started=now,
            machine=machine(),
            real=self._settings.real,
            systems_share=self._systems_share,
            rows_share=self._rows_share,
            systems=tuple(subject.identity for subject in self._systems),
        )
        self._add(began, 0.0)
        known = {row.key for row in self._journal.rows if isinstance(row, Skipped)}
        for tool, sentence in self._environment.missing_tools().items():
            if tool not in known:
                self._add(Skipped(key=tool, sentence=sentence), 0.0)

    def _remove_cut_off(self) -> None:
        """Remove the real runs that were cut off: they are made again."""
        store = self._settings.store
        kept = {row.kept for row in self._journal.rows if isinstance(row, Ran)}
        for folder in store.glob(f"{self._prefix}*/*"):
            inside = folder.is_dir() and not folder.is_symlink()
            if inside and str(folder.relative_to(store)) not in kept:
                remove(folder, store)

    @property
    def _prefix(self) -> str:
        return f"nightly-{self._settings.number:04d}-"

    # -- the shares

    def _jobs(self, share: str, left_s: float) -> list[Job]:
        """Return the next jobs of a share: one of real processes, or one for each core."""
        match share:
            case "canary":
                return [self._real(CANARY, CANARY, plan.canary(), "canary")]
            case "search":
                return self._finish_jobs(left_s) or self._searches(left_s)
            case "known-bug":
                return self._known_bug_jobs(left_s)
            case "determinism":
                return self._determinism()
            case "storm":
                return self._storm(left_s)
            case plan.SYSTEM:
                return self._system_storm(left_s)
            case plan.ROW:
                return self._row(left_s)
        return self._replays() or self._real_replay(left_s)

    def _searches(self, left_s: float) -> list[Job]:
        settings, held, known = self._settings, correct_protocols(), self._known()
        found: list[Job] = []
        for number in plan.numbered("search", self._journal.done(), settings.cores):
            protocol = held[number % len(held)]
            found.append(
                SearchJob(
                    key=f"search/{number}",
                    subject=SimulatedSubject(protocol=protocol, internal=True),
                    seed=self._seed + number,
                    first=0,
                    count=settings.job_schedules or CHUNK,
                    known=tuple(known.get(protocol, ())),
                    seconds=min(settings.job_s, left_s),
                )
            )
        return found

    def _finish_jobs(self, left_s: float) -> list[Job]:
        """Return the jobs that shrink and explain what was found, the first with a page."""
        done, rows = self._journal.done(), self._journal.rows
        pages = self._settings.pages
        pages -= sum(bool(row.page) for row in rows if isinstance(row, Finished))
        store, found = self._settings.store, list[Job]()
        searched = [row for row in rows if isinstance(row, Searched)]
        for row in searched:
            for finding in row.findings:
                key = f"search/finding/{findings.folder_of(store, finding).name}"
                if not row.key.startswith("search/") or key in done:
                    continue
                found.append(
                    FinishJob(
                        key=key,
                        subject=SimulatedSubject(protocol=row.protocol, internal=True),
                        finding=findings.latest(store, finding),
                        seconds=max(LEAST_FINISH_S, left_s),
                        tries=self._settings.shrink_tries,
                        place=RunFolders(str(store)),
                        form_runs=FORM_RUNS,
                        page=len(found) < pages,
                    )
                )
        return found[: self._settings.cores]

    def _known(self) -> dict[str, list[str]]:
        """Return by protocol the buckets that still have a schedule; others count as new."""
        store = self._settings.store
        known: dict[str, set[str]] = {}
        for nightly in self._past:
            for bucket in nightly.buckets:
                if bucket.schedule and (store / bucket.schedule).is_file():
                    known.setdefault(bucket.protocol, set()).add(bucket.name)
        for row in self._journal.rows:
            if isinstance(row, Searched):
                known.setdefault(row.protocol, set()).update(f.bucket for f in row.findings)
        return {protocol: sorted(names) for protocol, names in known.items()}

    def _new(self, row: Searched) -> None:
        """Keep the new buckets among the findings of a search: two jobs may find the same one."""
        if not row.key.startswith("search/"):
            return
        known = self._known().get(row.protocol, [])
        row.findings = [finding for finding in row.findings if finding.bucket not in known]
        for finding in row.findings:
            findings.keep(finding, self._settings.store)
            self._environment.tell(f"{row.protocol}: {finding.bucket}")

    def _known_bug_jobs(self, left_s: float) -> list[Job]:
        settings = self._settings
        this_run = [
            row.protocol
            for row in self._journal.rows
            if isinstance(row, Searched) and row.key.startswith("known-bug/")
        ]
        codes = plan.known_bug_order(self._past, this_run)[: settings.cores]
        targets = {target.code: target for target in search_targets()}
        numbers = plan.numbered("known-bug", self._journal.done(), len(codes))
        return [
            SearchJob(
                key=f"known-bug/{number}",
                subject=BugSubject.of(targets[code]),
                seed=self._seed + number,
                first=0,
                count=CHUNK,
                seconds=min(settings.known_bug_s, left_s),
            )
            for number, code in zip(numbers, codes, strict=True)
        ]

    def _determinism(self) -> list[Job]:
        """Return the job that runs the same schedules in two new processes, twice."""
        (number,) = plan.numbered("determinism", self._journal.done(), 1)
        held = correct_protocols()
        job = DeterminismJob(
            key=f"determinism/{number}",
            protocol=held[number % len(held)],
            seed=self._seed + number,
            runs=self._settings.determinism_runs,
        )
        return [job, job]

    def _replays(self) -> list[Job]:
        """Return simulated replays of the next few schedules of the corpus."""
        done = self._journal.done()
        waiting: list[Job] = [
            ReplayJob(key=key, file=saved.file)
            for saved in corpus.simulated(self._settings.store)
            if (key := f"replay/simulated/{saved.schedule.digest()}") not in done
        ]
        return waiting[: 2 * self._settings.cores]

    # -- real runs

    def _real(self, key: str, why: str, schedule: Schedule, name: str, **more: object) -> RealJob:
        job = RealJob(
            key=key,
            why=why,
            schedule=schedule,
            name=self._prefix + name,
            store=str(self._settings.store),
        )
        job = msgspec.structs.replace(job, **more)
        return msgspec.structs.replace(job, keeps_expected=self._keeps_expected(job))

    def _keeps_expected(self, job: RealJob) -> bool:
        """Return whether the folder of one more run that fails as expected is kept."""
        cluster = job.schedule.cluster
        subject = _subject(job.key, job.why, (cluster.protocol, *cluster.bugs))
        kept = [
            row
            for row in self._journal.rows
            if isinstance(row, Ran)
            and row.kept
            and row.verdict == Verdict.INVALID
            and plan.is_expected_of(row, row.broken)
            and _subject(row.key, row.why, (row.protocol, *row.bugs)) == subject
        ]
        return len(kept) < KEPT_EXPECTED

    def _fits(self, schedule: Schedule, left_s: float) -> bool:
        return schedule.workload.duration_ms / 1000 + AROUND_A_RUN_S <= left_s

    def _storm(self, left_s: float) -> list[Job]:
        """Return a storm of the cell with the fewest runs."""
        settings = self._settings
        if left_s < settings.storm_s + AROUND_A_RUN_S:
            return []
        while storm := self._next_storm():
            flush = "async" if "power-cut" in storm.kinds else None
            try:
                schedule = to_schedule(
                    RunRequest(
                        protocol=storm.protocol,
                        faults=storm.kinds,
                        seed=storm.seed,
                        flush=flush,
                        time_limit=settings.storm_s,
                    )
                )
            except UsageError as error:
                self._add(Skipped(key=storm.cell, sentence=str(error)), 0.0)
                continue
            name = f"{storm.protocol}-{storm.kinds.replace(',', '-')}"
            return [self._real(storm.key, "storm", schedule, name, kinds=storm.kinds)]
        return []

    def _next_storm(self) -> plan.PlannedStorm | None:
        """Return the storm of the cell with the fewest runs among those that start here."""
        begun: dict[tuple[str, str], int] = {}
        lost: dict[tuple[str, str], int] = {}
        unable: set[tuple[str, str]] = set()
        for row in self._journal.rows:
            share, *names = row.key.split("/")
            if share != "storm" or len(names) < 2:
                continue
            cell = (names[0], names[1])
            if isinstance(row, Skipped):
                unable.add(cell)
            else:
                begun[cell] = begun.get(cell, 0) + 1
                lost[cell] = lost.get(cell, 0) + isinstance(row, Lost)
        unable |= {cell for cell, count in lost.items() if count >= MOST_LOSSES_OF_A_CELL}
        return plan.least_hit(self._past, begun, self._seed + sum(begun.values()), unable)

    def _system_storm(self, left_s: float) -> list[Job]:
        """Return a storm of the system with the fewest: each version gets the same storms."""
        done = [row.key for row in self._journal.rows if row.key.startswith(f"{plan.SYSTEM}/")]
        begun = Counter(key.rpartition("/")[0] for key in done)
        subject = min(self._systems, key=lambda one: begun[f"{plan.SYSTEM}/{one.identity}"])
        number = begun[f"{plan.SYSTEM}/{subject.identity}"]
        system = subject.find()
        storm = StormGenerator(subject, system, self._settings.number).draw(number)
        if not self._fits(storm.schedule, left_s):
            return []
        key = f"{plan.SYSTEM}/{subject.identity}/{number}"
        name = system.short_name.lower()
        more = {"kinds": storm.family, "setup": subject.setup}
        return [self._real(key, plan.SYSTEM, storm.schedule, name, **more)]

    def _row(self, left_s: float) -> list[Job]:
        """Return the next run of a row. Each nightly run begins at another row."""
        done, table = self._journal.done(), rows.table()
        start = self._settings.number % len(table)
        for row in table[start:] + table[:start]:
            key = f"{plan.ROW}/{row.name}"
            for seed in range(0 if key in done else row.of):
                if f"{key}/{seed}" in done:
                    continue
                try:
                    schedule, setup = row.asked(seed)
                except UsageError as error:
                    self._add(Skipped(key=key, sentence=str(error)), 0.0)
                    break
                if self._fits(schedule, left_s):
                    return [self._real(f"{key}/{seed}", plan.ROW, schedule, "row", setup=setup)]
        return []

    def _real_replay(self, left_s: float) -> list[Job]:
        """Return the next schedule for real processes, from another place in each run."""
        if not self._settings.real:
            return []
        saved = corpus.real(self._settings.store)
        start = self._settings.number % max(1, len(saved))
        done = self._journal.done()
        for one in saved[start:] + saved[:start]:
            key = f"replay/real/{one.schedule.digest()}"
            if key not in done and self._fits(one.schedule, left_s):
                name = f"replay-{one.schedule.name or one.schedule.digest()}"[:80]
                return [self._real(key, "replay", one.schedule, name, file=one.file)]
        return []


def _subject(key: str, why: str, protocol: tuple[str, ...]) -> tuple[str, ...]:
    """Return the protocol with its bugs, or the configuration of a system; or the canary."""
    if why == plan.SYSTEM:
        return (key.rpartition("/")[0],)
    return (CANARY,) if why == CANARY else protocol


def open_journal(settings: NightlyRequest) -> tuple[NightlyRequest, JobJournal[AnyRow]]:
    """Open the journal of a nightly run, and return it with the request that has its number. The
    nightly run is the one that `settings.number` names; else the last one if it is unfinished (and
    not `fresh`); else a new one. Raises FloodmarkError."""
    store, number = settings.store, settings.number
    known = nightly_journal.numbers(store)
    if not number:
        number = known[-1] if known else 1
        last = nightly_journal.read(nightly_journal.journal_of(store, number)) if known else []
        if known and (settings.fresh or state_of(last) == FINISHED):
            number += 1
    journal = JobJournal[AnyRow](nightly_journal.journal_of(store, number), AnyRow)
    return msgspec.structs.replace(settings, number=number), journal
