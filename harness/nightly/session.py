"""The loop of a nightly run: the share with the least time so far is next, until no budget is left.

Each finished job becomes a line of the journal at once, and nothing else is remembered. So a
nightly run can end at any moment, by itself, a signal, a full disk or SIGKILL, and continue later.
"""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from harness.formats import nightly_journal
from harness.formats.nightly_journal import Judged, Lost, NightlyJournal, Ran, Searched, Skipped
from harness.formats.nightly_run import Bucket, NightlyRun, system_label
from harness.nightly import corpus, plan
from harness.nightly.environment import FinishedJob, NightlyEnvironment
from harness.nightly.jobs import (
    AnyJob,
    DeterminismJob,
    Digests,
    KnownBugJob,
    ReplayJob,
    SearchJob,
    compared,
)
from harness.nightly.plan import Settings
from harness.nightly.summary import spent
from harness.nightly.verdicts import judge_all
from harness.runs.interrupts import StopNow
from harness.runs.options import to_schedule
from harness.runs.requests import RunRequest
from harness.search.bug_search import machine
from harness.search.campaign import Budget
from harness.search.known_bugs import correct_protocols
from harness.search.real.storms import StormGenerator, StormSubject
from harness.systems import registry
from harness.systems.adapter import SERVER
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError, StorageError, UsageError
from node.formats.files import cannot_write

FINISHED: Final = "finished"
STOPPED: Final = "stopped"
DISK_FULL: Final = "disk-full"
FAILED: Final = "failed"
LATE_S: Final = 600.0
"""How long beyond its time a job may take before its process is killed."""
AROUND_A_RUN_S: Final = 25.0
"""Start, recovery, final reads and end of a real run."""
TO_JUDGE_S: Final = 25.0
TO_JUDGE_A_RUN_S: Final = 2.0
_TOO_LITTLE_S: Final = 1.0
MOST_LOSSES_OF_A_CELL: Final = 2
MOST_LOSSES_IN_A_ROW: Final = 5
"""After so many lost jobs of one share, without a result between them, the share is given up."""


