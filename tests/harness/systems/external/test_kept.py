"""Storms that share a cluster of real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from checker.engine.local import check_run
from checker.formats.verdict import Verdict
from floodmark import Node, Roles
from harness.search.worlds import real as world
from harness.search.worlds.real import StormJob, StormSubject
from harness.systems.external import cluster
from harness.systems.external.cluster import ExternalCluster
from harness.systems.external.kept import ClusterKeeper
from nemesis.faults import Kill
from nemesis.faults.disks import BitFlip
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload
from tests.support.trial_adapters import Trial
from tests.support.waiting import until


class Forgets(Trial):
    """Drops every fifth record of its fourth storm on a cluster."""

    dumps_running = True

    def probe(self, me: Node) -> Mapping[str, Roles]:
        return {"*": Roles(1, ("n1",), ("n1",))} if me.name == "n1" else {}

    async def send(self, connection: Any, record: Any) -> int:
        dropped = record.partition.startswith("s3-") and not record.id % 5
        return 1 << 20 if dropped else await super().send(connection, record)


def open_files() -> list[Path]:
    """Return the open files of this process, as the links of the kernel."""
    return [file for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]


@pytest.mark.integration
def test_a_storm_is_judged_as_if_it_was_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def storm(*faults: Fault) -> Any:
        three = Cluster(partitions=1, replication_factor=1, min_isr=1, protocol="Forgets")
        workload = Workload(clients=2, consumers=1, rate=40.0, duration_ms=600, batch=1)
        schedule = Schedule(cluster=three, workload=workload, faults=faults)
        job = StormJob(subject=subject, schedule=schedule, store=str(tmp_path), name="shared")
        return job.go_on(keeper)

    def look(folder: Path, *more: Any) -> Any:
        texts = [(folder / name).read_text() for name in ("exits.jsonl", "logs/n1.jsonl")]
        seen.append((texts[0].count("\n"), hash(texts[1])))
        return outcome_in(folder, *more)

    def kept() -> ExternalCluster | None:
        return keeper._cluster

    seen: list[tuple[int, int]] = []
    outcome_in = world.outcome_in
    monkeypatch.setattr(world, "outcome_in", look)
    subject = StormSubject(system=f"{__name__}:Forgets", disks="none")
    keeper = ClusterKeeper(tmp_path)
    assert storm().verdict == "valid"
    first = kept()
    assert storm(Kill(on="n2", at_ms=100, for_ms=200)).verdict == "valid"
    assert storm(BitFlip(on="n1", at_ms=100)) is None, "that may leave something"
    assert (storm().verdict, kept()) == ("valid", first)
    assert [exits for exits, _ in seen] == [0, 1, 0]
    of_storms = {file for file in map(os.readlink, open_files()) if "/shared/" in file}
    assert len(of_storms) <= 2, "those of the last storm"
    assert len({log for _, log in seen}) == 3, "each has a log of its own"
    lost = storm()
    assert (lost.failed, kept()) == (True, first), "it is as whole as before"
    assert keeper.end()
    assert check_run(Path(lost.folder)).verdict == Verdict.INVALID, "its seal was before that end"
    assert {file.name for file in Path(lost.folder, "output").iterdir()} > {"n1.txt", "n3.txt"}
    assert storm().verdict == "valid"
    second = kept()
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "IN_SYNC_TIMEOUT_S", 0.0)
        patch.setattr(ExternalCluster, "_all_in_sync", lambda self: False)
        assert storm().verdict == "valid"
    assert storm().verdict == "valid"
    last = kept()
    assert last is not None
    assert last is not second, "its replicas were not in sync"
    assert len(list(tmp_path.glob(".cluster-*"))) == 1
    last.processes._running["n3"].signal(signal.SIGKILL)
    until(lambda: last.processes._running["n3"].exit_code() is not None)
    assert storm() is None, "what came over a cluster that others had says nothing"
    assert kept() is None
