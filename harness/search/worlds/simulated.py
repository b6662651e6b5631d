"""The search of a protocol in the simulated world, with bugs turned on in it."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from harness.formats.finding import EXPLANATION, REAL, Finding, RunCounts
from harness.search.deadline import Stop
from harness.search.draw.choice_source import RandomChoices
from harness.search.draw.generator import GENERATOR_VERSION, draw_schedule
from harness.search.findings import in_words
from harness.search.grammar.phrases import GRAMMAR_VERSION
from harness.search.grammar.phrases import draw_schedule as compose_schedule
from harness.search.loop import AnySearchJob, Drawn, Shrinks
from harness.search.shrink.explain import explain, write
from harness.search.shrink.passes import fewer_by_chance
from harness.search.shrink.real_schedule import real_schedule
from harness.search.shrink.shrinker import SIMULATED_PASSES
from harness.search.worlds.attempt import Attempt, attempt, attempted
from harness.search.worlds.endings import judge_with_endings, rerun_without
from nemesis.faults import KINDS, aliases
from nemesis.faults.disks import DISK_GROUP
from nemesis.formats.schedule import Expectation, Schedule
from node.formats.errors import UsageError
from node.formats.files import write_whole
from node.formats.removal import try_to_remove

SHRINK_TRIES: Final = 1_500
HANGS_S: Final = 3600.0
Engine = Literal["scenarios", "grammar"]
"""The generator that draws the schedules of a simulated search."""
INTERNAL: Final = "internal-invariant"
"""The property of a failure that only an internal invariant shows."""


class SimulatedSubject(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol to search in the simulated world, with bugs on. Schedules may also have the disk
    faults in `faults`, and all have the late `dimensions`. With `internal`, a violated invariant
    counts as a failure even if no client, trace or log shows it."""

    protocol: str
    bugs: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    dimensions: tuple[str, ...] = ()
    internal: bool = False
    chunk: int = 50
    engine: Engine = "scenarios"

    @property
    def generator(self) -> int:
        """The version of the engine; under another one a seed draws another schedule."""
        return GRAMMAR_VERSION if self.engine == "grammar" else GENERATOR_VERSION

    @property
    def name(self) -> str:
        """The protocol and its bugs, joined by "+"."""
        return "+".join((self.protocol, *self.bugs))

    def world(self, store: str, run_name: str) -> SimulatedWorld:
        """Return the world to run schedules in; simulated runs leave no folder."""
        return SimulatedWorld(self)

    def longest_s(self, job: AnySearchJob) -> float:
        """Return after how many seconds a job counts as hung and is killed."""
        return HANGS_S

    def draw(self, seed: int, number: int) -> Schedule:
        """Draw the schedule of this number, independently of all others."""
        rng = random.Random(f"search/{seed}/{number}")
        if self.engine == "grammar":
            return compose_schedule(rng, self.protocol, self.bugs, self.faults)
        choose = RandomChoices(rng)
        return draw_schedule(choose, self.protocol, self.bugs, self.faults, self.dimensions)


class SimulatedWorld:
    """The `SearchWorld` of a simulated search. One run of a schedule decides whether it fails."""

    most_runs = 1
    shrinks = Shrinks(
        passes=SIMULATED_PASSES,
        last_passes=(fewer_by_chance,),
        rerun=rerun_without,
        tries=SHRINK_TRIES,
        save_every_s=1.0,
    )

    def __init__(self, subject: SimulatedSubject) -> None:
        self._subject = subject

    def runs(self, seed: int, number: int, known: Collection[str]) -> Iterator[Drawn]:
        first = self._subject.draw(seed, number)
        for schedule, outcome in judge_with_endings(first, attempted):
            yield Drawn("", schedule, outcome)

    def attempt(self, schedule: Schedule) -> Attempt:
        return attempt(schedule)

    def bucket(self, outcome: Attempt) -> str:
        if outcome.failed or not self._subject.internal or not outcome.internal_violation:
            return outcome.bucket
        return f"{INTERNAL}: {outcome.internal_violation}"

    def found(self, drawn: Drawn) -> Finding:
        once = RunCounts(failed=1, of=1)
        finding = Finding(
            subject=self._subject.protocol,
            bucket=self.bucket(drawn.outcome),
            property=drawn.outcome.property or INTERNAL,
            sentence=drawn.outcome.sentence,
            family=drawn.family,
            drawn=drawn.schedule,
            smallest=drawn.schedule,
            faults=in_words(drawn.schedule),
            counts=once,
            drawn_counts=once,
        )
        return replace(finding, smallest=self.as_file(drawn.schedule, finding))

    def is_alike(self, finding: Finding, outcome: Attempt) -> bool:
        return self.bucket(outcome) == finding.bucket

    def as_file(self, smallest: Schedule, finding: Finding) -> Schedule:
        """Return the schedule with a name and the expected verdict (see `SearchWorld`)."""
        about = None if finding.property == INTERNAL else finding.property
        return replace(
            smallest,
            name=f"{smallest.cluster.protocol}-{finding.property}",
            expectation=Expectation(verdict="invalid", property=about),
        )

    def complete(self, finding: Finding, folder: Path, form_runs: int, stop: Stop) -> Finding:
        write(explain(finding.smallest, stop), folder / EXPLANATION)
        if finding.property == INTERNAL or not form_runs:
            return finding
        real = real_schedule(finding.smallest, finding.property, runs=form_runs, stop=stop)
        if real is None:
            try_to_remove(folder / REAL)
            return replace(finding, failing_worlds=0)
        write_whole(folder / REAL, real.schedule.to_pretty_json())
        return replace(finding, failing_worlds=real.failing_worlds)

    def drop(self, outcome: Attempt) -> None:
        """Do nothing: a simulated run leaves no folder (see `SearchWorld`)."""


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