class NightlySession:
    """One session of a nightly run."""

    def __init__(
        self,
        settings: Settings,
        environment: NightlyEnvironment,
        journal: NightlyJournal,
        past: Sequence[NightlyRun],
    ) -> None:
        """`past` are the earlier nightly runs. Raises StorageError when the journal cannot be
        written."""
        self._settings = settings
        self._environment = environment
        self._journal = journal
        self._past = past
        self._before_s = journal.worked_s()
        self._began_s = environment.now_s()
        self._seed = plan.seed_of(settings.number)
        self._idle: set[str] = set() if settings.real else {"storm", plan.SYSTEM}
        self._systems_share = settings.systems_share if settings.systems else 0
        self.sentence = ""

    def work(self) -> str:
        """Work until the budget is used up. Returns how the session ended, and records it."""
        try:
            self._add_first()
            self._cut_off()
            state = self._work()
        except StopNow:
            state = STOPPED
        except StorageError as error:
            state, self.sentence = DISK_FULL, str(error)
        except FloodmarkError as error:
            state, self.sentence = FAILED, str(error)
        except OSError as error:
            state, self.sentence = DISK_FULL, cannot_write(self._settings.store, error)
        try:
            self._add(nightly_journal.Ended(state=state), 0.0)
        except StorageError as error:
            state, self.sentence = DISK_FULL, self.sentence or str(error)
        return state

    def _work(self) -> str:
        if self._settings.real and "canary" not in self._journal.done():
            self._run("canary", "canary", plan.canary(), "nightly-canary")
        while not self._environment.stopping():
            left_s = self._left_s()
            shares = plan.shares(self._systems_share)
            share = plan.next_share(spent(self._journal.rows), self._idle, shares)
            if share is None or left_s < _TOO_LITTLE_S:
                self._judge()
                return STOPPED if self._environment.stopping() else FINISHED
            if self._environment.free_bytes() < self._settings.least_free_bytes:
                free_mb = self._settings.least_free_bytes >> 20
                self.sentence = f"{self._settings.store}: less than {free_mb} MB are free"
                return DISK_FULL
            self._environment.status(f"{share}; {self._so_far()}")
            if not self._do(share, left_s) or self._is_hopeless(share):
                self._idle.add(share)
            if len(self._journal.unjudged()) >= self._settings.judge_every:
                self._judge()
        return STOPPED

    def _is_hopeless(self, share: str) -> bool:
        """Return whether a share only loses its jobs, and record that it is given up."""
        rows = [row for row in self._journal.rows if row.key.startswith(f"{share}/")]
        last = rows[-MOST_LOSSES_IN_A_ROW:]
        lost = [row.sentence for row in last if isinstance(row, Lost)]
        if len(lost) < MOST_LOSSES_IN_A_ROW:
            return False
        sentence = f"given up after {len(lost)} lost jobs in a row; the last: {lost[-1]}"
        self._add(Skipped(key=share, sentence=sentence), 0.0)
        return True

    def _so_far(self) -> str:
        searched = sum(r.schedules for r in self._journal.rows if isinstance(r, Searched))
        runs = sum(isinstance(row, Ran) for row in self._journal.rows)
        return f"{searched:,} schedules and {runs} real runs so far"

    def _left_s(self) -> float:
        """The rest of the budget, without the time to judge the runs that wait."""
        waiting = len(self._journal.unjudged())
        reserved_s = TO_JUDGE_S + TO_JUDGE_A_RUN_S * waiting if waiting else 0.0
        return self._settings.budget_s - self._worked_s() - reserved_s

    def _worked_s(self) -> float:
        return self._before_s + self._environment.now_s() - self._began_s

    def _add(self, row: nightly_journal.AnyRow, seconds: float) -> None:
        row.seconds, row.worked_s = round(seconds, 2), round(self._worked_s(), 2)
        self._journal.add(row)

    def _add_first(self) -> None:
        now = datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds")
        began = nightly_journal.Began(
            number=self._settings.number,
            seed=self._seed,
            budget_s=self._settings.budget_s,
            cores=self._settings.cores,
            started=now,
            machine=machine(),
            real=self._settings.real,
            systems_share=self._systems_share,
            systems=tuple(system_label(s.system, "", _given(s)) for s in self._settings.systems),
        )
        self._add(began, 0.0)
        known = {row.key for row in self._journal.rows if isinstance(row, Skipped)}
        for tool, sentence in self._environment.missing_tools().items():
            if tool not in known:
                self._add(Skipped(key=tool, sentence=sentence), 0.0)

    def _cut_off(self) -> None:
        """Record the real runs that were cut off: they are made again, their folders stay."""
        known = {row.folder for row in self._journal.rows if isinstance(row, Ran)}
        done = self._journal.done()
        store = self._settings.store
        for file in sorted(store.glob(f"{self._prefix}*/*/run.json")):
            folder = str(file.parent.relative_to(store))
            if not file.parent.is_symlink() and not {folder, f"cut-off/{folder}"} & (known | done):
                sentence = f"a run was cut off; what there is of it is in {folder}"
                self._add(Lost(key=f"cut-off/{folder}", sentence=sentence), 0.0)

    @property
    def _prefix(self) -> str:
        return f"nightly-{self._settings.number:04d}-"

    # -- the shares

    def _do(self, share: str, left_s: float) -> bool:
        """Do a job of a share, or one per core. Returns False when the share has nothing to do."""
        match share:
            case "search":
                return self._side_by_side(self._searches(left_s), left_s)
            case "known-bug":
                return self._side_by_side(self._known_bug_jobs(left_s), left_s)
            case "determinism":
                return self._determinism()
            case "storm":
                return self._storm(left_s)
            case plan.SYSTEM:
                return self._system_storm(left_s)
        replays = self._replays()
        return self._side_by_side(replays, left_s) if replays else self._real_replay(left_s)

    def _searches(self, left_s: float) -> list[AnyJob]:
        settings, held = self._settings, correct_protocols()
        known, pages = self._known(), max(0, settings.pages - self._pages())
        found: list[AnyJob] = []
        for number in plan.numbered("search", self._journal.done(), settings.cores):
            protocol = held[number % len(held)]
            found.append(
                SearchJob(
                    key=f"search/{number}",
                    protocol=protocol,
                    seed=self._seed + number,
                    store=str(settings.store),
                    pages=pages,
                    shrink_tries=settings.shrink_tries,
                    known=tuple(known.get(protocol, ())),
                    budget=Budget(
                        seconds=min(settings.job_s, left_s), schedules=settings.job_schedules
                    ),
                )
            )
        return found

    def _pages(self) -> int:
        """The number of findings of this run that have a page."""
        found = (row.kept for row in self._journal.rows if isinstance(row, Searched))
        return sum(bool(bucket.page) for kept in found for bucket in kept)

    def _known(self) -> dict[str, list[str]]:
        """By protocol, the buckets whose schedule still exists. A removed one counts as new."""
        store = self._settings.store
        kept = [
            b
            for nightly in self._past
            for b in nightly.buckets
            if b.schedule and (store / b.schedule).is_file()
        ]
        kept += [b for row in self._journal.rows if isinstance(row, Searched) for b in row.kept]
        known: dict[str, list[str]] = {}
        for bucket in kept:
            known.setdefault(bucket.protocol, []).append(bucket.name)
        return {protocol: sorted(set(names)) for protocol, names in known.items()}

    def _known_bug_jobs(self, left_s: float) -> list[AnyJob]:
        settings = self._settings
        this_run = [
            row.code
            for row in self._journal.rows
            if isinstance(row, nightly_journal.KnownBugSearched)
        ]
        codes = plan.known_bug_order(self._past, this_run)[: settings.cores]
        numbers = plan.numbered("known-bug", self._journal.done(), len(codes))
        return [
            KnownBugJob(
                key=f"known-bug/{number}",
                code=code,
                seed=self._seed + number,
                seconds=min(settings.known_bug_s, left_s),
            )
            for number, code in zip(numbers, codes, strict=True)
        ]

    def _replays(self) -> list[AnyJob]:
        """The next few of the corpus that were not replayed in the simulated world in this run."""
        done = self._journal.done()
        waiting: list[AnyJob] = [
            ReplayJob(key=key, file=saved.file)
            for saved in corpus.simulated(self._settings.store)
            if (key := f"replay/simulated/{saved.schedule.digest()}") not in done
        ]
        return waiting[: 2 * self._settings.cores]

    def _side_by_side(self, jobs: list[AnyJob], left_s: float) -> bool:
        for done in self._environment.side_by_side(jobs, left_s + LATE_S):
            self._take(done, len(jobs))
        return bool(jobs)

    def _take(self, done: FinishedJob, together: int) -> None:
        """Record a job that is done, or lost."""
        seconds = done.seconds / together
        if done.result is None:
            self._add(Lost(key=done.job.key, sentence=done.sentence), seconds)
            return
        assert not isinstance(done.result, Digests)
        if isinstance(done.result, Searched):
            done.result.kept = self._new(done.result)
        self._add(done.result, seconds)

    def _new(self, row: Searched) -> list[Bucket]:
        """The new buckets among its findings: two workers may find the same one."""
        known = self._known().get(row.protocol, [])
        new = [bucket for bucket in row.kept if bucket.name not in known]
        for bucket in new:
            self._environment.tell(f"{row.protocol}: {bucket.name}")
        return new

    def _determinism(self) -> bool:
        """Run the same schedules in two new processes."""
        (number,) = plan.numbered("determinism", self._journal.done(), 1)
        held = correct_protocols()
        job = DeterminismJob(
            key=f"determinism/{number}",
            protocol=held[number % len(held)],
            seed=self._seed + number,
            runs=self._settings.determinism_runs,
        )
        done = list(self._environment.side_by_side([job, job], LATE_S))
        if len(done) < 2:
            return True
        seconds = max(one.seconds for one in done)
        first, second = (one.result for one in done)
        if isinstance(first, Digests) and isinstance(second, Digests):
            self._add(compared(job, first, second), seconds)
        else:
            sentence = "; ".join(one.sentence for one in done if one.sentence)
            self._add(Lost(key=job.key, sentence=sentence), seconds)
        return True

    # -- real runs

    def _storm(self, left_s: float) -> bool:
        """A storm of the cell with the fewest runs."""
        settings = self._settings
        if left_s < settings.storm_s + AROUND_A_RUN_S + TO_JUDGE_S:
            return False
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
            self._run(storm.key, "storm", schedule, storm.name, kinds=storm.kinds)
            return True
        return False

    def _next_storm(self) -> plan.PlannedStorm | None:
        """Return the storm of the cell with the fewest runs among those that start here."""
        begun: dict[tuple[str, str], int] = {}
        lost: dict[tuple[str, str], int] = {}
        unable: set[tuple[str, str]] = set()
        for row in self._journal.rows:
            share, *names = row.key.split("/")
            if share != "storm" or len(names) < 2 or isinstance(row, Judged):
                continue
            cell = (names[0], names[1])
            if isinstance(row, Skipped):
                unable.add(cell)
            else:
                begun[cell] = begun.get(cell, 0) + 1
                lost[cell] = lost.get(cell, 0) + isinstance(row, Lost)
        unable |= {cell for cell, count in lost.items() if count >= MOST_LOSSES_OF_A_CELL}
        return plan.least_hit(self._past, begun, self._seed + sum(begun.values()), unable)

    def _system_storm(self, left_s: float) -> bool:
        """A storm of the system that had the fewest in this run. Every version of a system gets the
        same storms, so that they can be compared."""
        done = [row.key for row in self._journal.rows if row.key.startswith(f"{plan.SYSTEM}/")]
        turns = [
            (sum(key.startswith(f"{plan.SYSTEM}/{at}/") for key in done), at)
            for at in range(len(self._settings.systems))
        ]
        number, at = min(turns)
        subject = self._settings.systems[at]
        system = registry.find(subject.system, subject.settings)
        storm = StormGenerator(subject, system, self._settings.number).draw(number)
        needed_s = storm.schedule.workload.duration_ms / 1000 + AROUND_A_RUN_S + TO_JUDGE_S
        if needed_s > left_s:
            return False
        self._run(
            f"{plan.SYSTEM}/{at}/{number}",
            plan.SYSTEM,
            storm.schedule,
            f"nightly-{system.short_name.lower()}",
            kinds=storm.family,
            subject=subject,
        )
        return True

    def _real_replay(self, left_s: float) -> bool:
        """Replay the next schedule of the corpus on real processes. Each nightly run begins at
        another place of the corpus."""
        if not self._settings.real:
            return False
        saved = corpus.real(self._settings.store)
        start = self._settings.number % max(1, len(saved))
        done = self._journal.done()
        for one in saved[start:] + saved[:start]:
            key = f"replay/real/{one.schedule.digest()}"
            needed_s = one.schedule.workload.duration_ms / 1000 + AROUND_A_RUN_S + TO_JUDGE_S
            if key not in done and needed_s <= left_s:
                name = f"nightly-replay-{one.schedule.name or one.schedule.digest()}"[:90]
                self._run(key, "replay", one.schedule, name, file=one.file)
                return True
        return False

    def _run(
        self,
        key: str,
        why: str,
        schedule: Schedule,
        name: str,
        *,
        kinds: str = "",
        file: str = "",
        subject: StormSubject | None = None,
    ) -> None:
        """Make one run of real processes. One that a signal cuts off is made again later."""
        began_s = self._environment.now_s()
        name = self._prefix + name.removeprefix("nightly-")
        try:
            # A version that cannot be asked for must not cost the run.
            tested = None if subject is None else _tested_system(subject)
            folder = self._environment.run(schedule, name, self._settings.store, subject)
        except StorageError:
            raise
        except FloodmarkError as error:
            self._add(Lost(key=key, sentence=str(error)), self._environment.now_s() - began_s)
            return
        if self._environment.stopping():
            shutil.rmtree(folder, ignore_errors=True)
            return
        ran = Ran(
            key=key,
            why=why,
            folder=str(folder.relative_to(self._settings.store)),
            protocol=schedule.cluster.protocol,
            bugs=schedule.cluster.bugs,
            kinds=kinds,
            file=file,
            expectation=schedule.expectation,
        )
        if tested is not None:
            ran.system, ran.version, ran.given, ran.holds, ran.options = tested
            ran.protocol = system_label(ran.system, ran.version, ran.given)
        self._add(ran, self._environment.now_s() - began_s)

    def _judge(self) -> None:
        """Judge all real runs without a verdict together."""
        began_s = self._environment.now_s()
        for row in judge_all(self._settings.store, self._journal, self._environment):
            now_s = self._environment.now_s()
            self._add(row.judged, now_s - began_s)
            row.tidy()
            began_s = now_s


