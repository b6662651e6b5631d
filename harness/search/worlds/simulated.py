"""The search of a protocol in the simulated world, with bugs turned on in it, or for one known bug,
whose failures alone count then."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import ClassVar, Final

import msgspec
from msgspec.structs import replace

from harness.formats.finding import EXPLANATION, REAL, Finding, RunCounts
from harness.search.catalogue.known_bugs import SearchTarget, correct_protocols
from harness.search.draw.mixture import GENERATOR_VERSION, Mixture
from harness.search.findings import in_words
from harness.search.search_jobs import AnySearchJob, FinishJob, SearchJob
from harness.search.shrink.explain import explain, write
from harness.search.shrink.passes import SIMULATED_PASSES
from harness.search.shrink.real_schedule import real_schedule
from harness.search.worlds.endings import judge_with_endings
from harness.search.worlds.outcome import ScheduleOutcome, run_simulated
from harness.search.worlds.subject import Drawn, RunFolders, Shrinks, Stop
from harness.sim.invariant_checker import STEP_INVARIANTS
from nemesis.faults import KINDS, aliases
from nemesis.faults.disks import DISK_GROUP
from nemesis.formats.schedule import Expectation, Schedule
from node.formats.errors import UsageError
from node.formats.files import write_whole
from node.formats.removal import try_to_remove

SHRINK_TRIES: Final = 1_500
HANGS_S: Final = 3600.0
LATE_S: Final = 600.0
"""The time beyond its own limit after which a job counts as hung."""
CHUNK: Final = 1_000_000
"""Schedules of a job for a known bug; it ends at its time limit, or when the bug is found."""
INTERNAL: Final = "internal-invariant"
"""The property of a failure that only an internal invariant shows."""


class SimulatedSubject(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol to search in the simulated world, with bugs on. Schedules may also have the disk
    faults in `faults`. A violated invariant counts as a failure even if no client, trace or log
    shows it: any, if the protocol should keep every promise; else, without bugs, one of steps."""

    protocol: str
    bugs: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    chunk: int = 50
    generator: ClassVar[int] = GENERATOR_VERSION
    most_runs: ClassVar[int] = 1
    shrinks: ClassVar[Shrinks] = Shrinks(
        passes=SIMULATED_PASSES, tries=SHRINK_TRIES, save_every_s=1.0
    )

    @property
    def name(self) -> str:
        """The protocol and its bugs, joined by "+"."""
        return "+".join((self.protocol, *self.bugs))

    @property
    def should_hold(self) -> bool:
        """Whether the protocol keeps every promise, as far as is known."""
        return not self.bugs and self.protocol in correct_protocols()

    def longest_s(self, job: AnySearchJob) -> float:
        """Return after how many seconds a job counts as hung and is killed; the simulated world
        ends a step that hangs much earlier."""
        if isinstance(job, SearchJob | FinishJob) and job.seconds:
            return job.seconds + LATE_S
        return HANGS_S

    def draw(self, seed: int, number: int) -> Schedule:
        """Draw the schedule of this number, independently of all others."""
        return Mixture(self.protocol, self.bugs, self.faults).draw(seed, number)

    def runs(
        self, seed: int, number: int, known: Collection[str], at: RunFolders
    ) -> Iterator[Drawn]:
        schedule = self.draw(seed, number)
        runs = judge_with_endings(schedule, run_simulated)
        first = next(runs)[1]
        shown = first.failed
        for ending, outcome in runs:
            shown = shown or (outcome.failed and self.bucket(outcome) not in known)
            yield Drawn("", ending, outcome if outcome.failed else only_seen(outcome))
        yield Drawn("", schedule, only_seen(first) if shown and not first.failed else first)

    def run(self, schedule: Schedule, at: RunFolders) -> ScheduleOutcome:
        return run_simulated(schedule)

    def bucket(self, outcome: ScheduleOutcome) -> str:
        inside = outcome.internal_violation
        if inside and not self.should_hold:
            found = () if self.bugs or outcome.result is None else outcome.result.violations
            inside = next((v.invariant for v in found if v.invariant in STEP_INVARIANTS), "")
        return f"{INTERNAL}: {inside}" if inside and not outcome.failed else outcome.bucket

    def finding(self, drawn: Drawn) -> Finding:
        outcome, once = drawn.outcome, RunCounts(failed=1, of=1)
        broken = outcome.property or INTERNAL
        about = None if broken == INTERNAL else broken
        expected = Expectation(verdict="invalid", property=about)
        return Finding(
            subject=self.protocol,
            bucket=self.bucket(outcome),
            property=broken,
            sentence=outcome.sentence,
            family=drawn.family,
            drawn=drawn.schedule,
            smallest=replace(drawn.schedule, name=self.title(broken), expectation=expected),
            faults=in_words(drawn.schedule),
            counts=once,
            drawn_counts=once,
        )

    def title(self, broken: str) -> str:
        """Return the name of a schedule that breaks a property."""
        return f"{self.protocol}-{broken}"

    def is_alike(self, finding: Finding, outcome: ScheduleOutcome) -> bool:
        return self.bucket(outcome) == finding.bucket

    def complete(
        self, finding: Finding, folder: Path, stop: Stop, at: RunFolders, *, form: bool = True
    ) -> Finding:
        write(explain(finding.smallest, stop, self.bucket), folder / EXPLANATION)
        if finding.property == INTERNAL or not form:
            return finding
        real = real_schedule(finding.smallest, finding.property, stop=stop)
        if real is None:
            try_to_remove(folder / REAL)
            return replace(finding, form_failures=0)
        write_whole(folder / REAL, real.schedule.to_pretty_json())
        return replace(finding, form_failures=real.failures)


