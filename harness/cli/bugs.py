"""`floodmark museum`: finds every known bug again by blind search, and keeps what it found."""

from __future__ import annotations

import datetime
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from multiprocess import get_context

from harness.cli.replay import Replay, outcomes_of
from harness.runs.options import load_schedule
from harness.runs.progress import Progress
from harness.search import known_bugs, known_bugs_table
from harness.search.explain import EXPLANATION, explain, write
from harness.search.known_bugs import CHUNK, Entry, Guarded, Target
from harness.search.known_bugs_table import Replayed
from harness.search.real_schedule import WORLDS, real_form
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError, UsageError

EXIT_ALL: Final = 0
EXIT_OPEN: Final = 1
FIRST_SECONDS: Final = 20.0
"""What the first round gives each search; most exhibits need less."""
T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R")


class _Explained(msgspec.Struct):
    """What is needed of an explanation: the digest of its schedule."""

    schedule: str


class BugSearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the museum, as typed."""

    only: tuple[str, ...] = ()
    seconds: float = 300.0
    seeds: int = 3
    schedules_for_correct: int = 0
    real: int = 0
    real_seconds: float = 0.0
    cores: int = 1
    store: Path = Path("store")
    page: Path | None = None
    json: bool = False
    quiet: bool = False


def find_bugs_command(wish: BugSearchRequest) -> int:
    """Carry out `floodmark museum`; 0 when every exhibit was found and no correct protocol broke,
    else 1. What was done before is not done again. Raises UsageError."""
    wanted = _wanted(wish)
    folder = wish.store / "museum"
    folder.mkdir(parents=True, exist_ok=True)
    with Progress(quiet=wish.quiet) as progress:
        for entry in _hunted(wish, wanted, folder):
            progress.note(_told(entry))
            _save(folder / _name(entry.exhibit, entry.seed), entry)
            if entry.schedule is not None:
                file = folder / f"{entry.exhibit.code}-{entry.seed}.schedule.json".lower()
                file.write_bytes(entry.schedule.to_pretty_json())
        for written in _explained(wish, folder):
            progress.tell(f"explained in {written}")
        for guarded in _guarded(wish, folder):
            progress.note(known_bugs_table.guarded_lines([guarded])[0])
            _save(folder / _guard_name(guarded.protocol, guarded.seed, guarded.first), guarded)
        _replay_for_real(wish, wanted, folder, progress)
    return _tell(wish, folder)


def _wanted(wish: BugSearchRequest) -> list[Target]:
    known = list(known_bugs.exhibits())
    if not wish.only:
        return known
    asked = {name.lower() for name in wish.only}
    wanted = [e for e in known if asked & {e.code.lower(), e.name.lower()}]
    found = {name.lower() for e in wanted for name in (e.code, e.name)}
    if missing := sorted(asked - found):
        raise UsageError(f"the museum has no '{missing[0]}' (see floodmark bugs)")
    return wanted


def _hunted(wish: BugSearchRequest, wanted: list[Target], folder: Path) -> Iterator[Entry]:
    """Search for all that is not found yet, with little time at first and then with twice as much,
    up to what is wished. A search goes on where it stopped; what was found stays."""
    seconds = min(FIRST_SECONDS, wish.seconds)
    while True:
        jobs = []
        for seed in range(wish.seeds):
            for exhibit in wanted:
                before = _load(folder / _name(exhibit, seed), Entry)
                if before is None or known_bugs.unfinished(before, seconds):
                    jobs.append((exhibit, seed, seconds, before))
        yield from _spread(known_bugs.hunt_on, jobs, wish.cores)
        if seconds >= wish.seconds:
            return
        seconds = min(2 * seconds, wish.seconds)


def _explained(wish: BugSearchRequest, folder: Path) -> Iterator[Path]:
    """Say of every schedule in the museum why it fails, unless that was said of it before."""
    jobs = []
    for file in sorted(folder.glob("*.schedule.json")):
        try:
            schedule = load_schedule(file)
        except FloodmarkError:
            continue  # Of another version: `floodmark replay` says why.
        target = file.with_name(file.name.replace(".schedule.json", f".{EXPLANATION}"))
        before = _load(target, _Explained)
        if before is None or before.schedule != schedule.digest():
            jobs.append((schedule, target))
    yield from _spread(explained_in, jobs, wish.cores)


def explained_in(schedule: Schedule, target: Path) -> Path:
    """Write why a schedule fails, as one piece of work; returns where."""
    write(explain(schedule), target)
    return target


def _guarded(wish: BugSearchRequest, folder: Path) -> Iterator[Guarded]:
    """The stretches of schedules on correct protocols that were not done yet."""
    jobs = [
        (protocol, 0, first, CHUNK)
        for first in range(0, wish.schedules_for_correct, CHUNK)
        for protocol in known_bugs.correct_protocols()
        if not (folder / _guard_name(protocol, 0, first)).exists()
    ]
    yield from _spread(known_bugs.guard, jobs, wish.cores)


def _spread(work: Callable[..., R], jobs: list[tuple[Any, ...]], cores: int) -> Iterator[R]:
    """Results as they come, whoever is done first; on one core in this process."""
    if cores == 1:
        yield from (work(*job) for job in jobs)
        return
    with closing(get_context("spawn").Pool(cores, maxtasksperchild=20)) as pool:
        yield from pool.imap_unordered(partial(_done, work), jobs)


def _done(work: Callable[..., R], job: tuple[Any, ...]) -> R:
    """One piece of work, in a process of the pool."""
    return work(*job)


def _replay_for_real(
    wish: BugSearchRequest, wanted: list[Target], folder: Path, progress: Progress
) -> None:
    """Replay on real processes, as often as is wished, the best schedule of each exhibit that has a
    form for them.

    Every replay is kept as soon as it ended, so that this goes on where it stopped. No row is begun
    after `real_seconds`.
    """
    if not wish.real:
        return
    began_s = time.monotonic()
    entries = _all(folder, "*-[0-9]*.entry.json", Entry)
    for exhibit in wanted:
        mine = [e for e in entries if e.exhibit.code == exhibit.code]
        for shown in known_bugs_table.best_first(mine):
            if wish.real_seconds and time.monotonic() - began_s >= wish.real_seconds:
                progress.note(f"{exhibit.code} and what follows it is left to the next time")
                return
            assert shown.schedule is not None
            row = RealRow(folder, shown.exhibit, shown.seed, shown.schedule)
            try:
                for told in row.replays(wish):
                    progress.note(told)
            except FloodmarkError as error:
                progress.note(f"{exhibit.code} could not be replayed: {error}")
            if row.done.surely:
                break


class RealRow:
    """The replays of one shrunk schedule on real processes, and the files they are kept in.

    `CODE-SEED.slow.json` is its form for real processes, `CODE-SEED.real.json` what came of them.
    """

    def __init__(self, folder: Path, exhibit: Target, seed: int, shrunk: Schedule) -> None:
        self._exhibit = exhibit
        self._shrunk = shrunk
        self._form = folder / f"{exhibit.code}-{seed}.slow.json".lower()
        self._kept = self._form.with_name(f"{exhibit.code}-{seed}.real.json".lower())
        nothing = Replayed(code=exhibit.code, seed=seed, failed=0, of=0, schedule=shrunk.digest())
        before = _load(self._kept, Replayed)
        known = before is not None and before.schedule == nothing.schedule
        self.done = before if known and before is not None else nothing
        self._made = known and (self._form.is_file() or not self.done.surely)

    def replays(self, wish: BugSearchRequest) -> Iterator[str]:
        """Make the form if need be, and replay it until there are `wish.real` runs; yields what
        there is to tell. Raises FloodmarkError when a run could not be made."""
        code = self._exhibit.code
        if not self._made:
            form = real_form(self._shrunk, self._exhibit.breaks)
            self.done = msgspec.structs.replace(
                self.done, failed=0, of=0, surely=0 if form is None else form.surely
            )
            if form is not None:
                self._form.write_bytes(form.schedule.to_pretty_json())
            _save(self._kept, self.done)
            yield f"{code}: its real form fails in {self.done.surely} of {WORLDS} worlds"
        if not self.done.surely:
            return
        first = load_schedule(self._form).workload.seed
        while self.done.of < wish.real:
            replay = Replay(
                file=self._form,
                world="real",
                seed=first + self.done.of,
                store=wish.store,
                quiet=wish.quiet,
            )
            for outcome in outcomes_of(replay):
                self.done = msgspec.structs.replace(
                    self.done, of=self.done.of + 1, failed=self.done.failed + outcome.failed
                )
                _save(self._kept, self.done)
                yield f"{code}: failed {self.done.failed} of {self.done.of}: {outcome.sentence}"


def _tell(wish: BugSearchRequest, folder: Path) -> int:
    """Write and print the table of everything that is in the folder."""
    entries = _all(folder, "*.entry.json", Entry)
    guarded = _all(folder, "*.guard.json", Guarded)
    replayed = _all(folder, "*.real.json", Replayed)
    made = known_bugs_table.rows(known_bugs.exhibits(), entries, replayed)
    told = {"rows": made, "correct": guarded}
    (folder / "museum.json").write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=1))
    (folder / "museum.html").write_text(known_bugs_table.as_html(made, guarded), encoding="utf-8")
    if wish.page is not None:
        today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        page = known_bugs_table.as_markdown(made, guarded, date=today, machine=machine())
        wish.page.write_text(page, encoding="utf-8")
    print(
        msgspec.json.encode(told).decode() if wish.json else known_bugs_table.as_text(made, guarded)
    )
    asked = {exhibit.code for exhibit in _wanted(wish)}
    missing = any(not row.found for row in made if row.exhibit.code in asked)
    return EXIT_OPEN if missing or any(g.findings for g in guarded) else EXIT_ALL


def machine() -> str:
    """The machine without its name."""
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, "
        f"Python {platform.python_version()}"
    )


def _told(entry: Entry) -> str:
    what = f"{entry.exhibit.code} ({entry.exhibit.name}), seed {entry.seed}"
    if not entry.found:
        return f"{what}: open after {entry.schedules:,} schedules, {entry.seconds:.0f} s"
    return (
        f"{what}: found after {entry.schedules:,} schedules, {entry.seconds:.0f} s; "
        f"{entry.faults_drawn} faults shrunk to {entry.faults}; steady {entry.steady} of 20"
    )


def _name(exhibit: Target, seed: int) -> str:
    return f"{exhibit.code}-{seed}.entry.json".lower()


def _guard_name(protocol: str, seed: int, first: int) -> str:
    return f"{protocol}-{seed}-{first:07d}.guard.json"


def _save(file: Path, what: msgspec.Struct) -> None:
    """Write a file whole or not at all."""
    new = file.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(what))
    new.replace(file)


def _load(file: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None


def _all(folder: Path, pattern: str, kind: type[T]) -> list[T]:
    found = (_load(file, kind) for file in sorted(folder.glob(pattern)))
    return [one for one in found if one is not None]
