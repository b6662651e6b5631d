"""Opens hostile stores with commands that take a folder, beside a folder that must not change.

    python -m tests.lab hostile --cases 300

The n-th store depends on n alone. It is a sound one in which one file was replaced by something
that no command leaves (a link, a FIFO, a device, a hole ..), one field or name leads elsewhere, or
one file is swapped again and again while the commands work. Wrong is: code that ran, a change
outside the store, a command that takes longer than `LIMIT_S`, and an exit code or a traceback that
no sentence explains."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import resource
import shutil
import signal
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from checker.engine.local import check_run
from harness.cli.main import main
from harness.formats.nightly_journal import Ran
from harness.replay.pages import make_baseline, page_of_finding
from harness.search import findings
from harness.search import run as searches
from harness.sim.run import simulate
from node.formats.owned_folder import OwnedFolder
from tests.support import storm_fakes
from tests.support.local_pool import LocalPool
from tests.support.nightly_fakes import loses_a_write, nightly_run, write_nightly_run

LIMIT_S: Final = 60.0
_NOTHING: Final = threading.Event()
"""Far more than any command needs here, also on a machine that is busy."""
PROCESSOR_S: Final = 10.0
"""The processor time that no command may exceed; it does not depend on other load."""
MEMORY_BYTES: Final = 8 << 30
RUN: Final = "storm/20260101T000000"
CODES: Final = (0, 1, 2, 64, 70)
_HOLE_BYTES: Final = 10 << 30
Change = Callable[[Path, Path], None]
SYSTEM_COMMANDS: Final[tuple[tuple[str, ...], ...]] = (
    *(("run", "--schedule"), ("replay",), ("shrink",), ("check",), ("report",)),
)
REPORT: Final = ("report", f"STORE/{RUN}")
SYSTEM: Final = "OUTSIDE/mine.py"
STORMS: Final = (
    *("search", "--system", SYSTEM, "--schedules", "1", "--jobs", "1"),
    *("--store", "STORE", "--quiet"),
)
"""The search of a system of one's own, whose storms take no time and lose a record."""
SEARCHED: Final = (
    *("searches", "searches/*.jsonl", "search-mine-0-*", "search-mine-0-*/*T*"),
    *("search-mine-0-*/latest", "search-mine-0-*/*T*/report.html", "findings"),
    *("findings/mine-*", "findings/mine-*/finding.json", "findings/mine-*/schedule.json"),
)


class Case(NamedTuple):
    """A hostile store: what it is called, what is done to a sound store beside the folder outside,
    the commands to try, and the file that is swapped meanwhile ("" for none)."""

    name: str
    change: Change
    commands: tuple[tuple[str, ...], ...]
    swapped: str = ""


def _link(file: Path, outside: Path) -> None:
    file.symlink_to(outside / "precious")


def _dangling(file: Path, outside: Path) -> None:
    file.symlink_to(outside / "made")


def _link_to_folder(file: Path, outside: Path) -> None:
    file.symlink_to(outside)


def _hard_link(file: Path, outside: Path) -> None:
    os.link(outside / "precious", file)


def fifo(file: Path, outside: Path) -> None:
    os.mkfifo(file)


def device(file: Path, outside: Path) -> None:
    file.symlink_to("/dev/zero")


