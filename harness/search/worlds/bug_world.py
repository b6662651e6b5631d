"""The simulated world of a search for one known bug; only failures that it causes count."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import ClassVar, Final

import msgspec
from msgspec.structs import replace

from harness.formats.finding import Finding
from harness.search.catalogue.known_bugs import SearchTarget
from harness.search.deadline import Stop
from harness.search.draw.choice_source import RandomChoices
from harness.search.draw.generator import GENERATOR_VERSION, draw_schedule
from harness.search.loop import AnySearchJob, Drawn
from harness.search.shrink.stability import STABILITY_RUNS, stabilise, stability
from harness.search.worlds.attempt import Attempt, attempt, attempted
from harness.search.worlds.endings import judge_with_endings
from harness.search.worlds.simulated import HANGS_S, SimulatedSubject, SimulatedWorld
from harness.sim.run import SimResult, simulate
from nemesis.formats.schedule import Expectation, Schedule

SHRINK_TRIES: Final = 1_000
CHUNK: Final = 1_000_000
"""Schedules of a job; it ends before at its time limit, or when the bug is found."""


class BugSubject(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a search for a known bug, or for a promise that a faulty protocol breaks. All
    such searches draw the same schedules."""

    target: SearchTarget
    chunk: int = CHUNK
    generator: ClassVar[int] = GENERATOR_VERSION

    @property
    def name(self) -> str:
        """The code of the known bug, or of the protocol and promise."""
        return self.target.code

    def world(self, store: str, run_name: str) -> BugWorld:
        """Return the world to run schedules in (see `harness.search.loop.Subject`)."""
        return BugWorld(self.target)

    def longest_s(self, job: AnySearchJob) -> float:
        """Return after how many seconds a job counts as hung and is killed."""
        return HANGS_S


class BugWorld(SimulatedWorld):
    """The `SearchWorld` of a search for a known bug."""

    shrinks = SimulatedWorld.shrinks._replace(tries=SHRINK_TRIES)

    def __init__(self, target: SearchTarget) -> None:
        super().__init__(SimulatedSubject(protocol=target.protocol, bugs=target.bugs))
        self._target = target

    def runs(self, seed: int, number: int, known: Collection[str]) -> Iterator[Drawn]:
        """Run a schedule as `SearchWorld` says, up to the first run that shows the bug."""
        target = self._target
        first = drawn_schedule(target, seed, number)
        for schedule, quick in judge_with_endings(first, self.judge, self._fails_otherwise):
            # Few runs fail; only those are run to their end.
            outcome = self.attempt(schedule) if quick.failed else quick
            yield Drawn("", schedule, outcome)
            if outcome.failed:
                return

    def judge(self, schedule: Schedule) -> tuple[Attempt, SimResult | None]:
        """Run a schedule once. Worse endings only lose records, so if the bug cannot show in that
        way, internal violations are left out of the result and no worse ending is tried."""
        outcome, run = attempted(schedule)
        if not self._target.can_end_worse:
            outcome = dataclasses.replace(outcome, internal_violation="")
        return outcome, run

    def _fails_otherwise(self, outcome: Attempt) -> bool:
        """Return whether only other properties break: worse endings may break the target's."""
        target = self._target
        return target.can_end_worse and outcome.failed and target.breaks not in outcome.broken

    def attempt(self, schedule: Schedule) -> Attempt:
        """Run a schedule to its end, as `SearchWorld` says. It fails only if it breaks the property
        of the bug, and does not break it with the bug off: some protocols break it anyway."""
        target = self._target
        outcome = attempt(schedule, stop_at="never", about=target.breaks)
        if target.breaks not in outcome.broken:
            return Attempt(virtual_us=outcome.virtual_us, events=outcome.events)
        if target.bug:
            cluster = replace(schedule.cluster, bugs=())
            without = attempt(replace(schedule, cluster=cluster), stop_at="never")
            if target.breaks in without.broken:
                return Attempt(virtual_us=outcome.virtual_us, events=outcome.events)
        return outcome

    def as_file(self, smallest: Schedule, finding: Finding) -> Schedule:
        target = self._target
        return replace(
            smallest,
            name=f"{target.code}-{target.breaks}".lower(),
            expectation=Expectation(verdict="invalid", property=target.breaks),
        )

    def complete(self, finding: Finding, folder: Path, form_runs: int, stop: Stop) -> Finding:
        """Stabilise the finding, explain it, and find its form for real processes."""

        def alike(candidate: Schedule, world: int | None = None) -> bool:
            if world not in (None, candidate.workload.seed):
                broken = attempt(candidate, world, stop_at="never").broken
                return self._target.breaks in broken
            return self.is_alike(finding, self.attempt(candidate))

        smallest, stable_runs = finding.smallest, finding.stability
        if stable_runs < 0:
            stable_runs = stability(smallest, alike)
            if stable_runs < STABILITY_RUNS:
                run = simulate(smallest, seed=smallest.workload.seed, stop_at="visible")
                smallest = stabilise(smallest, run.trace, run.info.phases.storm_us, alike)
                stable_runs = stability(smallest, alike)
        sentence = attempt(smallest).sentence
        finding = replace(finding, smallest=smallest, stability=stable_runs, sentence=sentence)
        return super().complete(finding, folder, form_runs, stop)


def drawn_schedule(target: SearchTarget, seed: int, number: int) -> Schedule:
    """Return the schedule of this number and seed. It is the same for all known bugs, except for
    what the target adds."""
    # The text of the seed is older than the names here: it must stay, or other schedules follow.
    choose = RandomChoices(random.Random(f"museum/{seed}/{number}"))
    return draw_schedule(choose, target.protocol, target.bugs, target.faults, target.dimensions)
