"""Faults before each step of a turn: each takes effect, and a right protocol loses nothing."""

from __future__ import annotations

from typing import get_args

import pytest

from harness.sim.run import simulate
from nemesis.faults import Break
from nemesis.faults.breakpoint import Step, Then
from nemesis.formats.cluster_spec import Cluster
from nemesis.formats.schedule import Schedule, Workload

STEPS: tuple[Step, ...] = get_args(Step)


@pytest.mark.parametrize("protocol", ["kafka", "quorum"])
@pytest.mark.parametrize("then", get_args(Then))
def test_every_step_is_a_place_to_fail(then: Then, protocol: str) -> None:
    faults = [
        Break(
            on="leader", event="append", before=step, then=then, at_ms=1000 + 2000 * n, for_ms=800
        )
        for n, step in enumerate(STEPS)
    ]
    anywhere = Break(on="follower", before="commit", then=then, at_ms=9000, for_ms=300)
    run = simulate(
        Schedule(
            cluster=Cluster(protocol=protocol),
            workload=Workload(duration_ms=10_500),
            faults=(*faults, anywhere),
        ),
        seed=1,
    )
    assert run.verdict == "valid", run.broken
    effects = {line.fault: line.stopped for line in run.faults if line.action == "effect"}
    assert effects == dict.fromkeys(range(5), 1)
    stood = [event["before"] for event in run.trace if event["event"] == "break"]
    assert stood == [*STEPS, "commit"]
    ended = [end for end in run.exits if end.by == "kill"]
    assert len(ended) == (5 if then in ("kill", "power-cut") else 0)