class _TestedSystem(NamedTuple):
    """Which system a run is of, and whether it should lose nothing: one that declares a safe
    configuration only in that. See `Ran`."""

    name: str
    version: str
    given: str
    holds: bool
    options: tuple[str, ...]


def _given(subject: StormSubject) -> str:
    settings = subject.settings.items()
    return " ".join(f"{name}={value}" for name, value in settings if name != SERVER.name)


def _tested_system(subject: StormSubject) -> _TestedSystem:
    """Raises FloodmarkError where the system cannot be asked for its version."""
    system = registry.find(subject.system, subject.settings)
    safe = system.safe_settings
    return _TestedSystem(
        name=system.short_name,
        version=system.version(),
        given=_given(subject),
        holds=safe is None or system.settings.items() >= safe.items(),
        options=system.run_options(),
    )


def open_journal(
    store: Path, settings: Settings, *, fresh: bool
) -> tuple[Settings, NightlyJournal]:
    """The journal of the nightly run that is meant: `settings.number`, or the one that was left
    unfinished, or (`fresh`, or when there is none) the next. Raises FloodmarkError."""
    known = nightly_journal.numbers(store)
    number = settings.number
    if not number:
        number = known[-1] if known else 1
        ended = (
            known
            and nightly_journal.state_of(
                nightly_journal.read(nightly_journal.journal_of(store, number))
            )
            == FINISHED
        )
        if known and (fresh or ended):
            number += 1
    journal = NightlyJournal(nightly_journal.journal_of(store, number))
    return msgspec.structs.replace(settings, number=number), journal
