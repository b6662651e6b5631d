"""The reliability of variants of a failing schedule in other simulated worlds.

Worlds differ in their jitter seed, their latency profile, and how late messages are. `Evaluation`
compares variants for real processes, in worlds with less and less regular latency. Results are
deterministic."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from harness.search.deadline import Stop, never
from harness.search.worlds.outcome import run_simulated
from harness.sim.latency_profile import BUSY_HOST, IDLE_HOST, OVERLOADED_HOST, LatencyProfile
from harness.sim.run import SimResult, simulate
from nemesis.faults import Delay
from nemesis.formats.schedule import Fault, Schedule

FIRST_SEED: Final = 1000


def jittered(schedule: Schedule, delay_ms: int) -> Schedule:
    """Return the schedule with a random delay of each message of up to twice `delay_ms`."""
    jitter = Delay(on="all", to="all", delay_ms=delay_ms, jitter_ms=delay_ms, at_ms=0)
    # Last, so that the other faults keep their numbers, and their random draws.
    return replace(schedule, faults=(*schedule.faults, jitter))


def with_fault(schedule: Schedule, index: int, fault: Fault) -> Schedule:
    faults = (*schedule.faults[:index], fault, *schedule.faults[index + 1 :])
    return replace(schedule, faults=faults)


class Conditions(NamedTuple):
    """The conditions of a simulated run: seed, latency profile, least delay of a message in ms."""

    seed: int
    latency: LatencyProfile
    delay_ms: int


WORLDS: Final = tuple(
    Conditions(FIRST_SEED + number, *kind)
    for number, kind in enumerate([(IDLE_HOST, 1), (BUSY_HOST, 8), (OVERLOADED_HOST, 4)] * 10)
)
FIRST_WORLDS: Final = 12
"""The number of worlds to compare variants in; the best one is then improved in all."""
PROBES: Final = 3
"""The number of worlds in which each variant is tried first; only the best are run in all."""
PROMISING: Final = 4


class OutOfTimeError(Exception):
    """No further run is allowed, because the time of the command is used up."""


class Evaluation:
    """Runs variants of one schedule in several worlds, and remembers which violate `broken`.
    Methods that run a variant raise OutOfTimeError once `stop` returns True."""

    def __init__(self, broken: str, worlds: int = FIRST_WORLDS, *, stop: Stop = never) -> None:
        self._broken = broken
        self._stop = stop
        self._worlds = WORLDS[:worlds]
        self._known: dict[tuple[str, int], bool] = {}
        self._most_runs = 0

    def allow(self, runs: int) -> None:
        self._most_runs = len(self._known) + runs

    def use_all_worlds(self) -> None:
        """Use all worlds from here on, not only the first ones."""
        self._worlds = WORLDS

    @property
    def exhausted(self) -> bool:
        """Return whether all allowed runs are used up."""
        return len(self._known) >= self._most_runs

    def always_fails(self, schedule: Schedule) -> bool:
        """Return whether a variant fails in all worlds."""
        most = len(self._worlds)
        return self.failing_worlds(schedule, above=most - 1) == most

    def fails(self, schedule: Schedule, under: Conditions) -> bool:
        """Return whether a variant violates the property under these conditions."""
        key = (schedule.digest(), under.seed)
        if key not in self._known:
            if self._stop():
                raise OutOfTimeError
            self._known[key] = self._run(jittered(schedule, under.delay_ms), under)
        return self._known[key]

    def _run(self, schedule: Schedule, under: Conditions) -> bool:
        outcome = run_simulated(schedule, under.seed, latency=under.latency)
        if outcome.failed and self._broken not in outcome.broken:
            outcome = run_simulated(schedule, under.seed, latency=under.latency, stop_at="never")
        return self._broken in outcome.broken

    def failing_worlds(self, schedule: Schedule, *, above: int = -1) -> int:
        """Count the worlds in which a variant fails, only while it can exceed `above`."""
        failed = 0
        for left, world in zip(range(len(self._worlds) - 1, -1, -1), self._worlds, strict=True):
            failed += self.fails(schedule, world)
            if failed + left <= above:
                break
        return failed

    def rank(self, schedule: Schedule, *, above: int = -1) -> tuple[int, int]:
        """Return a key that is larger for the better variant: in how many worlds it fails, then how
        few faults and operations begin at a fixed time. `above` is as in `failing_worlds`."""
        due = (*schedule.faults, *schedule.workload.operations)
        timed = sum(bool(each.at_ms) for each in due)
        return self.failing_worlds(schedule, above=above), -timed

    def best(self, now: Schedule, others: list[Schedule]) -> Schedule:
        """Return the best of several variants, or `now` if none of the others is better."""
        probes = self._probes(now)
        promise = {each.digest(): sum(self.fails(each, w) for w in probes) for each in others}
        # Stable: of variants that promise as much, the one at the nearest event comes first.
        others.sort(key=lambda variant: -promise[variant.digest()])
        best, best_rank = now, self.rank(now)
        for variant in others[:PROMISING]:
            if promise[variant.digest()]:
                rank = self.rank(variant, above=best_rank[0] - 1)
                if rank > best_rank:
                    best, best_rank = variant, rank
        return best

    def _probes(self, now: Schedule) -> list[Conditions]:
        """Return probes for variants of `now`: a world in which it fails, some in which not."""
        kept = [world for world in self._worlds if self.fails(now, world)]
        open_ = [world for world in self._worlds if world not in kept]
        probes = [*kept[:1], *open_[: PROBES - 1]]
        return [*probes, *kept[1 : 1 + PROBES - len(probes)]]

    def failing_run(self, schedule: Schedule) -> SimResult | None:
        """Return a run in which a variant fails, None if it fails in no world."""
        for world in self._worlds:
            if self.fails(schedule, world):
                variant = jittered(schedule, world.delay_ms)
                return simulate(variant, seed=world.seed, stop_at="visible", latency=world.latency)
        return None
