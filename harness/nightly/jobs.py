"""The jobs of nightly runs only: checks of determinism, replays, runs of real processes."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from checker.formats.anomalies import LOST_WRITES
from checker.formats.verdict import RunResult, Verdict
from harness.formats.nightly_journal import DeterminismChecked, Ran, Replayed
from harness.formats.nightly_run import system_label
from harness.nightly import corpus, plan
from harness.replay.replay import is_met, replay, requested_schedule
from harness.runs.judge import build_page
from harness.runs.once import run_once
from harness.runs.program import called
from harness.runs.requests import ReplayRequest
from harness.runs.run import RunOrder
from harness.runs.run_folder import readable_lines, remove
from harness.search.draw.fault_coverage import fault_coverage
from harness.search.worlds.simulated import SimulatedSubject
from harness.sim.run import simulate
from harness.systems import registry
from harness.systems.adapter import SERVER
from harness.systems.setup import Setup
from nemesis.formats.fault_log import FaultLine
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError

FAILED: Final = "could not be run"
_KEEPING: Final = (Verdict.INVALID, Verdict.UNKNOWN)


class Digests(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules that a process of a `DeterminismJob` drew, and the digests of their runs."""

    key: str
    schedules: tuple[Schedule, ...]
    digests: tuple[str, ...]


class DeterminismJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job in which two processes draw and simulate `runs` schedules; digests must be equal."""

    key: str
    protocol: str
    seed: int
    runs: int

    def do(self) -> Digests:
        """Run the schedules; return their digests."""
        subject = SimulatedSubject(protocol=self.protocol)
        schedules = [subject.draw(self.seed, number) for number in range(self.runs)]
        digests = []
        for schedule in schedules:
            try:
                run = simulate(schedule, seed=schedule.workload.seed, stop_at="never")
                digests.append(run.digest)
            except FloodmarkError as error:
                digests.append(f"{FAILED}: {error}")
        return Digests(key=self.key, schedules=tuple(schedules), digests=tuple(digests))


def compared(job: DeterminismJob, first: Digests, second: Digests) -> DeterminismChecked:
    """Return the journal row of a check of determinism, from the results of its two processes."""
    pairs = zip(first.schedules, first.digests, second.digests, strict=True)
    return DeterminismChecked(
        key=job.key,
        protocol=job.protocol,
        seed=job.seed,
        runs=len(first.digests),
        differing=[schedule for schedule, one, other in pairs if one != other],
    )


class ReplayJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that replays a saved schedule in the simulated world."""

    key: str
    file: str

    def do(self) -> Replayed:
        request = ReplayRequest(file=Path(self.file), quiet=True)
        schedule = requested_schedule(request)
        outcomes = list(replay(request))
        return Replayed(
            key=self.key,
            file=self.file,
            protocol=schedule.cluster.protocol,
            bugs=schedule.cluster.bugs,
            faults=len(schedule.faults),
            found=corpus.named(Path(self.file), schedule),
            expectation=schedule.expectation,
            met=is_met(schedule.expectation, outcomes),
            verdict=outcomes[0].verdict,
            sentence=outcomes[0].sentence,
        )


class RealJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that makes one run of real processes and judges it. `why` and `kinds` are as in `Ran`.
    `setup` is what it runs on. `keeps_expected`: whether the run folder is kept after a failure
    that was expected."""

    key: str
    why: str
    schedule: Schedule
    name: str
    store: str
    kinds: str = ""
    file: str = ""
    setup: Setup = Setup()
    keeps_expected: bool = True

    def do(self) -> Ran:
        """Make the run and judge it. Keep its folder, with a page, only after a failure."""
        row = self.row()
        on, command = self.setup.resolved(self.schedule), (*called(), *sys.argv[1:])
        run = run_once(RunOrder(self.schedule, on, self.name, Path(self.store), command))
        if run.verdict is None:
            remove(run.folder, Path(self.store))
        return self.judged(row, run.folder, run.result)

    def judged(self, row: Ran, folder: Path, result: RunResult) -> Ran:
        """Add the verdict to the row of a run; keep the run folder or remove it."""
        faults = readable_lines(folder / "faults.jsonl", FaultLine)
        row.verdict, row.sentence = result.verdict.value, result.sentence
        row.broken = result.broken
        row.lost = sum(a.count for a in result.anomalies if a.property == LOST_WRITES)
        row.faults = sum(fault.action == "inject" for fault in faults)
        if not row.system:
            # Without traces the roles of the nodes that a fault acted on are not known.
            row.fault_coverage = dict(fault_coverage(_trace(folder), faults))
        expected = result.verdict is Verdict.INVALID and plan.is_expected_of(row, row.broken)
        if result.verdict in _KEEPING and (self.keeps_expected or not expected):
            build_page(folder, lambda sentence: None)
            row.kept = str(folder.relative_to(self.store))
        else:
            remove(folder, Path(self.store))
        return row

    def row(self) -> Ran:
        """Return the journal row of the run, still without a verdict."""
        row = Ran(
            key=self.key,
            why=self.why,
            protocol=self.schedule.cluster.protocol,
            verdict="",
            sentence="",
            bugs=self.schedule.cluster.bugs,
            kinds=self.kinds,
            file=self.file,
            expectation=self.schedule.expectation,
        )
        if self.setup.system != registry.DEFAULT:
            # A system that does not tell its version must not stop the run.
            row.system, row.version, row.given, row.holds, row.options = tested(self.setup)
            row.protocol = system_label(row.system, row.version, row.given)
        return row


class AskedSystem(NamedTuple):
    """The system of a run, as its journal row (`Ran`) describes it. `holds`: whether it should lose
    no data; a system that declares a safe configuration should do so only in that one."""

    name: str
    version: str
    given: str
    holds: bool
    options: tuple[str, ...]


def tested(setup: Setup) -> AskedSystem:
    """Return system and version. Raises FloodmarkError if it does not tell its version."""
    system = setup.find()
    given = [f"{name}={value}" for name, value in setup.settings.items() if name != SERVER.name]
    safe = system.safe_settings
    return AskedSystem(
        name=system.short_name,
        version=system.version(),
        given=" ".join(given),
        holds=safe is None or system.settings.items() >= safe.items(),
        options=system.run_options(),
    )


def _trace(folder: Path) -> Iterable[dict[str, Any]]:
    traces = sorted((folder / "trace").glob("*.jsonl"))
    files = [readable_lines(path, dict[str, Any]) for path in traces]
    return heapq.merge(*files, key=lambda event: int(event["t_us"]))
