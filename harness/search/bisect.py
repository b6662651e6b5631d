"""`floodmark bisect`: since which version a schedule fails on a third-party system, if each run may
miss the failure.

Each run is a row of a file of its own, so that the same command goes on where it ended."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from harness.formats.journal import JobJournal, JournalRow
from harness.runs.interrupts import Interrupts
from harness.runs.judge import Tell
from harness.runs.options import load_schedule
from harness.search.requests import BisectRequest
from harness.search.worlds.real import StormSubject
from harness.search.worlds.subject import RunFolders, deadline
from harness.systems import registry
from harness.systems.adapter import SERVERS
from harness.systems.external import versions
from harness.systems.external.system import ExternalSystem
from harness.systems.external.versions import run_client
from harness.systems.setup import setup_of
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError, UsageError
from reports import wording

SURE: Final = 0.95
_RATES: Final = np.linspace(0.02, 0.98, 49)

Floats = NDArray[np.float64]


class Bisection:
    """The knowledge about `size` versions, in order from the good end to the bad end, of which the
    last is known to be bad; each run of one may miss the failure. Pure.

    A failure proves that a version is bad; a run without one only makes that less likely. So the
    knowledge is a probability for each version of being the first bad one, and for each possible
    rate of failures; the next run is made where it is expected to say most about the first
    (Horstein 1963; Ben-Or and Hassidim 2008)."""

    def __init__(self, size: int, failed: int = 1, of: int = 1) -> None:
        """`failed` of `of` runs on the bad version have failed already."""
        self.size = size
        rates = _RATES**failed * (1 - _RATES) ** (of - failed)
        self._joint: Floats = np.tile(rates / rates.sum() / size, (size, 1))

    def observe(self, version: int, failed: bool) -> None:
        first_bad = np.arange(self.size)[:, None]
        bad = _RATES if failed else 1 - _RATES
        likelihood = np.where(version >= first_bad, bad, 0.0 if failed else 1.0)
        self._joint = self._joint * likelihood
        self._joint /= self._joint.sum()

    @property
    def posterior(self) -> Floats:
        """The probability of each version of being the first bad one."""
        found: Floats = self._joint.sum(axis=1)
        return found

    @property
    def best(self) -> int:
        """The version that is most likely the first bad one."""
        return int(self.posterior.argmax())

    @property
    def is_sure(self) -> bool:
        """Return whether the answer is known with the probability `SURE`."""
        return bool(self.posterior.max() >= SURE)

    def next(self, among: Sequence[int] | None = None) -> int:
        """Return the version whose run lowers the expected entropy most, of those that can run."""
        choices = range(self.size) if among is None else among
        left = self._left()
        return min(choices, key=lambda version: (round(float(left[version]), 12), version))

    def _left(self) -> Floats:
        """Return the entropy that is expected to be left after a run on each version."""
        whole, fails = self.posterior, (self._joint * _RATES).sum(axis=1)
        passes = whole - fails
        fail, fail_total = np.cumsum(_x_log_x(fails)), np.cumsum(fails)
        good = _x_log_x(whole)
        passed = np.cumsum(_x_log_x(passes)) + good.sum() - np.cumsum(good)
        found: Floats = _x_log_x(fail_total) - fail + _x_log_x(1 - fail_total) - passed
        return found


def _x_log_x(values: Floats) -> Floats:
    positive = np.maximum(values, 1e-300)
    found: Floats = np.where(values > 0, values * np.log2(positive), 0.0)
    return found


class Builds:
    """The commits of a clone, and the server of each, which is built when it is first needed."""

    def __init__(self, clone: Path, command: str, binary: str, store: Path) -> None:
        """Build with the shell `command`, which leaves an executable named `binary`. Checkouts go
        to a folder of `store`. Raises UsageError."""
        if not command:
            raise UsageError("--git needs --build, the command that builds the server")
        self._clone, self._command, self._binary = clone.absolute(), command, binary
        self._folder = store.absolute() / "builds"

    def commits(self, ranges: Sequence[str]) -> list[str]:
        """Return the commits of the range A..B, A included, the oldest first. Raises UsageError."""
        first, dots, last = ranges[0].partition("..") if len(ranges) == 1 else ("", "", "")
        if not dots:
            raise UsageError("--git needs one --versions A..B, two commits of that clone")
        between = self._git("rev-list", "--first-parent", "--reverse", f"{first}..{last}")
        return [self._git("rev-parse", f"{first}^{{commit}}"), *between.split()]

    def executable(self, commit: str) -> Path:
        """Return the server of a commit. Raises FloodmarkError if it cannot be built."""
        place = self._folder / commit
        if not place.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._git("worktree", "add", "--force", "--detach", str(place), commit)
        if not (found := self._built(place)):
            run_client(["sh", "-c", self._command], place, commit, "build")
            found = self._built(place)
        if not found:
            raise FloodmarkError(f"{place}: the build left no executable {self._binary}")
        return found[0]

    def _built(self, place: Path) -> list[Path]:
        found = (file for file in sorted(place.rglob(self._binary)) if file.is_file())
        return [file for file in found if os.access(file, os.X_OK)]

    def _git(self, *words: str) -> str:
        return run_client(["git", *words], self._clone, str(self._clone), "read").strip()


_USELESS_RUNS: Final = 2
"""A version with so many runs that say nothing is left out."""


class VersionRun(JournalRow, tag="version"):
    """One run of the schedule on a version: its verdict, whether that counts, and its folder."""

    server: str
    verdict: str
    sentence: str = ""
    run: str = ""

    @property
    def counts(self) -> bool:
        """Return whether the run says anything about the version."""
        return self.verdict in ("valid", "invalid")


class BisectResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: the end that fails, the last version that fails as seen from there, the next one,
    which does not ("" if all fail), how sure that is, the probability of each, and all runs."""

    bad_end: str = ""
    fails: str = ""
    holds: str = ""
    probability: float = 0.0
    posterior: dict[str, float] = {}
    runs: tuple[VersionRun, ...] = ()


