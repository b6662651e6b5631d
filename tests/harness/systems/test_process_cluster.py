"""A cluster of processes gives back its ports and files, though it was never whole."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.formats.problem import suspended
from harness.runs import run_folder
from harness.runs.interrupts import is_stopped
from harness.systems import process_cluster, registry
from harness.systems.external import cluster as external
from harness.systems.floodmark import cluster as ours
from harness.systems.node_processes import NodeProcess
from nemesis.formats.schedule import Cluster, Schedule
from node.formats.errors import StorageError, UsageError
from tests.support.waiting import until


def refuse(*_: object, **__: object) -> None:
    raise StorageError("x: cannot be written")


@pytest.mark.parametrize(
    ("system", "place", "name"),
    [
        ("floodmark", process_cluster, "Tracers"),
        ("floodmark", ours, "TraceTail"),
        ("examples/naive_log/adapter.py:NaiveLog", external, "UnsyncedFiles"),
    ],
)
def test_a_cluster_that_cannot_be_made_keeps_neither_ports_nor_files(
    system: str, place: object, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_folder.create(tmp_path, "x")
    monkeypatch.setattr(place, name, refuse)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(StorageError, match="x: cannot be written"):
        registry.find(system).launch(Schedule(), folder, links="none", disk="plain")
    assert os.listdir("/proc/self/fd") == before


def test_each_part_is_closed_though_another_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ours.FloodmarkCluster(Schedule(), run_folder.create(tmp_path, "x"))
    monkeypatch.setattr(cluster.processes, "close", refuse)
    with pytest.raises(StorageError):
        cluster.close()
    assert not cluster._lease.ports


@pytest.fixture
def stopped() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sh", "-c", "exec >&-; kill -STOP $$; sleep 600"]) as child:
        until(lambda: is_stopped(child.pid))
        yield child
        child.kill()


@pytest.mark.integration
@pytest.mark.parametrize("paused", [True, False])
def test_a_process_that_no_fault_has_stopped_goes_on_and_is_a_problem(
    stopped: subprocess.Popen[bytes], paused: bool, tmp_path: Path
) -> None:
    cluster = ours.FloodmarkCluster(Schedule(), run_folder.create(tmp_path, "x"))
    node = NodeProcess(stopped.pid, 1)
    node.paused = paused
    cluster.processes._running["n1"] = node
    for _ in range(2):
        cluster.resume_suspended()
    assert cluster.problems == ([] if paused else [suspended("sh")])
    until(lambda: is_stopped(stopped.pid) is paused)
    cluster.processes._running.clear()
    cluster.close()


def test_only_a_protocol_without_leader_epochs_writes_records_without_them() -> None:
    ours = registry.find("floodmark")
    ours.complete(Cluster(protocol="high-watermark", record_epochs=False))
    with pytest.raises(UsageError, match="kafka cannot do without epochs"):
        ours.complete(Cluster(record_epochs=False))
