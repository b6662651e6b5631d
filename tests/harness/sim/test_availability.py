"""A cluster that goes on without a voter and a leader, and one with a bug that does not."""

from __future__ import annotations

import pytest

from checker.formats.verdict import Verdict
from harness.sim.run import simulate
from nemesis.formats.cluster_spec import Cluster, Workload
from nemesis.formats.fault import decode_all
from nemesis.formats.schedule import Schedule
from node.core.quorum import Quorum

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


def against() -> set[str]:
    """Return the anomalies of the run that count against the cluster."""
    found = simulate(CONTROLLER_AND_LEADER, seed=1, stop_at="never").checked.anomalies
    return {anomaly.name for anomaly in found if anomaly.verdict is Verdict.INVALID}


def test_a_bug_that_stops_a_connected_majority_is_unavailability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All voters answer again after the heal, so that only the storm shows it."""
    assert against() == set()
    monkeypatch.setattr(Quorum, "_won", lambda self: len(self._granted) == len(self.voters))
    assert against() == {"unavailable"}