def bisect(request: BisectRequest, interrupts: Interrupts, output: Tell) -> BisectResult:
    """Run the schedule on versions until it is known where failures begin, or the budget is over.
    Raises UsageError, StorageError."""
    schedule = load_schedule(request.schedule)
    system = registry.find(request.system, request.settings)
    if not isinstance(system, ExternalSystem) or not system.adapter.binary:
        raise UsageError(f"system '{request.system}' has no executable of several versions")
    binary = system.adapter.binary
    builds = None
    if request.git is not None:
        builds = Builds(request.git, request.build, binary, request.store)
        names = builds.commits(request.versions)
    else:
        names = [*versions.named(binary, request.versions), *map(str, request.server)]
    if len(names) < 2:
        raise UsageError("name at least two versions: --versions A..B, or --server PATH twice")
    # Any server stands for the one of the run's folder, which must not be started unasked.
    given = {SERVERS.name: names[0], **request.settings}
    setup = setup_of(request.schedule, request.system, given)
    del setup.settings[SERVERS.name]
    setup.resolved(schedule)
    subject = StormSubject(**msgspec.structs.asdict(setup))
    is_late = deadline(request.budget_s)
    with closing(_Runs(request.store, subject, schedule, binary, builds, output)) as runs:
        return _answer(names, runs, lambda: is_late() or interrupts.asked, output)