def hole(file: Path, outside: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(_HOLE_BYTES)


def a_folder(file: Path, outside: Path) -> None:
    file.mkdir()


def _of_another(file: Path, outside: Path) -> None:
    shutil.copyfile(outside / "another", file)


INSTEAD: Final = (
    *(_link, _dangling, _link_to_folder, _hard_link, fifo, device, hole, a_folder),
    _of_another,
)
NAMES: Final = ("../../outside", "/OUTSIDE/x", "..", "", "a\u202eb\udcff\n", "x" * 5000, "LINK/x")
PLACES: Final = ("/OUTSIDE/code.py:Mine", "/OUTSIDE/code.py", "os:system", "STORE/code.py:Mine")
FIELDS: Final = (
    *((f"{RUN}/run.json", field) for field in ("run", "name", "replay", "protocol", "world")),
    *((f"{RUN}/run.json", field) for field in ("brokers", "voters", "partitions", "clients")),
    *(("FINDING/finding.json", field) for field in ("subject", "run", "property", "bucket")),
    ("FINDING/explain.json", "schedule"),
    ("nightly/0001.jsonl", "kept"),
)


def sound_store(store: Path) -> None:
    """Make a store with a failed run, a finding with its run, and what a night leaves."""
    finding = loses_a_write("kill")
    run = store / RUN
    simulate(finding.smallest, seed=1, stop_at="never", keep=run)
    check_run(run, write=True)
    make_baseline(run, lambda sentence: None)
    folder = findings.keep(msgspec.structs.replace(finding, run=str(run)), store)
    (folder / "explain.json").write_text("{}")
    page_of_finding(folder, lambda sentence: None)
    write_nightly_run(store, nightly_run())
    row = Ran(
        key="storm/1",
        protocol="kafka",
        kinds="kill",
        why="storm",
        kept=RUN,
        verdict="invalid",
        sentence="lost",
    )
    (store / "nightly/0001.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")
    (store / "FINDING").symlink_to(folder.relative_to(store))


def cases(sound: Path) -> Iterator[Case]:
    """Yield all hostile stores, drawn from the files of the sound one."""
    finding = str((sound / "FINDING").resolve().relative_to(sound))
    files = sorted(
        str(file.relative_to(sound))
        for file in sound.rglob("*")
        if file.is_file() and not file.is_symlink() and "output" not in file.parts
    )
    folders = [*(f"{RUN}/{name}" for name in ("trace", "logs", "tables", "plots", "finding"))]
    folders += [RUN, "storm", "findings", finding, f"{finding}/simulated", "nightly", "search"]
    folders += ["nightly-0002-x", "known-bugs", "known-bugs/replays", "report.html", "index.html"]
    for number, (file, instead) in enumerate(itertools.product(files, INSTEAD)):
        lines = commands(file, finding)
        kept = (lines[0], lines[1 + number % (len(lines) - 1)])
        yield Case(f"{file} {instead.__name__}", _replaced(file, instead), kept)
    for folder, instead in itertools.product(folders, (_link_to_folder, _dangling, fifo, a_folder)):
        # A link that a person names, such as `latest`, is followed.
        lines = commands(folder, finding)
        if instead is _link_to_folder:
            lines = tuple(line for line in lines if f"STORE/{folder}" not in "/".join(line))
        yield Case(f"{folder} {instead.__name__}", _replaced(folder, instead), lines)
    for (file, field), text in itertools.product(FIELDS, NAMES):
        file = file.replace("FINDING", finding)
        yield Case(f"{file} {field}={text[:20]!r}", _field(file, field, text), commands(file, ""))
    for place in PLACES:
        for command in SYSTEM_COMMANDS:
            words = (*command, f"STORE/{RUN}")
            yield Case(f"{place} {words[0]}", _system(f"{RUN}/run.json", place), (words,))
            words = (*command, f"STORE/{finding}")
            yield Case(f"{place} {words[0]}", _system(f"{finding}/finding.json", place), (words,))
    yield from _without_baseline(finding)
    yield from _searched()
    for file in files:
        yield Case(f"{file} swapped", _replaced("x", a_folder), commands(file, finding), file)


def commands(file: str, finding: str) -> tuple[tuple[str, ...], ...]:
    """Return the command lines to try if this file is hostile, those of its own folder first."""
    run, store = f"STORE/{RUN}", ("--store", "STORE", "--quiet")
    every = (("check", "STORE"), ("report", "STORE"))
    if finding and file.startswith(finding):
        mine = f"STORE/{finding}"
        return (("report", mine), ("replay", mine), ("check", f"{mine}/simulated"), *every)
    if file.startswith("storm"):
        own = (("check", run), ("report", run), ("replay", run), ("replay", run, "--keep", "KEEP"))
        return (*own, ("compare", run, run))
    search = ("search", "--schedules", "1", "--jobs", "1", *store)
    known = ("bugs", "find", "--only", "M2", "--budget", "1s", "--seeds", "1", "--jobs", "1")
    return (*every, search, (*known, *store), ("nightly", "--budget", "1s", "--no-real", *store))


def _without_baseline(finding: str) -> Iterator[Case]:
    """Yield stores whose run has no baseline run yet, so that `report` makes one."""
    for name in ("baseline.json", "schedule.json", "run.json", "results.json", "report.html"):
        for instead in INSTEAD:
            changes = _removed(f"{RUN}/baseline.json"), _replaced(f"{RUN}/{name}", instead)
            yield Case(f"no baseline, {name} {instead.__name__}", _both(*changes), (REPORT,))
    for place in PLACES:
        changes = _removed(f"{RUN}/baseline.json"), _system(f"{RUN}/run.json", place)
        yield Case(f"no baseline, {place}", _both(*changes), (REPORT,))
    for name in ("schedule.json", "run.json", "baseline.json"):
        change = _removed(f"{RUN}/baseline.json")
        yield Case(f"no baseline, {name} swapped", change, (REPORT,), f"{RUN}/{name}")


def _searched() -> Iterator[Case]:
    """Yield stores for a search of a system: untouched ones, and those that one was made in."""
    links = (_link_to_folder, _dangling, fifo, a_folder)
    for name, instead in itertools.product(SEARCHED, links):
        yield Case(f"searched, {name} {instead.__name__}", _after_search(name, instead), (STORMS,))
    for name in ("searches", "search-output.txt", "findings"):
        yield Case(f"not searched, {name} a link", _replaced(name, _link_to_folder), (STORMS,))


def _after_search(pattern: str, instead: Change) -> Change:
    """Return what searches a system and replaces the first file of a pattern that this left."""

    def change(store: Path, outside: Path) -> None:
        said, code, _ = _run(_line(STORMS, store), store.parent)
        name = next(iter(sorted(store.glob(pattern))), None)
        assert code == 1, f"exit code {code}: {said}"
        assert name is not None, f"no {pattern}"
        _replaced(str(name.relative_to(store)), instead)(store, outside)

    return change


def _removed(name: str) -> Change:
    return lambda store, outside: (store / name).unlink()


def _both(first: Change, second: Change) -> Change:
    def change(store: Path, outside: Path) -> None:
        first(store, outside)
        second(store, outside)

    return change


def _replaced(name: str, instead: Change) -> Change:
    def change(store: Path, outside: Path) -> None:
        target = store / name
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        target.unlink(missing_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        instead(target, outside)

    return change


def _field(name: str, field: str, text: str) -> Change:
    def change(store: Path, outside: Path) -> None:
        value = text.replace("/OUTSIDE", str(outside)).replace("LINK", f"{store}/link")
        (store / "link").symlink_to(outside)
        about: dict[str, Any] = json.loads((store / name).read_text())
        was = about.get(field, "")
        about[field] = {value: [value]} if isinstance(was, dict) else value
        (store / name).write_text(json.dumps(about))

    return change


def _system(name: str, place: str) -> Change:
    def change(store: Path, outside: Path) -> None:
        shutil.copyfile(outside / "code.py", store / "code.py")
        named = place.replace("/OUTSIDE", str(outside)).replace("STORE", str(store))
        about: dict[str, Any] = json.loads((store / name).read_text())
        about |= {"system": {"name": named}, "subject": named, "world": "real"}
        (store / name).write_text(json.dumps(about))

    return change


def outside_folder(place: Path) -> Path:
    """Make the folder that must not change, with code that leaves a file if it runs."""
    outside = place / "outside"
    inner = ("a/run.json", "20260101T000000/run.json", "x/schedule.json")
    for name in ("precious", "another", *inner):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_text('{"what": "precious"}\n')
    (outside / "another").write_text('{"what": "a copy of this is in the store"}\n')
    mine = "from tests.support.trial_adapters import Trial\nclass Mine(Trial): pass\n"
    (outside / "mine.py").write_text(mine)
    code = f"from pathlib import Path\nPath({str(outside / 'ran')!r}).touch()\nclass Mine: pass\n"
    (outside / "code.py").write_text(code)
    return outside


def try_case(case: Case, sound: Path, place: Path) -> list[str]:
    """Make the store of a case, run its commands, and return what went wrong."""
    wrong: list[str] = []
    for words in case.commands:
        shutil.rmtree(place, ignore_errors=True)
        outside, store = outside_folder(place), place / "store"
        shutil.copytree(sound, store, symlinks=True)
        (store / "FINDING").unlink(missing_ok=True)
        case.change(store, outside)
        before = _state(outside)
        with _swapping(store / case.swapped if case.swapped else None, outside):
            said, code, took_s = _run(_line(words, store), place)
        problems = [] if _state(outside) == before else ["something changed outside"]
        problems += ["no end in time"] * (code is None)
        problems += [f"{took_s:.0f} s of processor time"] * (took_s > PROCESSOR_S)
        problems += [f"exit code {code}"] * (code is not None and code not in CODES)
        problems += ["a traceback"] * ("Traceback" in said or "unexpected " in said)
        problems += ["no sentence"] * (code in (64, 70) and not said.strip())
        wrong += [f"{case.name}: {words[0]}: {each}: {said[-300:]}" for each in problems]
    return wrong


def _line(words: Sequence[str], store: Path) -> list[str]:
    """Return a command line for a store, beside which the other folders are."""
    places = {"STORE": store, "KEEP": store.parent / "kept", "OUTSIDE": store.parent / "outside"}
    line = list(words)
    for name, place in places.items():
        line = [word.replace(name, str(place)) for word in line]
    return line


def _run(words: Sequence[str], place: Path) -> tuple[str, int | None, float]:
    """Run a command in a process of its own; return what it says on stderr, its exit code (None:
    it was killed) and its processor time in seconds."""
    errors, began_s = place / "errors", time.monotonic()
    child = os.fork()
    if not child:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        with errors.open("wb") as file:
            for number, target in enumerate((os.devnull, os.devnull)):
                os.dup2(os.open(target, os.O_RDWR), number)
            os.dup2(file.fileno(), 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        os.chdir(place)
        # Python's own cache beside an adapter is no harm.
        sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = True, "1"
        code = 99
        try:
            if STORMS[1] in words:
                _make_storms_quick()
            main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 99
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(code)
    while time.monotonic() < began_s + LIMIT_S:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            took_s = used.ru_utime + used.ru_stime
            return _text(errors), os.waitstatus_to_exitcode(status), took_s
        _NOTHING.wait(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return _text(errors), None, 0.0


def _make_storms_quick() -> None:
    """Let each storm of this process lose a record, without a cluster."""
    patch = pytest.MonkeyPatch()
    patch.setattr(searches, "pool_of", lambda *_: LocalPool())
    storm_fakes.FakeStorms(lambda job, run: True, patch)


def _state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return mode, time of change and content of all that is in and below a folder."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        about = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(about.st_mode) else b""
        found[str(path)] = (about.st_mode, about.st_mtime_ns, content)
    return found


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


@contextlib.contextmanager
def _swapping(file: Path | None, outside: Path) -> Iterator[None]:
    """Swap a file with a link and back, without end, in another process."""
    if file is None:
        yield
        return
    child = os.fork()
    if not child:
        away, link = file.with_name(".away"), file.with_name(".link")
        for instead in itertools.cycle((outside / "precious", outside, Path("/dev/zero"))):
            with contextlib.suppress(OSError):
                link.symlink_to(instead)
            for one, other in ((file, away), (link, file), (file, link), (away, file)):
                with contextlib.suppress(OSError):
                    one.rename(other)
                _NOTHING.wait(0.0005)
            link.unlink(missing_ok=True)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def add_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("--cases", type=int, default=0, help="How many, at equal steps; 0: all.")
    options.add_argument("--of", default="0/1", help="A part of them, such as 0/2 and 1/2.")


def run(given: argparse.Namespace) -> int:
    """Try the cases; return 1 if one of them went wrong."""
    part, parts = map(int, given.of.split("/"))
    with OwnedFolder() as place:
        sound = Path(place, "sound")
        sound_store(sound)
        every = list(cases(sound))
        step = max(1, len(every) // given.cases) if given.cases else 1
        chosen, wrong = every[::step][part::parts], []
        for number, case in enumerate(chosen):
            for sentence in try_case(case, sound, Path(place, "case")):
                wrong.append(sentence)
                print(f"{number}: {sentence}", flush=True)
        tried = sum(len(case.commands) for case in chosen)
    print(f"{len(chosen)} hostile stores, {tried} commands: {len(wrong)} wrong")
    return bool(wrong)