class BugSubject(SimulatedSubject, frozen=True, kw_only=True):
    """The subject of a search for a known bug, or for a promise that a faulty protocol breaks. All
    such searches draw the same schedules, except for what the target adds."""

    target: SearchTarget
    chunk: int = CHUNK
    shrinks: ClassVar[Shrinks] = SimulatedSubject.shrinks._replace(tries=1_000)

    @classmethod
    def of(cls, target: SearchTarget) -> BugSubject:
        return cls(protocol=target.protocol, bugs=target.bugs, faults=target.faults, target=target)

    @property
    def name(self) -> str:
        """The code of the known bug, or of the protocol and promise."""
        return self.target.code

    def draw(self, seed: int, number: int) -> Schedule:
        always = self.target.options
        return Mixture(self.protocol, self.bugs, self.faults, always).draw(seed, number)

    def runs(
        self, seed: int, number: int, known: Collection[str], at: RunFolders
    ) -> Iterator[Drawn]:
        """Run a schedule as `Subject` says, up to the first run that shows the bug."""
        first = self.draw(seed, number)
        for schedule, quick in judge_with_endings(first, self.judge, self._fails_otherwise):
            # Few runs fail; only those are run to their end.
            outcome = self.run(schedule, at) if quick.failed else quick
            yield Drawn("", schedule, outcome)
            if outcome.failed:
                return

    def judge(self, schedule: Schedule) -> ScheduleOutcome:
        """Run a schedule once. Worse endings only lose records, so if the bug cannot show in that
        way, internal violations are left out of the outcome and no worse ending is tried."""
        outcome = run_simulated(schedule)
        if self.target.can_end_worse:
            return outcome
        return only_seen(outcome)

    def _fails_otherwise(self, outcome: ScheduleOutcome) -> bool:
        """Return whether only other properties break: worse endings may break the target's."""
        target = self.target
        return target.can_end_worse and outcome.failed and target.breaks not in outcome.broken

    def run(self, schedule: Schedule, at: RunFolders) -> ScheduleOutcome:
        """Run a schedule to its end, as `Subject` says. It fails only if it breaks the property of
        the bug, and does not break it with the bug off: some protocols break it anyway."""
        breaks = self.target.breaks
        outcome = run_simulated(schedule, stop_at="never", about=breaks)
        held = breaks not in outcome.broken
        if not held and self.target.bug:
            off = replace(schedule, cluster=replace(schedule.cluster, bugs=()))
            held = breaks in run_simulated(off, stop_at="never").broken
        return (
            ScheduleOutcome(virtual_us=outcome.virtual_us, events=outcome.events)
            if held
            else outcome
        )

    def title(self, broken: str) -> str:
        return f"{self.target.code}-{broken}".lower()


def only_seen(outcome: ScheduleOutcome) -> ScheduleOutcome:
    """Return an outcome without the violation that no client, trace or log shows."""
    return dataclasses.replace(outcome, internal_violation="")


def disk_faults(text: str) -> tuple[str, ...]:
    """Return the kinds of disk faults that a comma list names, such as `bit-flip,fsync-error`; the
    word `disk` stands for a group of them. Raises UsageError for another word."""
    names = [name.strip() for name in text.split(",")]
    known = [name for name, kind in KINDS.items() if kind.on_disks]
    if wrong := [name for name in names if name not in (*known, DISK_GROUP)]:
        raise UsageError(
            f"a search cannot add fault '{wrong[0]}' (it can: {', '.join(known)}, {DISK_GROUP})"
        )
    group = aliases()[DISK_GROUP] if DISK_GROUP in names else ()
    return tuple(name for name in known if name in names or name in group)
