"""`floodmark museum`: finds every known bug again by blind search, and keeps what it found."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from multiprocess import get_context

from harness.cli_replay import Replay, outcomes_of
from harness.options import load_schedule
from harness.progress import Progress
from harness.search import museum, museum_table
from harness.search.explain import EXPLANATION, explain, write
from harness.search.museum import CHUNK, Entry, Exhibited, Guarded
from harness.search.museum_table import Replayed
from harness.search.real_form import real_form
from nemesis.schedule import Schedule
from node.errors import FloodmarkError, UsageError

EXIT_ALL: Final = 0
EXIT_OPEN: Final = 1
FIRST_SECONDS: Final = 20.0
"""What the first round gives each search; most exhibits need less."""
T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R")


class _Explained(msgspec.Struct):
    """What is needed of an explanation: the digest of its schedule."""

    schedule: str


class MuseumWish(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the museum, as typed."""

    only: tuple[str, ...] = ()
    seconds: float = 300.0
    seeds: int = 3
    schedules_for_correct: int = 0
    real: int = 0
    cores: int = 1
    store: Path = Path("store")
    page: Path | None = None
    json: bool = False
    quiet: bool = False


def museum_command(wish: MuseumWish) -> int:
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
            progress.note(museum_table.guarded_lines([guarded])[0])
            _save(folder / _guard_name(guarded.protocol, guarded.seed, guarded.first), guarded)
        _replay_for_real(wish, wanted, folder)
    return _tell(wish, folder)


def _wanted(wish: MuseumWish) -> list[Exhibited]:
    known = list(museum.exhibits())
    if not wish.only:
        return known
    asked = {name.lower() for name in wish.only}
    wanted = [e for e in known if asked & {e.code.lower(), e.name.lower()}]
    found = {name.lower() for e in wanted for name in (e.code, e.name)}
    if missing := sorted(asked - found):
        raise UsageError(f"the museum has no '{missing[0]}' (see floodmark switches)")
    return wanted


def _hunted(wish: MuseumWish, wanted: list[Exhibited], folder: Path) -> Iterator[Entry]:
    """Search for all that is not found yet, with little time at first and then with twice as much,
    up to what is wished. A search goes on where it stopped; what was found stays."""
    seconds = min(FIRST_SECONDS, wish.seconds)
    while True:
        jobs = []
        for seed in range(wish.seeds):
            for exhibit in wanted:
                before = _load(folder / _name(exhibit, seed), Entry)
                if before is None or museum.unfinished(before, seconds):
                    jobs.append((exhibit, seed, seconds, before))
        yield from _spread(museum.hunt_on, jobs, wish.cores)
        if seconds >= wish.seconds:
            return
        seconds = min(2 * seconds, wish.seconds)


def _explained(wish: MuseumWish, folder: Path) -> Iterator[Path]:
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


def _guarded(wish: MuseumWish, folder: Path) -> Iterator[Guarded]:
    """The stretches of schedules on correct protocols that were not done yet."""
    jobs = [
        (protocol, 0, first, CHUNK)
        for first in range(0, wish.schedules_for_correct, CHUNK)
        for protocol in museum.correct_protocols()
        if not (folder / _guard_name(protocol, 0, first)).exists()
    ]
    yield from _spread(museum.guard, jobs, wish.cores)


def _spread(work: Callable[..., R], jobs: list[tuple[Any, ...]], cores: int) -> Iterator[R]:
    """Results as they come; on one core in this process."""
    if cores == 1:
        yield from (work(*job) for job in jobs)
        return
    with closing(get_context("spawn").Pool(cores, maxtasksperchild=20)) as pool:
        pending = [pool.apply_async(work, job) for job in jobs]
        yield from (result.get() for result in pending)


def _replay_for_real(wish: MuseumWish, wanted: list[Exhibited], folder: Path) -> None:
    """Replay the best schedule of each exhibit on real processes, unless that was done."""
    if not wish.real:
        return
    entries = _all(folder, "*-[0-9]*.entry.json", Entry)
    for exhibit in wanted:
        shown = museum_table.best([e for e in entries if e.exhibit.code == exhibit.code])
        if shown is None or shown.schedule is None:
            continue
        stem = f"{exhibit.code}-{shown.seed}".lower()
        target = folder / f"{stem}.real.json"
        if target.exists():
            continue
        form = real_form(shown.schedule, exhibit.breaks)
        file = folder / f"{stem}.slow.json"
        file.write_bytes((shown.schedule if form is None else form.schedule).to_pretty_json())
        replay = Replay(
            file=file, world="real", times=wish.real, store=wish.store, quiet=wish.quiet
        )
        failed = sum(outcome.failed for outcome in outcomes_of(replay))
        _save(target, Replayed(code=exhibit.code, seed=shown.seed, failed=failed, of=wish.real))


def _tell(wish: MuseumWish, folder: Path) -> int:
    """Write and print the table of everything that is in the folder."""
    entries = _all(folder, "*.entry.json", Entry)
    guarded = _all(folder, "*.guard.json", Guarded)
    replayed = _all(folder, "*.real.json", Replayed)
    made = museum_table.rows(museum.exhibits(), entries, replayed)
    told = {"rows": made, "correct": guarded}
    (folder / "museum.json").write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=1))
    (folder / "museum.html").write_text(museum_table.as_html(made, guarded), encoding="utf-8")
    if wish.page is not None:
        today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        page = museum_table.as_markdown(made, guarded, date=today, machine=machine())
        wish.page.write_text(page, encoding="utf-8")
    print(msgspec.json.encode(told).decode() if wish.json
          else museum_table.as_text(made, guarded))  # fmt: skip
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


def _name(exhibit: Exhibited, seed: int) -> str:
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
