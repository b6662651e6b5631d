"""A whole nightly run, from its journal to its page: `floodmark nightly`.

A session is the policy that says which job is next (`plan`), until the budget is used up. Each
finished job becomes a row of the journal at once, and the session keeps no other state. So a
nightly run can end at any moment (by itself, a signal, a full disk, SIGKILL) and continue later.
Simulated jobs run at the same time; a run of real processes has the machine for itself."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from harness.formats import nightly_journal
from harness.formats.journal import (
    FINISHED,
    STOPPED,
    Ended,
    JobJournal,
    Lost,
    SearchedRow,
    state_of,
)
from harness.formats.nightly_journal import AnyRow, Began, Ran, Skipped
from harness.formats.nightly_run import FOLDER, NightlyRun, nightly_runs
from harness.nightly import plan, rows, summary
from harness.nightly.counting import prune
from harness.nightly.kinds import KINDS
from harness.nightly.night import Kind, Night, NightlyEnvironment, RealJob
from harness.nightly.requests import NightlyRequest
from harness.runs.host import kind_of
from harness.runs.interrupts import Interrupts
from harness.runs.progress import Progress
from harness.runs.run import machine
from harness.runs.run_folder import remove
from harness.search.jobs import MOST_LOSSES_IN_A_ROW, EndedJob, Job, work_through
from harness.systems.external.links import enter_for
from node.formats.errors import FloodmarkError, StorageError, UsageError
from node.formats.files import write_whole
from node.formats.host_errors import reason, refused
from node.formats.json_input import read_bytes
from reports.nightly_page.index_model import still_open

DISK_FULL: Final = "disk-full"
FAILED: Final = "failed"
LATE_S: Final = 600.0
"""The time beyond its limit after which a job's process is killed."""
_TOO_LITTLE_S: Final = 1.0


class NightlySession:
    """One session of a nightly run: from the start of the command to its end. Its work is of the
    kind that has used the least of its share; the jobs of one batch run at the same time."""

    def __init__(self, night: Night) -> None:
        request = night.request
        self._night = night
        self._systems_share = request.systems_share if night.systems else 0
        self._rows_share = request.rows_share if request.rows else 0
        self._kinds = {name: kind(night) for name, kind in KINDS.items()}
        self._idle = {name for name, kind in KINDS.items() if kind.real and not request.real}
        self._kind: Kind | None = None
        self._batch: list[Job] = []
        self._together = 1
        self.state = ""
        self.sentence = ""

    def work(self) -> str:
        """Work until the budget is used up. Record and return how the session ended."""
        environment = self._night.environment
        try:
            self._add_first()
            self._remove_cut_off()
            work_through(self, environment.pool, environment.stopping)
            if environment.stopping():
                self.state = STOPPED
                self._remove_cut_off()
        except (FloodmarkError, OSError) as error:
            self._fail(error)
        try:
            self._night.add(Ended(state=self.state))
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
        if self._night.environment.pool.running or self.state:
            return None
        if self._kind is not None and self._is_hopeless(self._kind.name):
            self._idle.add(self._kind.name)
        while self._may_go_on():
            self._kind = self._next_kind()
            if self._kind is None:
                self.state = FINISHED
                return None
            self._batch = self._kind.jobs()
            self._together = len(self._batch)
            if self._batch:
                self._night.environment.status(f"{self._kind.name}; {self._so_far()}")
                return self._batch.pop(0)
            self._idle.add(self._kind.name)
        return None

    def longest_s(self, job: Job) -> float:
        if isinstance(job, RealJob):
            return job.schedule.workload.duration_ms / 1000 + LATE_S
        return self._night.left_s() + LATE_S

    def take(self, ended: EndedJob) -> None:
        """Record a job that is done, or lost (see `Policy`)."""
        seconds, row = ended.seconds / self._together, ended.row
        if row is not None:
            assert self._kind is not None
            row = self._kind.done(row)
        elif ended.error == StorageError.__name__:
            raise StorageError(ended.sentence)
        else:
            row = Lost(key=ended.job.key, sentence=ended.sentence)
        self._night.add(row, seconds)
        if isinstance(row, Ran) and row.kept:
            prune(self._night.store, self._night.request.kept_per_class)

    def _may_go_on(self) -> bool:
        """Return whether there is room for another job."""
        request = self._night.request
        if self._night.environment.free_bytes() >= request.least_free_bytes:
            return True
        self.sentence = f"{request.store}: less than {request.least_free_bytes >> 20} MB are free"
        self.state = DISK_FULL
        return False

    def _next_kind(self) -> Kind | None:
        """Return the kind of work whose turn it is; None if no time or nothing to do is left."""
        night = self._night
        if night.request.real and plan.CANARY not in night.journal.done():
            return self._kinds[plan.CANARY]
        if night.left_s() < _TOO_LITTLE_S:
            return None
        shares = plan.shares(self._systems_share, self._rows_share)
        name = plan.next_share(summary.spent(night.journal.rows), self._idle, shares)
        return None if name is None else self._kinds[name]

    def _is_hopeless(self, name: str) -> bool:
        """Return whether a kind of work has lost too many jobs in a row, and give it up."""
        last = self._night.rows(name)[-MOST_LOSSES_IN_A_ROW:]
        lost = [row.sentence for row in last if isinstance(row, Lost)]
        if len(lost) < MOST_LOSSES_IN_A_ROW:
            return False
        why = f"given up after {len(lost)} lost jobs in a row; the last: {lost[-1]}"
        self._night.skip(name, why)
        return True

    def _so_far(self) -> str:
        rows = self._night.journal.rows
        searched = sum(row.runs for row in rows if isinstance(row, SearchedRow))
        runs = sum(isinstance(row, Ran) for row in rows)
        return f"{searched:,} simulated and {runs} real runs so far"

    def _add_first(self) -> None:
        night, request = self._night, self._night.request
        began = Began(
            number=request.number,
            seed=night.seed,
            budget_s=request.budget_s,
            cores=request.cores,
            started=datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds"),
            machine=machine(),
            real=request.real,
            systems_share=self._systems_share,
            rows_share=self._rows_share,
            systems=tuple(subject.identity for subject in night.systems),
        )
        night.add(began)
        known = {row.key for row in night.journal.rows if isinstance(row, Skipped)}
        for tool, sentence in night.environment.missing_tools().items():
            if tool not in known:
                night.skip(tool, sentence)

    def _remove_cut_off(self) -> None:
        """Remove the real runs that were cut off: they are made again."""
        store = self._night.store
        kept = {row.kept for row in self._night.journal.rows if isinstance(row, Ran)}
        for folder in store.glob(f"{self._night.prefix}*/*"):
            inside = folder.is_dir() and not folder.is_symlink()
            if inside and str(folder.relative_to(store)) not in kept:
                remove(folder, store)


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


