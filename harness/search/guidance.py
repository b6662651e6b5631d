"""What a guided search keeps, and where it branches off. Pure.

A run is described by its steps: which joint state of the cluster followed which
(`harness.sim.coverage`). A schedule is kept when its run made a step that no run before it made.
The search branches off from kept schedules with rare steps: a step that k schedules made counts
1/k, and a schedule counts less each time it was chosen. As in rarity-weighted fuzzing (Böhme et
al., "Coverage-based Greybox Fuzzing as Markov Chain", 2016; Meng et al., "Greybox Fuzzing of
Distributed Systems", 2023).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from harness.search.choice_source import Tape
from harness.search.generator import CHAIN, CLUSTER, WORKLOAD

MOST_KEPT: Final = 2_000
"""Kept schedules; the oldest leave first."""
MOST_STEPS: Final = 2_000_000
_COMPARED: Final = 8
"""The rarest of so many kept schedules, drawn at random, is chosen."""


@dataclass(slots=True)
class _Branchable:
    """The choices of a schedule, the steps of its run, and how often it was branched off from."""

    tape: Tape
    steps: tuple[int, ...]
    chosen: int = 0


class Corpus:
    """The schedules that a guided search keeps."""

    def __init__(self) -> None:
        self._kept: list[_Branchable] = []
        self._met = Counter[int]()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, tape: Tape, steps: Collection[int]) -> None:
        """The choices of a schedule and the steps of its run; kept if one of them is new."""
        if len(self._met) >= MOST_STEPS:
            return
        is_new = any(step not in self._met for step in steps)
        self._met.update(steps)
        if is_new:
            self._kept.append(_Branchable(tape, tuple(sorted(steps))))
            del self._kept[:-MOST_KEPT]

    def choose(self, rng: random.Random) -> Tape:
        """The choices of a schedule whose run went through rare steps."""
        compared = [rng.choice(self._kept) for _ in range(_COMPARED)]
        best = max(compared, key=self._rarity)
        best.chosen += 1
        return best.tape

    def _rarity(self, kept: _Branchable) -> float:
        return sum(1 / self._met[step] for step in kept.steps) / (1 + kept.chosen)


def branch(tape: Tape, rng: random.Random) -> tuple[Tape, Collection[str]]:
    """(choices, sections to keep) of a schedule that differs in one respect: it continues in
    another way after some of its scenarios, has one other scenario, or another workload."""
    chain = [section for section in CHAIN if tape.get(section)]
    at = rng.randrange(len(chain))
    kind = rng.randrange(10)
    if kind < 6:
        return tape, (CLUSTER, WORKLOAD, *chain[: at + (kind < 5)])
    if kind < 9:
        return tape, (CLUSTER, WORKLOAD, *chain[:at], *chain[at + 1 :])
    return tape, (CLUSTER, *chain)
