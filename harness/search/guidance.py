"""What a guided search keeps, and how it goes on from there. Pure.

A run is described by its steps: which joint state of the cluster followed which
(`harness.sim.coverage`). A run is kept when it made a step that no run before it made. The search
goes back to a moment of a kept run at which a rare step was made, and another scenario begins right
there: what no plan made in advance could aim at. A step that k runs made counts 1/k, and a moment
counts less each time it was chosen. As in rarity-weighted fuzzing (Böhme et al., "Coverage-based
Greybox Fuzzing as Markov Chain", 2016; Meng et al., "Greybox Fuzzing of Distributed Systems",
2023).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from harness.search.choice_source import ChoiceSource
from harness.search.dimensions import MAX_FAULTS_DRAWN, scenarios_of_dimensions
from harness.search.moments import StepMoment
from harness.search.scenario_builder import ScenarioBuilder, later
from harness.search.scenarios import SCENARIOS, SCENARIOS_WITH_VOTES
from nemesis.formats.schedule import Schedule
from node.core.protocol import LeaderBy, protocol

MOST_KEPT: Final = 1_000
"""Kept runs; the oldest leave first."""
MOST_STEPS: Final = 2_000_000
_COMPARED: Final = 8
"""The rarest of so many moments, drawn at random, is chosen."""
_LONGEST_MS: Final = 2_500
_GO_ON_PERCENT: Final = 40


@dataclass(slots=True)
class _KeptRun:
    """A schedule, the moments of its run, and how often each was chosen."""

    schedule: Schedule
    moments: tuple[StepMoment, ...]
    chosen: Counter[int] = field(default_factory=Counter)


class Corpus:
    """The runs that a guided search keeps."""

    def __init__(self) -> None:
        self._kept: list[_KeptRun] = []
        self._met = Counter[int]()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, schedule: Schedule, moments: Sequence[StepMoment]) -> None:
        """A schedule and the moments of its run; kept if a step of one of them is new."""
        if len(self._met) >= MOST_STEPS:
            return
        is_new = any(moment.step not in self._met for moment in moments)
        self._met.update(moment.step for moment in moments)
        if is_new:
            self._kept.append(_KeptRun(schedule, tuple(moments)))
            del self._kept[:-MOST_KEPT]

    def choose(self, rng: random.Random) -> tuple[Schedule, StepMoment]:
        """A schedule, and a moment of its run at which it made a rare step."""
        compared = [
            (kept, rng.choice(kept.moments)) for kept in rng.choices(self._kept, k=_COMPARED)
        ]
        kept, moment = max(compared, key=lambda each: self._rarity(*each))
        kept.chosen[moment.step] += 1
        return kept.schedule, moment

    def _rarity(self, kept: _KeptRun, moment: StepMoment) -> float:
        return 1 / self._met[moment.step] / (1 + kept.chosen[moment.step])


def strike(schedule: Schedule, moment: StepMoment, choose: ChoiceSource) -> Schedule:
    """The schedule with one more scenario, which begins at a moment of its run; others may follow.

    Of its own faults those remain that are planned for an earlier time, or wait for an event.
    """
    cluster, workload = schedule.cluster, schedule.workload
    led_by = protocol(cluster.protocol).leader_by
    votes = led_by is LeaderBy.VOTES
    partitions = [p for p in cluster.partition_names() if p == moment.partition]
    faults = [f for f in schedule.faults if f.at_ms is None or f.at_ms <= moment.at_ms]
    builder = ScenarioBuilder(
        choose=choose,
        cluster=cluster,
        partition=choose.pick(partitions or cluster.partition_names()),
        votes=votes,
        now_ms=moment.at_ms,
        elections=moment.elections,
        crashes=moment.crashes,
        controllers=moment.controllers,
        faults=faults,
        starts=later({"after": moment.trigger}, choose.pick((0, 0, 0, 0, 1, 5, 30))),
    )
    scenarios = [*(SCENARIOS_WITH_VOTES if votes else SCENARIOS), *scenarios_of_dimensions(led_by)]
    while len(builder.faults) < MAX_FAULTS_DRAWN:
        choose.pick(scenarios)(builder)
        if not choose.chance(_GO_ON_PERCENT):
            break
    until_ms = min(_LONGEST_MS, builder.now_ms + choose.pick((300, 500)))
    return replace(
        schedule,
        faults=tuple(builder.faults[:MAX_FAULTS_DRAWN]),
        workload=replace(workload, duration_ms=max(workload.duration_ms, until_ms)),
    )
