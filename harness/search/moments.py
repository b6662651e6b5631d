"""The moments of a run at which the cluster made a step, as times and triggers for other runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from harness.sim.run import SimResult
from nemesis.formats.schedule import After
from node.formats import trace
from node.formats.trace import TraceEvent

_TELLING: Final = ("node", "partition", "role", "state", "kind", "candidate")
"""Fields of an event that a trigger names; the others are numbers, or differ from run to run."""


class StepMoment(NamedTuple):
    """When a run made a step (`harness.sim.coverage`) for the first time: in the turn of the `nth`
    event of its kind that has these fields, `at_ms` after the storm began. The last three count
    what triggers count, up to there: leaders of its partition, breakpoints, controllers."""

    step: int
    at_ms: int
    event: str
    fields: tuple[tuple[str, Any], ...]
    nth: int
    elections: int
    crashes: int
    controllers: int

    @property
    def partition(self) -> str:
        """The partition of the event, "" where it has none."""
        return str(dict(self.fields).get("partition", ""))

    @property
    def trigger(self) -> After:
        """For a fault that comes at this moment, in a run that has the same past."""
        return After(event=self.event, match=dict(self.fields), nth=self.nth)


def moments_of(result: SimResult) -> tuple[StepMoment, ...]:
    """The moments of a run's storm, in their order."""
    return tuple(_moments(result))


def _moments(result: SimResult) -> Iterator[StepMoment]:
    phases = result.info.phases
    made = {id(event): step for step, event in result.moments.items()}
    seen = Counter[tuple[str, tuple[tuple[str, Any], ...]]]()
    leaders, others = Counter[str](), Counter[str]()
    for event in result.trace:
        t_us, name, partition = event["t_us"], event["event"], event.get("partition", "")
        if t_us < phases.storm_us or (phases.heal_us and t_us >= phases.heal_us):
            continue
        kind = (name, _fields(event))
        seen[kind] += 1
        if name == trace.ROLE and event["role"] == "leader":
            leaders[partition] += 1
        elif name == trace.BREAK or (name == trace.CONTROLLER and event["state"] == "active"):
            others[name] += 1
        if (step := made.get(id(event))) is not None:
            yield StepMoment(
                step,
                (t_us - phases.storm_us) // 1000,
                *kind,
                seen[kind],
                leaders[partition],
                others[trace.BREAK],
                others[trace.CONTROLLER],
            )


def _fields(event: TraceEvent) -> tuple[tuple[str, Any], ...]:
    return tuple((name, event[name]) for name in _TELLING if name in event)
