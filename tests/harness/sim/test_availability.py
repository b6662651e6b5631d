"""A cluster that goes on without a voter and a leader, and one with a bug that does not."""

from __future__ import annotations

import pytest

from checker.formats.verdict import Verdict
from harness.search.worlds.outcome import failure_of
from harness.sim.run import SimResult, simulate
from nemesis.formats.cluster_spec import Cluster, Workload
from nemesis.formats.fault import decode_all
from nemesis.formats.schedule import Schedule
from node.core.quorum import Quorum
from tests.support.story_readback import Reader

CONTROLLER_AND_LEADER = Schedule(
    cluster=Cluster(protocol="kafka", brokers=3, voters=3),
    workload=Workload(duration_ms=9_000),
    faults=decode_all(
        [
            {"what": "pause", "on": "controller", "at_ms": 500, "for_ms": 8_000},
            {"what": "kill", "on": "leader:log-0", "at_ms": 600, "for_ms": 7_900},
        ]
    ),
)


def against(run: SimResult) -> set[str]:
    """Return the anomalies of a run that count against the cluster."""
    return {each.name for each in run.checked.anomalies if each.verdict is Verdict.INVALID}


def test_a_bug_that_stops_a_connected_majority_is_unavailability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All voters answer again after the heal, so that only the storm shows it. The story has both
    ends of the silence, and the faults in it."""
    assert against(simulate(CONTROLLER_AND_LEADER, seed=1, stop_at="never")) == set()
    monkeypatch.setattr(Quorum, "_won", lambda self: len(self._granted) == len(self.voters))
    run = simulate(CONTROLLER_AND_LEADER, seed=1, stop_at="never")
    assert against(run) == {"unavailable"}
    failure = failure_of(run)
    assert failure is not None
    reader = Reader(run, failure.story())
    assert (reader.read(), reader.false) == (12, [])
    kinds = [step.kind for step in reader.told.steps]
    assert kinds == ["fault", "send", "fault", "log", "fault-end", "fault-end", "send"]
