"""Many runs in one process."""

from __future__ import annotations

import gc

import pytest

from harness.search.grammar.conditions import TIMINGS
from harness.sim.run import RUNS_PER_COLLECTION, batched_collections, simulate
from tests.support.sim_schedules import plan


@pytest.mark.integration
def test_many_runs_leave_nothing_behind() -> None:
    """Cycles of a run are collected after a few more runs, without a full collection."""
    schedule = plan(duration_ms=100, timings=TIMINGS)

    def objects() -> int:
        for _ in range(RUNS_PER_COLLECTION):
            simulate(schedule, seed=1)
        return len(gc.get_objects())

    with batched_collections():
        assert not gc.isenabled()
        objects()
        first = objects()
        assert abs(objects() - first) < 100, "one run makes many thousand"
    assert gc.isenabled()
