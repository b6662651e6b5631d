"""Storms that share a cluster of real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from floodmark import Node, Roles
from harness.search.attempt import Attempt
from harness.search.real import world
from harness.search.real.world import StormJob, StormSubject
from harness.systems.external.cluster import ExternalCluster
from harness.systems.external.kept import ClusterKeeper, leaves_no_trace
from nemesis.faults.disks import BitFlip
from nemesis.faults.kill import Kill
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload
from tests.support.trial_adapters import Trial

pytestmark = pytest.mark.integration


class Shared(Trial):
    dumps_running = True

    def probe(self, me: Node) -> Mapping[str, Roles]:
        return {"*": Roles(1, ("n1",), ("n1",))} if me.name == "n1" else {}


class Forgets(Shared):
    """Drops records of every storm but the first one."""

    async def send(self, connection: Any, record: Any) -> int:
        if not record.partition.startswith("s") or record.id % 5:
            return await super().send(connection, record)
        return 1 << 20


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[ClusterKeeper]:
    made = ClusterKeeper(tmp_path)
    yield made
    made.end()


def storm(store: Path, keeper: ClusterKeeper, *faults: Fault, system: type = Shared) -> Any:
    """Return what a short storm on the cluster that is kept came to."""
    schedule = Schedule(
        cluster=Cluster(brokers=3, replication_factor=1, min_isr=1, protocol=system.__name__),
        workload=Workload(clients=2, consumers=1, rate=40.0, duration_ms=600, batch=1),
        faults=faults,
    )
    subject = StormSubject(system=f"{system.__module__}:{system.__name__}", disks="none")
    return StormJob(subject=subject, schedule=schedule, store=str(store), name="shared").go_on(
        keeper
    )


def cluster_of(keeper: ClusterKeeper) -> ExternalCluster:
    assert keeper._cluster is not None
    return keeper._cluster


def test_a_storm_is_judged_as_if_it_was_alone(
    tmp_path: Path, keeper: ClusterKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    made = world.outcome_of

    def look(folder: Path, *more: Any) -> Attempt:
        logs = {p.name: p.read_text() for p in folder.glob("logs/*.jsonl")}
        exits = (folder / "exits.jsonl").read_text().splitlines()
        seen.append(
            {"logs": logs, "exits": exits, "info": json.loads((folder / "run.json").read_text())}
        )
        return made(folder, *more)

    monkeypatch.setattr(world, "outcome_of", look)
    assert storm(tmp_path, keeper).verdict == "valid"
    first = cluster_of(keeper)
    pids = {node: first.processes.pid(node) for node in first.names}
    assert storm(tmp_path, keeper, Kill(on="n2", at_ms=100, for_ms=200)).verdict == "valid"
    assert cluster_of(keeper) is first
    now = {node: first.processes.pid(node) for node in first.names}
    assert [node for node in pids if pids[node] != now[node]] == ["n2"]
    assert storm(tmp_path, keeper).verdict == "valid"
    assert [len(each["exits"]) for each in seen] == [0, 1, 0]
    assert all(
        each["info"]["capabilities"] == ["logs"] and each["info"]["goes_on"] for each in seen
    )
    values = [text for each in seen for text in each["logs"].values() if "log-0" in text]
    assert len(values) == 3, "each storm has the log of its own partition"
    assert first.storms == 3
    home = first._home.path
    keeper.end()
    assert not home.exists()
    assert list(tmp_path.glob("shared*")) == []


def test_an_unhealthy_cluster_is_not_kept(tmp_path: Path, keeper: ClusterKeeper) -> None:
    assert storm(tmp_path, keeper).verdict == "valid"
    first = cluster_of(keeper)
    first.processes._signal("n3", 9)
    while first.processes.pid("n3") and not first.processes._has_ended(
        first.processes._running["n3"]
    ):
        pass
    assert storm(tmp_path, keeper) is None, "what came over the old cluster says nothing"
    assert keeper._cluster is None
    assert storm(tmp_path, keeper).verdict == "valid"
    assert cluster_of(keeper) is not first


def test_a_failure_ends_the_cluster(tmp_path: Path, keeper: ClusterKeeper) -> None:
    first = storm(tmp_path, keeper, system=Forgets)
    assert first.verdict == "valid", first.sentence
    outcome = storm(tmp_path, keeper, system=Forgets)
    assert outcome.failed
    assert keeper._cluster is None


def test_a_fault_that_leaves_something_needs_a_cluster_of_its_own(
    tmp_path: Path, keeper: ClusterKeeper
) -> None:
    assert storm(tmp_path, keeper, BitFlip(on="n1", at_ms=100)) is None
    assert keeper._cluster is None
    assert not leaves_no_trace(Schedule(faults=(BitFlip(on="n1", at_ms=100),)))
