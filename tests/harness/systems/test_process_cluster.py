"""A cluster of processes gives back its ports and files, though it was never whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.runs import run_folder
from harness.systems import process_cluster, registry
from harness.systems.external import cluster as external
from harness.systems.floodmark import cluster as ours
from nemesis.formats.schedule import Cluster, Schedule
from node.formats.errors import StorageError, UsageError


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


def test_only_a_protocol_without_leader_epochs_writes_records_without_them() -> None:
    ours = registry.find("floodmark")
    ours.complete(Cluster(protocol="high-watermark", record_epochs=False))
    with pytest.raises(UsageError, match="kafka cannot do without epochs"):
        ours.complete(Cluster(record_epochs=False))