JUNIT = "junit.xml"
MakeEnvironment = Callable[[NightlyRequest, Interrupts, Progress], NightlyEnvironment]


def run_nightly(settings: NightlyRequest, make_environment: MakeEnvironment | None = None) -> int:
    """Start a nightly run, or continue an unfinished one, and report it; return the exit code.
    `make_environment` replaces the real environment in tests. Raises FloodmarkError if the nightly
    run cannot begin, for instance while another process has its journal open."""
    settings = plan.with_whole_budget(settings)
    systems = plan.systems_of(settings.systems, settings.consumers)
    accepted = _accepted(settings.accepted)
    enter_for(s.system for s in (*systems, *(rows.table() if settings.rows else ())))
    settings, journal = open_journal(settings)
    past = [n for n in nightly_runs(settings.store)[0] if n.number < settings.number]
    with closing(journal), Interrupts() as interrupts, Progress(quiet=settings.quiet) as progress:
        environment = (make_environment or _real)(settings, interrupts, progress)
        session = NightlySession(Night(settings, systems, environment, journal, past))
        progress.phase(f"nightly run {settings.number} in {settings.store}", settings.budget_s)
        with closing(environment.pool):
            state = session.work()
        nightly = summary.summarise(journal.rows, settings.store, accepted)
        # On a full disk even the last line may be missing.
        nightly.state = state
        nightly.open = _still_open([*past, nightly], settings.store, accepted)
        return _report(settings, nightly, past, session.sentence)


def _accepted(file: Path | None) -> set[str]:
    """Return the keys in a file of accepted buckets, the first word of each line. Raises
    UsageError if it cannot be read."""
    if file is None:
        return set()
    try:
        lines = read_bytes(file).decode(errors="replace").splitlines()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {reason(error)}") from None
    return {line.split()[0] for line in lines if line.strip()}


def _still_open(known: list[NightlyRun], store: Path, accepted: Collection[str]) -> list[str]:
    """Return the open buckets of earlier nightly runs that are not accepted, a line each."""
    left = still_open(known, lambda path: bool(path) and (store / path).is_file())
    return [
        f"{s.shown.protocol}: {s.shown.name} ({s.shown.world}, last met in nightly run {s.last})"
        for s in left
        if s.shown.key not in accepted
    ]


def _real(
    settings: NightlyRequest, interrupts: Interrupts, progress: Progress
) -> NightlyEnvironment:
    output = settings.store / FOLDER / f"{settings.number:04d}.txt"
    return NightlyEnvironment(settings.store, output, settings.cores, interrupts, progress)


def _report(
    settings: NightlyRequest, nightly: NightlyRun, past: list[NightlyRun], sentence: str
) -> int:
    """Write the summary, the JUnit file and the index, and print the summary."""
    from reports.nightly_page.index_page import build_index

    if sentence:
        nightly.problems.insert(0, sentence)
        _print_error(sentence)
    known = [*past, nightly]
    code = summary.exit_code(nightly)
    try:
        text = msgspec.json.format(msgspec.json.encode(nightly), indent=1)
        record = settings.store / FOLDER / f"{nightly.number:04d}.json"
        write_whole(record, text + b"\n", settings.store)
        write_whole(settings.junit or settings.store / JUNIT, summary.junit(known))
        page: Path | None = build_index(settings.store)
    except FloodmarkError as error:
        if nightly.state != DISK_FULL:
            _print_error(str(error))
            code = summary.EXIT_HARNESS
        page = None
    if settings.json:
        sys.stdout.write(msgspec.json.encode(nightly).decode() + "\n")
    else:
        sys.stdout.write(summary.summary(known) + "\n")
        if page is not None:
            sys.stdout.write(f"  page        {page}\n")
    return code


def _print_error(sentence: str) -> None:
    print(f"floodmark: {' '.join(sentence.split())}", file=sys.stderr)  # noqa: T201
