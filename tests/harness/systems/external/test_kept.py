"""Storms that share a cluster of real processes."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from floodmark import Node, Roles
from harness.search.real import world
from harness.search.real.world import StormJob, StormSubject
from harness.systems.external.kept import ClusterKeeper
from nemesis.faults.disks import BitFlip
from nemesis.faults.kill import Kill
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload
from tests.support.trial_adapters import Trial
from tests.support.waiting import until


class Forgets(Trial):
    """Drops every fifth record of its fourth storm on a cluster."""

    dumps_running = True

    def probe(self, me: Node) -> Mapping[str, Roles]:
        return {"*": Roles(1, ("n1",), ("n1",))} if me.name == "n1" else {}

    async def send(self, connection: Any, record: Any) -> int:
        if record.partition.startswith("s3-") and not record.id % 5:
            return 1 << 20
        return await super().send(connection, record)


@pytest.mark.integration
def test_a_storm_is_judged_as_if_it_was_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def storm(*faults: Fault) -> Any:
        schedule = Schedule(
            cluster=Cluster(partitions=1, replication_factor=1, min_isr=1, protocol="Forgets"),
            workload=Workload(clients=2, consumers=1, rate=40.0, duration_ms=600, batch=1),
            faults=faults,
        )
        job = StormJob(subject=subject, schedule=schedule, store=str(tmp_path), name="shared")
        return job.go_on(keeper)

    def pids() -> list[int | None]:
        return [] if keeper._cluster is None else [*map(keeper._cluster.processes.pid, nodes)]

    def look(folder: Path, *more: Any) -> Any:
        exits.append((folder / "exits.jsonl").read_text().count("\n"))
        logs.append((folder / "logs" / "n1.jsonl").read_text())
        assert json.loads((folder / "run.json").read_text())["goes_on"]
        return outcome_of(folder, *more)

    exits: list[int] = []
    logs: list[str] = []
    outcome_of, nodes = world.outcome_of, ("n1", "n2", "n3")
    monkeypatch.setattr(world, "outcome_of", look)
    subject = StormSubject(system=f"{__name__}:Forgets", disks="none")
    keeper = ClusterKeeper(tmp_path)
    assert storm().verdict == "valid"
    first = pids()
    assert storm(Kill(on="n2", at_ms=100, for_ms=200)).verdict == "valid"
    assert [old == new for old, new in zip(first, pids(), strict=True)] == [True, False, True]
    assert storm(BitFlip(on="n1", at_ms=100)) is None, "that may leave something"
    assert storm().verdict == "valid"
    assert (exits, len(set(logs))) == ([0, 1, 0], 3), "each has its own exits and its own log"
    assert storm().failed
    assert (pids(), list(tmp_path.glob(".cluster-*"))) == ([], []), "a failure ends the cluster"
    assert storm().verdict == "valid"
    assert keeper._cluster is not None
    nodes_of = keeper._cluster.processes
    nodes_of._signal("n3", signal.SIGKILL)
    until(lambda: nodes_of._has_ended(nodes_of._running["n3"]))
    assert storm() is None, "what came over a cluster that others had says nothing"
    assert pids() == []
