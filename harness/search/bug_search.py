"""Finds every known bug again by blind search, and keeps what it found.

Everything that was done is a file of its own in `store/known-bugs/`, so a search can be stopped at
any moment and goes on from there.
"""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from multiprocess import get_context

from harness.formats.finding import EXPLANATION, Explanation
from harness.formats.options import worker_count
from harness.replay.replay import replay
from harness.runs.options import load_schedule
from harness.runs.progress import Progress
from harness.runs.requests import ReplayRequest
from harness.search import known_bugs, known_bugs_table
from harness.search.explain import explain, write
from harness.search.generator import GENERATOR_VERSION
from harness.search.known_bugs import CHUNK, STORE_FOLDER, CorrectRuns, Entry, SearchTarget
from harness.search.known_bugs_table import ReplayCount
from harness.search.real_schedule import WORLDS, real_schedule
from harness.search.requests import BugSearchRequest
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError, UsageError, unknown_name
from node.formats.files import write_whole
from node.formats.json_input import Unreadable, read_file

FIRST_SECONDS: Final = 20.0
"""What the first round gives each search; most bugs need less."""
T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R")


class BugSearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """All that is in the store, also from earlier searches; `bugs.json`."""

    rows: list[known_bugs_table.Row]
    correct: list[CorrectRuns]

    def is_complete(self, only: tuple[str, ...] = ()) -> bool:
        """Whether every bug asked for was found and no correct protocol broke a promise."""
        asked = {target.code for target in wanted_targets(only)}
        missing = any(not row.found for row in self.rows if row.target.code in asked)
        return not missing and not any(correct.findings for correct in self.correct)


def find_bugs(request: BugSearchRequest, progress: Progress) -> BugSearchResult:
    """Search, explain, check correct protocols, and replay. Nothing is done twice.

    Writes `bugs.json` and `bugs.html` beside the entries. Raises UsageError for a bug that nobody
    knows, StorageError when the store cannot be written.
    """
    targets = wanted_targets(request.only)
    folder = request.store / STORE_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for entry in _searched(request, targets, folder):
        progress.note(_entry_text(entry))
        _save(folder / _entry_name(entry.target, entry.seed), entry)
        if entry.schedule is not None:
            file = folder / f"{entry.target.code}-{entry.seed}.schedule.json".lower()
            file.write_bytes(entry.schedule.to_pretty_json())
    for written in _explained(request, folder):
        progress.tell(f"explained in {written}")
    for correct in _correct_runs(request, folder):
        progress.note(known_bugs_table.correct_lines([correct])[0])
        _save(folder / _correct_name(correct.protocol, correct.first), correct)
    _replay_for_real(request, targets, folder, progress)
    return _write_tables(request, folder)


def wanted_targets(only: tuple[str, ...] = ()) -> list[SearchTarget]:
    """The known bugs with these codes or names, all when none is named. Raises UsageError."""
    known = list(known_bugs.search_targets())
    if not only:
        return known
    asked = {name.lower() for name in only}
    wanted = [e for e in known if asked & {e.code.lower(), e.name.lower()}]
    found = {name.lower() for e in wanted for name in (e.code, e.name)}
    if missing := [name for name in only if name.lower() not in found]:
        names = [name for target in known for name in (target.code, target.name)]
        raise UsageError(unknown_name("bug", missing[0], names, "`floodmark bugs` lists them"))
    return wanted


def _searched(
    request: BugSearchRequest, targets: list[SearchTarget], folder: Path
) -> Iterator[Entry]:
    """Search for each target that is not found yet, with a time limit that doubles each round.

    A search continues where it stopped.
    """
    seconds = min(FIRST_SECONDS, request.search_s)
    while True:
        jobs = []
        for seed in range(request.seeds):
            for target in targets:
                before = _load(folder / _entry_name(target, seed), Entry)
                if before is None or known_bugs.unfinished(before, seconds):
                    jobs.append((target, seed, seconds, before))
        yield from _spread(known_bugs.continue_search, jobs, worker_count(request.jobs))
        if seconds >= request.search_s:
            return
        seconds = min(2 * seconds, request.search_s)


def _explained(request: BugSearchRequest, folder: Path) -> Iterator[Path]:
    """Explain every schedule of the folder that is not explained yet."""
    jobs = []
    for file in sorted(folder.glob("*.schedule.json")):
        try:
            schedule = load_schedule(file)
        except FloodmarkError:
            continue  # Of another version: `floodmark replay` says why.
        target = file.with_name(file.name.replace(".schedule.json", f".{EXPLANATION}"))
        before = _load(target, Explanation)
        if before is None or before.schedule != schedule.digest():
            jobs.append((schedule, target))
    yield from _spread(explain_to_file, jobs, worker_count(request.jobs))


def explain_to_file(schedule: Schedule, target: Path) -> Path:
    """Write why a schedule fails; returns the file."""
    write(explain(schedule), target)
    return target


def _correct_runs(request: BugSearchRequest, folder: Path) -> Iterator[CorrectRuns]:
    """Runs of correct protocols that were not made yet with this generator."""
    jobs = [
        (protocol, 0, first, CHUNK)
        for first in range(0, request.schedules_for_correct, CHUNK)
        for protocol in known_bugs.correct_protocols()
        if not (folder / _correct_name(protocol, first)).exists()
    ]
    yield from _spread(known_bugs.check_correct, jobs, worker_count(request.jobs))


