"""A blind search for small bugs: changes of a line or two of the broker (`small_bugs.toml`).

Each search has a process of its own. It compiles the changed text in place of one file, draws
schedules as `floodmark search` does, and ends at the first finding: a run that breaks a property,
or an invariant inside the cluster, and nothing without the bug. Time is processor time; sources
are run, not compiled code. A result is a file in the store: no search is made twice."""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from harness.search.worlds.subject import Drawn

ROOT: Final = Path(__file__).resolve().parent.parent.parent
FILE: Final = Path(__file__).with_name("small_bugs.toml")
CLASSES: Final = ("safety", "liveness")


class SmallBug(msgspec.Struct, frozen=True):
    """One bug: `old`, which is once in `file`, becomes `new`; so does `also_old`."""

    code: str
    name: str
    file: str
    protocol: str
    kind: Literal["safety", "liveness"] = msgspec.field(name="class")
    because: str
    old: str
    new: str
    also_old: str = ""
    also_new: str = ""

    @property
    def module(self) -> str:
        """The module that the bug is in."""
        return self.file.removesuffix(".py").replace("/", ".")

    def changed_source(self) -> str:
        """Return the text of the file with the bug. Raises ValueError if it does not apply."""
        text = (ROOT / self.file).read_text("utf-8")
        for old, new in ((self.old, self.new), (self.also_old, self.also_new)):
            if old and text.count(old) != 1:
                raise ValueError(f"{self.code}: {text.count(old)} times in {self.file}: {old!r}")
            text = text.replace(old, new) if old else text
        return text


def small_bugs() -> list[SmallBug]:
    """Return all of them, in the order of the file."""
    return msgspec.convert(tomllib.loads(FILE.read_text("utf-8"))["bug"], list[SmallBug])


def turn_on(bug: SmallBug) -> None:
    """Give this process the bug. Raises RuntimeError if its module was imported already."""
    if bug.module in sys.modules:
        raise RuntimeError(f"{bug.module} was imported without {bug.code}")
    made = sys.modules[bug.module] = ModuleType(bug.module)
    exec(compile(bug.changed_source(), f"{bug.file} with {bug.code}", "exec"), vars(made))


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one search. `breaks` is the class of the find, "" if nothing was found. `seen`:
    clients, traces or logs show it, not only an invariant inside the cluster. `others` counts
    failures that the protocol has without the bug."""

    code: str
    seed: int
    schedules: int
    seconds: float
    breaks: str = ""
    seen: bool = False
    sentence: str = ""
    others: int = 0
    schedule: bytes = b""


def search(bug: SmallBug, seed: int, seconds: float) -> Searched:
    """Search until a find or the end of the time, each part in a process that has the bug."""
    from harness.search.worlds.outcome import run_simulated
    from harness.search.worlds.simulated import SimulatedSubject
    from nemesis.formats.schedule import parse

    subject = SimulatedSubject(protocol=bug.protocol)
    state = Searched(code=bug.code, seed=seed, schedules=0, seconds=0.0)
    while True:
        order = msgspec.json.encode((bug.code, seconds, state))
        made = subprocess.run(
            [sys.executable, "-m", "tests.lab.small_bugs"],
            input=order,
            stdout=subprocess.PIPE,
            check=True,
            cwd=ROOT,
            env={**os.environ, "FLOODMARK_PURE": "1"},
            timeout=100 * seconds + 600,
        )
        state = msgspec.json.decode(made.stdout, type=Searched)
        if not state.breaks:
            return state
        if not subject.bucket(run_simulated(parse(state.schedule), stop_at="never")):
            return state
        # The protocol breaks here by itself: it was not the bug.
        state = msgspec.structs.replace(state, breaks="", schedule=b"", others=state.others + 1)


def _search_here(bug: SmallBug, seconds: float, before: Searched) -> Searched:
    """Go on with a search in this process, which has the bug."""
    from harness.search.worlds.simulated import SimulatedSubject
    from harness.search.worlds.subject import RunFolders

    subject = SimulatedSubject(protocol=bug.protocol)
    began_s = time.process_time() - before.seconds
    number = before.schedules
    found: Drawn | None = None
    while found is None and time.process_time() - began_s < seconds:
        runs = subject.runs(before.seed, number, (), RunFolders())
        found = next((drawn for drawn in runs if subject.bucket(drawn.outcome)), None)
        number += 1
    seconds_spent = round(time.process_time() - began_s, 1)
    after = msgspec.structs.replace(before, schedules=number, seconds=seconds_spent)
    if found is None:
        return after
    return msgspec.structs.replace(
        after,
        breaks=subject.bucket(found.outcome),
        seen=found.outcome.failed,
        sentence=found.outcome.sentence,
        schedule=found.schedule.to_json(),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the experiment."""
    parser.add_argument("--lists", nargs="*", default=["W", "X"], help="letters of lists")
    parser.add_argument("--only", nargs="*", default=[], help="codes of bugs")
    parser.add_argument("--kinds", nargs="*", default=["safety"], choices=CLASSES)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time of a search")
    parser.add_argument("--store", type=Path, default=Path("store/small-bugs"))
    parser.add_argument("--least", type=float, default=0.0, help="percent found, or exit code 1")


def run(given: argparse.Namespace) -> int:
    """Make the searches that were not made, and print a table."""
    bugs = [
        bug
        for bug in small_bugs()
        if (bug.code in given.only or (not given.only and bug.code[0] in given.lists))
        and bug.kind in given.kinds
    ]
    given.store.mkdir(parents=True, exist_ok=True)
    rows = []
    for seed, bug in itertools.product(given.seeds, bugs):
        file = given.store / f"{bug.code}-{seed}.json".lower()
        if not file.exists():
            file.write_bytes(msgspec.json.encode(search(bug, seed, given.seconds)))
        row = msgspec.json.decode(file.read_bytes(), type=Searched)
        rows.append(row)
        what = f"{row.breaks}: {row.sentence}" if row.breaks else "open"
        effort = f"{row.schedules:,} schedules, {row.seconds:.0f} s"
        print(f"{bug.code} {bug.name}, seed {seed}: {effort}: {what}", flush=True)
    return _judge(rows, given.least)


def _judge(rows: Sequence[Searched], least: float) -> int:
    """Print the share of each list and seed; return 1 if one is below `least` percent."""
    groups: dict[tuple[str, int], list[Searched]] = {}
    for row in rows:
        groups.setdefault((row.code[0], row.seed), []).append(row)
    missed = 0
    for (letter, seed), part in groups.items():
        found = [row for row in part if row.breaks]
        percent = 100 * len(found) / len(part)
        inside = sum(not row.seen for row in found)
        missed |= percent < least
        seconds = statistics.median(row.seconds for row in part)
        print(
            f"list {letter}, seed {seed}: {len(found)} of {len(part)} ({percent:.0f} %), {inside} "
            f"by invariants inside the cluster only, median {seconds:.0f} s; open: "
            f"{' '.join(row.code for row in part if not row.breaks)}"
        )
    return missed


def _child() -> None:
    """Read an order, turn its bug on, and search."""
    code, seconds, before = msgspec.json.decode(sys.stdin.buffer.read())
    bug = next(bug for bug in small_bugs() if bug.code == code)
    turn_on(bug)
    after = _search_here(bug, seconds, msgspec.convert(before, Searched))
    sys.stdout.buffer.write(msgspec.json.encode(after))


if __name__ == "__main__":
    _child()
