"""The search that finds every known bug again without hints: `floodmark bugs find`.

It is a policy over jobs. Each finished job is a row of one journal, so the search can be stopped at
any moment, and continues when it is started again."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from harness.formats.finding import REAL, SCHEDULE, Finding
from harness.formats.journal import (
    FINISHED,
    STOPPED,
    BeganRow,
    Ended,
    Finished,
    JobJournal,
    JournalRow,
    Lost,
    Searched,
)
from harness.replay.replay import replay
from harness.runs.interrupts import Interrupts
from harness.runs.options import load_schedule
from harness.runs.progress import Progress
from harness.runs.requests import ReplayRequest
from harness.runs.run import machine
from harness.runs.run_folder import remove
from harness.search import findings
from harness.search.catalogue import known_bugs, known_bugs_table
from harness.search.catalogue.known_bugs import SearchTarget, wanted_targets
from harness.search.draw.generator import GENERATOR_VERSION
from harness.search.jobs import EndedJob, Job, Pool, work_through
from harness.search.loop import AnySearchJob, FinishJob, SearchJob
from harness.search.requests import BugSearchRequest
from harness.search.run import simulated_pool
from harness.search.shrink.real_schedule import MOST_RUNS
from harness.search.worlds.bug_world import BugSubject
from harness.search.worlds.simulated import SimulatedSubject
from node.formats.bounds import LargeCount
from node.formats.files import write_whole

FOLDER: Final = "known-bugs"
"""The journal and the tables, in the store."""
SLICE_S: Final = 20.0
"""The longest time in which one job searches for one bug; most need less."""
CHUNK: Final = 250
"""Schedules of a correct protocol that are tried in one job."""
Print = Callable[[str], None]


class BugsBegan(BeganRow, tag="began"):
    """The first line of each session of a search for known bugs."""


class RealReplayed(JournalRow, tag="real"):
    """The result of one replay on real processes; `finding` is the name of a folder."""

    finding: str
    failed: bool
    verdict: str
    sentence: str


BugRow = BugsBegan | Searched | Finished | RealReplayed | Lost | Ended


class RealReplayJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that replays the schedule of a finding once on real processes."""

    key: str
    folder: str
    number: int
    store: str

    def do(self) -> RealReplayed:
        file = Path(self.folder) / REAL
        seed = load_schedule(file).workload.seed + self.number
        once = ReplayRequest(file=file, world="real", seed=seed, store=Path(self.store), quiet=True)
        (outcome,) = replay(once)
        return RealReplayed(
            key=self.key,
            finding=Path(self.folder).name,
            failed=outcome.failed,
            verdict=outcome.verdict,
            sentence=outcome.sentence,
        )


class BugState(msgspec.Struct, kw_only=True):
    """One search for one known bug, with one seed: its cost, and its finding. `core_s` are seconds
    of one core. Of `real_runs` replays of its schedule on real processes, `real_failed` failed."""

    target: SearchTarget
    seed: int
    schedules: LargeCount = 0
    core_s: float = 0.0
    finding: Finding | None = None
    finished: bool = False
    real_failed: LargeCount = 0
    real_runs: LargeCount = 0

    @property
    def prefix(self) -> str:
        """The prefix of the keys of this search's jobs."""
        return f"{self.target.code}/{self.seed}/"


class BugSearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The results of all searches for known bugs in a store, earlier ones too; `bugs.json`.
    `correct` are the searches of protocols that should hold."""

    rows: list[known_bugs_table.Row]
    correct: list[Searched]

    def is_complete(self, only: tuple[str, ...] = ()) -> bool:
        """Return whether all requested bugs were found, and no correct protocol broke a promise."""
        asked = {target.code for target in wanted_targets(only)}
        missing = any(not row.found for row in self.rows if row.target.code in asked)
        return not missing and not any(correct.failures for correct in self.correct)


def find_bugs(
    request: BugSearchRequest,
    interrupts: Interrupts,
    progress: Progress,
    output: Print,
    pool: Pool | None = None,
) -> BugSearchResult:
    """Search for known bugs, shrink and explain the findings, search correct protocols, and replay
    findings on real processes. Skip jobs that the journal has already. Writes `bugs.json` and
    `bugs.html` beside the journal. Raises UsageError for an unknown bug, StorageError when the
    store cannot be written."""
    targets = wanted_targets(request.only)
    folder = request.store / FOLDER
    pool = pool or simulated_pool(request.jobs, request.store)
    progress.phase("searching for known bugs")
    file = folder / "journal.jsonl"
    with closing(pool), closing(JobJournal[BugRow](file, BugRow)) as journal:
        policy = BugSearch(request, targets, journal, output)

        def stop() -> bool:
            progress.tell(policy.status())
            return interrupts.asked

        work_through(policy, pool, stop)
        journal.add(Ended(state=STOPPED if interrupts.asked else FINISHED))
        result = BugSearchResult(
            rows=known_bugs_table.rows(known_bugs.search_targets(), policy.states.values()),
            correct=policy.correct,
        )
    tables = (result.rows, result.correct)
    text = msgspec.json.format(msgspec.json.encode(result), indent=1)
    write_whole(folder / "bugs.json", text, request.store)
    write_whole(folder / "bugs.html", known_bugs_table.as_html(*tables).encode(), request.store)
    if request.page is not None:
        today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        page = known_bugs_table.as_markdown(*tables, date=today, machine=machine())
        write_whole(request.page, page.encode())
    return result


class BugSearch:
    """The policy of a search for known bugs: next is the missing one with the least time."""

    def __init__(
        self,
        request: BugSearchRequest,
        targets: list[SearchTarget],
        journal: JobJournal[BugRow],
        output: Print,
    ) -> None:
        """Continue from the rows of the journal."""
        self.states: dict[tuple[str, int], BugState] = {}
        self.correct: list[Searched] = []
        self._request = request
        self._journal = journal
        self._output = output
        self._running: set[str] = set()
        self._given_up: set[str] = set()
        self._lost: set[str] = set()
        """The prefixes of searches that lost a job: they are given up until the next call."""
        known = {target.code: target for target in known_bugs.search_targets()}
        for row in journal.rows:
            code, seed, *_ = (*row.key.split("/"), "", "")
            if code in known and seed.isdigit():
                self._state(known[code], int(seed))
            self._add(row)
        self._lost.clear()
        self._wanted = [
            self._state(target, seed) for seed in range(request.seeds) for target in targets
        ]
        for state in self._wanted:
            if state.finding is not None:
                # The command may have been killed before it was written.
                state.finding = findings.latest(request.store, state.finding)
                findings.keep(state.finding, request.store)
        for run in self._replays().glob("*/*"):
            if not run.is_symlink() and not (run / "results.json").is_file():
                # It was cut off, and is made again.
                remove(run, self._request.store)
        journal.add(BugsBegan())

    def _state(self, target: SearchTarget, seed: int) -> BugState:
        return self.states.setdefault((target.code, seed), BugState(target=target, seed=seed))

    def _replays(self) -> Path:
        """Return the folder of the replays on real processes."""
        return self._request.store / FOLDER / "replays"

    # -- which job is next

    def next_job(self) -> Job | None:
        job = self._finish_job() or self._search_job() or self._correct_job()
        if job is None and not self._running:
            job = self._real_job()
        if job is not None:
            self._running.add(job.key)
        return job

    def _idle(self) -> list[BugState]:
        """Return the searches that no job works on, and that have lost none."""
        busy = {"/".join(key.split("/")[:2]) + "/" for key in self._running} | self._lost
        return [state for state in self._wanted if state.prefix not in busy]

    def _finish_job(self) -> Job | None:
        for state in self._idle():
            found = state.finding
            if found is None or (state.finished and not self._lacks_form(state)):
                continue
            return FinishJob(
                key=f"{state.prefix}finding",
                subject=BugSubject(target=state.target),
                finding=found,
                store=str(self._request.store),
                form_runs=MOST_RUNS if self._request.real else 0,
            )
        return None

    def _lacks_form(self, state: BugState) -> bool:
        """Return whether a form for real processes is wanted, and was not looked for."""
        key = f"{state.prefix}form"
        return bool(self._request.real) and key not in self._journal.done()

    def _search_job(self) -> Job | None:
        limit_s = self._request.search_s
        still = [s for s in self._idle() if s.finding is None and s.core_s < limit_s]
        if not still:
            return None
        state = min(still, key=lambda state: state.core_s)
        return SearchJob(
            key=f"{state.prefix}{state.schedules}",
            subject=BugSubject(target=state.target),
            seed=state.seed,
            first=state.schedules,
            count=BugSubject(target=state.target).chunk,
            seconds=min(SLICE_S, limit_s - state.core_s),
        )

    def _correct_job(self) -> Job | None:
        made = {row.key for row in self._journal.rows if not isinstance(row, Lost)}
        done = made | self._running | self._given_up
        for first in range(0, self._request.schedules_for_correct, CHUNK):
            for protocol in known_bugs.correct_protocols():
                key = f"correct/{protocol}/generator-{GENERATOR_VERSION}/{first}"
                if key not in done:
                    subject = SimulatedSubject(protocol=protocol, internal=True)
                    return SearchJob(key=key, subject=subject, seed=0, first=first, count=CHUNK)
        return None

    def _real_job(self) -> Job | None:
        """Replay the best finding of each bug that has a real schedule, one run at a time."""
        for code in dict.fromkeys(state.target.code for state in self._wanted):
            mine = [state for state in self._wanted if state.target.code == code]
            with_form = [
                state
                for state in known_bugs_table.best_first(mine)
                if state.finding is not None and state.finding.failing_worlds
            ]
            for state in with_form[:1]:
                if state.real_runs < self._request.real and state.prefix not in self._lost:
                    assert state.finding is not None
                    return RealReplayJob(
                        key=f"{state.prefix}real-{state.real_runs}",
                        folder=str(findings.folder_of(self._request.store, state.finding)),
                        number=state.real_runs,
                        store=str(self._replays()),
                    )
        return None

    def longest_s(self, job: Job) -> float:
        return job.subject.longest_s(job) if isinstance(job, AnySearchJob) else math.inf

    # -- what came of it

    def take(self, ended: EndedJob) -> None:
        self._running.discard(ended.job.key)
        row = ended.row
        if row is None:
            row = Lost(key=ended.job.key, sentence=ended.sentence)
            self._given_up.add(row.key)
        row.seconds = round(ended.seconds, 2)
        self._journal.add(row)
        if isinstance(row, Finished) and self._request.real:
            # Whether a form was looked for is a job of its own in the journal.
            form = msgspec.structs.replace(row, key=row.key.removesuffix("finding") + "form")
            self._journal.add(form)
        self._add(row)
        self._tell(row)

    def cut_off(self, job: Job) -> None:
        """Keep all files of a killed job, because the job is done again (see `Policy`)."""

    def _add(self, row: BugRow) -> None:
        code, seed, *_ = (*row.key.split("/"), "", "")
        if isinstance(row, Searched) and code == "correct":
            self.correct.append(row)
            return
        if not seed.isdigit() or (code, int(seed)) not in self.states:
            return
        state = self.states[code, int(seed)]
        match row:
            case Searched():
                self._searched(state, row)
            case Finished():
                state.finding, state.finished = row.finding, True
                findings.keep(row.finding, self._request.store)
            case RealReplayed():
                state.real_runs += 1
                state.real_failed += row.failed
            case Lost():
                self._lost.add(state.prefix)

    def _searched(self, state: BugState, row: Searched) -> None:
        """Count a slice of a search; of another generator's schedules only the find counts."""
        if row.generator != GENERATOR_VERSION and not row.findings:
            return
        state.schedules += row.schedules
        state.core_s = round(state.core_s + row.core_s, 2)
        for finding in row.findings[:1]:
            state.finding = msgspec.structs.replace(
                finding, schedules_before=state.schedules - 1, seconds_before=state.core_s
            )
            findings.keep(state.finding, self._request.store)

    def status(self) -> str:
        """Return a line on the progress of the search."""
        found = sum(state.finding is not None for state in self._wanted)
        return f"{found} of {len(self._wanted)} searches found their bug"

    def _tell(self, row: BugRow) -> None:
        """Print a line if a job found something."""
        code, seed, *_ = (*row.key.split("/"), "", "")
        what = f"{code}, seed {seed}"
        match row:
            case Searched() if code == "correct":
                self._output(known_bugs_table.correct_lines([row])[0])
            case Searched() if row.findings:
                state = self.states[code, int(seed)]
                self._output(
                    f"{what}: found after {state.schedules:,} schedules, {state.core_s:.0f} s"
                )
            case Finished():
                found = row.finding
                self._output(
                    f"{what}: {len(found.drawn.faults)} faults shrunk to {len(found.faults)}; "
                    f"steady {found.stability} of 20; kept in {row.folder}/{SCHEDULE}"
                )
            case RealReplayed():
                self._output(f"{what}: on real processes {row.verdict}: {row.sentence}")
            case Lost():
                self._output(f"{row.key}: {row.sentence}")
