"""Tries forms of a schedule in worlds that are ever less ideal, and remembers what came of each.

What counts is in how many of them a form breaks its property. Worlds come in three kinds, in turn,
so that a form which fails in fair latency only is told from one that never fails. Deterministic.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from harness.search.attempt import attempt
from harness.search.stabilise import FIRST_WORLD, jittered
from harness.sim.latency_profile import BUSY_HOST, IDLE_HOST, OVERLOADED_HOST, LatencyProfile
from harness.sim.run import SimResult, simulate
from nemesis.formats.schedule import Schedule


class EvaluationWorld(NamedTuple):
    """A simulated world: its seed, its latency, and how late messages are at least."""

    seed: int
    latency: LatencyProfile
    latency_ms: int


WORLDS: Final = tuple(
    EvaluationWorld(FIRST_WORLD + number, *kind)
    for number, kind in enumerate([(IDLE_HOST, 1), (BUSY_HOST, 8), (OVERLOADED_HOST, 4)] * 10)
)
FIRST_WORLDS: Final = 12
"""Forms are looked for in so many worlds, and made surer still in all of them."""
FIRST_LOOK: Final = 3
"""Every form is tried in a few worlds; only the most promising are tried in all."""
PROMISING: Final = 4


class Trial:
    """The forms of one schedule, whose runs are to break the property `broken`."""

    def __init__(self, broken: str, worlds: int = FIRST_WORLDS) -> None:
        self._broken = broken
        self._worlds = WORLDS[:worlds]
        self._known: dict[tuple[str, int], bool] = {}
        self._most_runs = 0

    def allow(self, runs: int) -> None:
        """From now on so many further runs may be made until no further form is tried."""
        self._most_runs = len(self._known) + runs

    def go_on_in_all_worlds(self) -> None:
        """From now on forms are tried in more worlds than before."""
        self._worlds = WORLDS

    @property
    def exhausted(self) -> bool:
        """Whether as many runs were made as are allowed."""
        return len(self._known) >= self._most_runs

    def sure(self, schedule: Schedule) -> bool:
        """Whether a form fails in all worlds."""
        return self.surely(schedule, above=len(self._worlds) - 1) == len(self._worlds)

    def fails(self, schedule: Schedule, world: EvaluationWorld) -> bool:
        """Whether a form breaks the property in a world."""
        key = (schedule.digest(), world.seed)
        if key not in self._known:
            self._known[key] = self._try(jittered(schedule, world.latency_ms), world)
        return self._known[key]

    def _try(self, schedule: Schedule, world: EvaluationWorld) -> bool:
        outcome = attempt(schedule, world.seed, latency=world.latency)
        if outcome.failed and self._broken not in outcome.broken:
            outcome = attempt(schedule, world.seed, latency=world.latency, stop_at="never")
        return self._broken in outcome.broken

    def surely(self, schedule: Schedule, *, above: int = -1) -> int:
        """In how many worlds a form fails; given up when that can no longer be more than `above`,
        with what it has then."""
        failed = 0
        for left, world in zip(range(len(self._worlds) - 1, -1, -1), self._worlds, strict=True):
            failed += self.fails(schedule, world)
            if failed + left <= above:
                break
        return failed

    def rank(self, schedule: Schedule, *, above: int = -1) -> tuple[int, int]:
        """What makes one form better than another: how surely it fails, then how little of it
        comes at a time, which real clients and processes do not keep."""
        due = (*schedule.faults, *schedule.workload.operations)
        timed = sum(bool(each.at_ms) for each in due)
        return self.surely(schedule, above=above), -timed

    def best(self, now: Schedule, others: list[Schedule]) -> Schedule:
        """The surest of several forms; the present one unless another is surer."""
        look = self._telling_worlds(now)
        promise = {form.digest(): sum(self.fails(form, w) for w in look) for form in others}
        # Stable: of forms that promise as much, the one at the nearest moment comes first.
        others.sort(key=lambda form: -promise[form.digest()])
        best, best_rank = now, self.rank(now)
        for form in others[:PROMISING]:
            if promise[form.digest()]:
                rank = self.rank(form, above=best_rank[0] - 1)
                if rank > best_rank:
                    best, best_rank = form, rank
        return best

    def _telling_worlds(self, now: Schedule) -> list[EvaluationWorld]:
        """A few worlds in which another form shows whether it may be surer than the present one:
        one that it must not lose, and those that it has to win."""
        kept = [world for world in self._worlds if self.fails(now, world)]
        open_ = [world for world in self._worlds if world not in kept]
        look = [*kept[:1], *open_[: FIRST_LOOK - 1]]
        return [*look, *kept[1 : 1 + FIRST_LOOK - len(look)]]

    def failing_run(self, schedule: Schedule) -> SimResult | None:
        """A run in which a form fails, None if it never does."""
        for world in self._worlds:
            if self.fails(schedule, world):
                trying = jittered(schedule, world.latency_ms)
                return simulate(trying, seed=world.seed, stop_at="visible", latency=world.latency)
        return None