def _spread(work: Callable[..., R], jobs: list[tuple[Any, ...]], cores: int) -> Iterator[R]:
    """Results as they come, in any order; on one core in this process."""
    if cores == 1:
        yield from (work(*job) for job in jobs)
        return
    with closing(get_context("spawn").Pool(cores, maxtasksperchild=20)) as pool:
        yield from pool.imap_unordered(partial(_done, work), jobs)


def _done(work: Callable[..., R], job: tuple[Any, ...]) -> R:
    """One job, in a process of the pool."""
    return work(*job)


def _replay_for_real(
    request: BugSearchRequest, targets: list[SearchTarget], folder: Path, progress: Progress
) -> None:
    """Replay the best schedule of each bug that has a real schedule.

    Every replay is kept as soon as it ended.
    """
    if not request.real:
        return
    entries = _all(folder, "*-[0-9]*.entry.json", Entry)
    for target in targets:
        mine = [e for e in entries if e.target.code == target.code]
        for shown in known_bugs_table.best_first(mine):
            assert shown.schedule is not None
            row = RealReplays(folder, shown.target, shown.seed, shown.schedule)
            try:
                for line in row.replays(request):
                    progress.note(line)
            except FloodmarkError as error:
                progress.note(f"{target.code} could not be replayed: {error}")
            if row.done.failing_worlds:
                break


class RealReplays:
    """The replays of one shrunk schedule on real processes, and the files they are kept in.

    `CODE-SEED.slow.json` is its real schedule, `CODE-SEED.real.json` has the results.
    """

    def __init__(self, folder: Path, target: SearchTarget, seed: int, shrunk: Schedule) -> None:
        self._target = target
        self._shrunk = shrunk
        self._file = folder / f"{target.code}-{seed}.slow.json".lower()
        self._kept = self._file.with_name(f"{target.code}-{seed}.real.json".lower())
        nothing = ReplayCount(code=target.code, seed=seed, failed=0, of=0, schedule=shrunk.digest())
        before = _load(self._kept, ReplayCount)
        known = before is not None and before.schedule == nothing.schedule
        self.done = before if known and before is not None else nothing
        self._made = known and (self._file.is_file() or not self.done.failing_worlds)

    def replays(self, request: BugSearchRequest) -> Iterator[str]:
        """Make the real schedule if there is none, and replay it up to `request.real` times.

        Yields a line for each. Raises FloodmarkError when a run could not be made.
        """
        code = self._target.code
        if not self._made:
            made = real_schedule(self._shrunk, self._target.breaks)
            self.done = msgspec.structs.replace(
                self.done, failed=0, of=0, failing_worlds=0 if made is None else made.failing_worlds
            )
            if made is not None:
                self._file.write_bytes(made.schedule.to_pretty_json())
            _save(self._kept, self.done)
            worlds = self.done.failing_worlds
            yield f"{code}: its real schedule fails in {worlds} of {WORLDS} worlds"
        if not self.done.failing_worlds:
            return
        first = load_schedule(self._file).workload.seed
        while self.done.of < request.real:
            once = ReplayRequest(
                file=self._file,
                world="real",
                seed=first + self.done.of,
                store=request.store,
                quiet=request.quiet,
            )
            for outcome in replay(once):
                self.done = msgspec.structs.replace(
                    self.done, of=self.done.of + 1, failed=self.done.failed + outcome.failed
                )
                _save(self._kept, self.done)
                yield f"{code}: failed {self.done.failed} of {self.done.of}: {outcome.sentence}"


def _write_tables(request: BugSearchRequest, folder: Path) -> BugSearchResult:
    """Write the tables of everything that is in the folder."""
    entries = _all(folder, "*.entry.json", Entry)
    replayed = _all(folder, "*.real.json", ReplayCount)
    result = BugSearchResult(
        rows=known_bugs_table.rows(known_bugs.search_targets(), entries, replayed),
        correct=_all(folder, "*.correct.json", CorrectRuns),
    )
    tables = (result.rows, result.correct)
    write_whole(folder / "bugs.json", msgspec.json.format(msgspec.json.encode(result), indent=1))
    write_whole(folder / "bugs.html", known_bugs_table.as_html(*tables).encode())
    if request.page is not None:
        today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        page = known_bugs_table.as_markdown(*tables, date=today, machine=machine())
        write_whole(request.page, page.encode())
    return result


def machine() -> str:
    """The machine without its name."""
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, "
        f"Python {platform.python_version()}"
    )


def _entry_text(entry: Entry) -> str:
    what = f"{entry.target.code} ({entry.target.name}), seed {entry.seed}"
    if not entry.found:
        return f"{what}: open after {entry.schedules:,} schedules, {entry.seconds:.0f} s"
    return (
        f"{what}: found after {entry.schedules:,} schedules, {entry.seconds:.0f} s; "
        f"{entry.faults_drawn} faults shrunk to {entry.faults}; steady {entry.stability} of 20"
    )


def _entry_name(target: SearchTarget, seed: int) -> str:
    return f"{target.code}-{seed}.entry.json".lower()


def _correct_name(protocol: str, first: int) -> str:
    return f"{protocol}-generator-{GENERATOR_VERSION}-{first:07d}.correct.json"


def _save(file: Path, what: msgspec.Struct) -> None:
    write_whole(file, msgspec.json.encode(what))


def _load(file: Path, kind: type[T]) -> T | None:
    try:
        return read_file(file, kind)
    except (OSError, Unreadable):
        return None


def _all(folder: Path, pattern: str, kind: type[T]) -> list[T]:
    found = (_load(file, kind) for file in sorted(folder.glob(pattern)))
    return [one for one in found if one is not None]
