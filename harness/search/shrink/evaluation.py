"""The reliability of a failing schedule on real processes, estimated from simulated runs.

The runs differ in their jitter seed, their latency profile, and how late messages are. Results are
deterministic."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from harness.search.deadline import Stop, never
from harness.search.worlds.outcome import run_simulated
from harness.sim.latency_profile import BUSY_HOST, IDLE_HOST, OVERLOADED_HOST, LatencyProfile
from nemesis.faults import Delay
from nemesis.formats.schedule import Schedule

FIRST_SEED: Final = 1000


def jittered(schedule: Schedule, delay_ms: int) -> Schedule:
    """Return the schedule with a random delay of each message of up to twice `delay_ms`."""
    jitter = Delay(on="all", to="all", delay_ms=delay_ms, jitter_ms=delay_ms, at_ms=0)
    # Last, so that the other faults keep their numbers, and their random draws.
    return replace(schedule, faults=(*schedule.faults, jitter))


class Conditions(NamedTuple):
    """The conditions of a simulated run: seed, latency profile, least delay of a message in ms."""

    seed: int
    latency: LatencyProfile
    delay_ms: int


CONDITIONS: Final = tuple(
    Conditions(FIRST_SEED + number, *kind)
    for number, kind in enumerate([(IDLE_HOST, 1), (BUSY_HOST, 8), (OVERLOADED_HOST, 4)] * 10)
)


class OutOfTimeError(Exception):
    """No further run is allowed, because the time of the command is used up."""


class Evaluation:
    """Runs variants of one schedule under `CONDITIONS`, and remembers which violate `broken`.
    Methods that run a variant raise OutOfTimeError once `stop` returns True."""

    def __init__(self, broken: str, *, stop: Stop = never) -> None:
        self._broken = broken
        self._stop = stop
        self._known: dict[tuple[str, int], bool] = {}

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

    def failures(self, schedule: Schedule, *, least: int = 0) -> int:
        """Count the conditions under which a variant fails, only while there can be `least`."""
        failed = 0
        for left, under in zip(range(len(CONDITIONS) - 1, -1, -1), CONDITIONS, strict=True):
            failed += self.fails(schedule, under)
            if failed + left < least:
                break
        return failed
