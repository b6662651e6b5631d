"""A protocol with one known bug, as the subject of a search: only failures that it causes count."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import ClassVar, Final

from msgspec.structs import replace

from harness.search.catalogue.known_bugs import SearchTarget
from harness.search.draw.mixture import Mixture
from harness.search.worlds.endings import judge_with_endings
from harness.search.worlds.outcome import ScheduleOutcome, run_simulated
from harness.search.worlds.simulated import SimulatedSubject, only_seen
from harness.search.worlds.subject import Drawn, RunFolders, Shrinks
from nemesis.formats.schedule import Schedule

CHUNK: Final = 1_000_000
"""Schedules of a job; it ends before at its time limit, or when the bug is found."""


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