@dataclass
class _Runs:
    """The runs so far, by version; each new one is written down at once."""

    store: Path
    subject: StormSubject
    schedule: Schedule
    binary: str
    builds: Builds | None
    output: Tell

    def __post_init__(self) -> None:
        about = msgspec.json.encode((self.schedule.digest(), self.subject))
        key = hashlib.sha256(about).hexdigest()[:12]
        journal = JobJournal[VersionRun](self.store / f"bisect-{key}.jsonl", VersionRun)
        self.rows, self._add, self.close = journal.rows, journal.add, journal.close

    def make(self, server: str) -> VersionRun:
        """Run the schedule once on a version. What cannot be run has no verdict."""
        try:
            path = server
            if self.builds is not None:
                path = str(self.builds.executable(server))
            elif "/" not in server:
                versions.obtain(self.binary, server)
            subject = replace(self.subject, settings={**self.subject.settings, SERVERS.name: path})
            schedule = replace(self.schedule, drawn=False)
            made = subject.run(schedule, RunFolders(str(self.store), "bisect"))
            said = made.sentence or made.problem
            row = VersionRun(server=server, verdict=made.verdict, sentence=said, run=made.folder)
        except FloodmarkError as error:
            row = VersionRun(server=server, verdict="unknown", sentence=str(error))
        self._add(row)
        self.output(f"{row.server}: {row.sentence or row.verdict}")
        return row

    def is_useless(self, server: str) -> bool:
        """Return whether runs on a version say nothing."""
        told = [row.counts for row in self.rows if row.server == server]
        return len(told) - sum(told) >= _USELESS_RUNS and not any(told)


def _answer(
    names: Sequence[str], runs: _Runs, stop: Callable[[], bool], output: Tell
) -> BisectResult:
    bad = _bad_end(names, runs, stop)
    if bad is None:
        output(f"neither {names[0]} nor {names[-1]} has failed: nothing to bisect")
        return BisectResult(runs=tuple(runs.rows))
    ordered = list(names) if bad == names[-1] else list(reversed(names))
    known = _knowledge(ordered, runs.rows)
    while not known.is_sure and not stop():
        among = [i for i, server in enumerate(ordered) if not runs.is_useless(server)]
        at = known.next(among)
        if (row := runs.make(ordered[at])).counts:
            known.observe(at, row.verdict == "invalid")
    best, chances = known.best, known.posterior
    made = BisectResult(
        bad_end=bad,
        fails=ordered[best],
        holds=ordered[best - 1] if best else "",
        probability=round(float(chances[best]), 4),
        posterior={ordered[i]: round(float(p), 4) for i, p in enumerate(chances) if p >= 0.005},
        runs=tuple(runs.rows),
    )
    output(in_words(made))
    return made


def _bad_end(names: Sequence[str], runs: _Runs, stop: Callable[[], bool]) -> str | None:
    """Return the end of the versions that has failed, or fails first; None if none does in time."""
    ends = (names[0], names[-1])
    while True:
        failed = Counter(row.server for row in runs.rows if row.verdict == "invalid")
        if found := max(ends, key=lambda end: failed[end]) if any(failed[e] for e in ends) else "":
            return found
        able = [end for end in ends if not runs.is_useless(end)]
        if stop() or not able:
            return None
        made = Counter(row.server for row in runs.rows)
        runs.make(min(able, key=lambda end: made[end]))


def _knowledge(ordered: Sequence[str], rows: Sequence[VersionRun]) -> Bisection:
    """Return what the rows say, with the last version as the bad one."""
    known = Bisection(len(ordered))
    first = next(r for r in rows if r.server == ordered[-1] and r.verdict == "invalid")
    for row in rows:
        if row.counts and row is not first and row.server in ordered:
            known.observe(ordered.index(row.server), row.verdict == "invalid")
    return known


def in_words(made: BisectResult) -> str:
    """Return the answer as a few lines."""
    counts = Counter((row.server, row.verdict) for row in made.runs)
    each = [
        f"  {server}: {chance:.1%} (failed {counts[server, 'invalid']} of "
        f"{counts[server, 'invalid'] + counts[server, 'valid']})"
        for server, chance in made.posterior.items()
    ]
    holds = f", {made.holds} is the next one that does not" if made.holds else ": all fail"
    runs = wording.count(len(made.runs), "run")
    answer = f"{made.fails} fails{holds}: {made.probability:.1%}, after {runs}"
    return "\n".join([answer, *each])
