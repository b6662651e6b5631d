"""Ends of brokers from outside and under faults, and senders that a run rejects."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import psutil
import pytest

from harness.formats.problem import Exit
from harness.systems.floodmark.nodes import Nodes
from harness.systems.floodmark.world import RealWorld
from harness.systems.node_processes import who_ended
from nemesis.formats.schedule import Cluster, Schedule, Workload
from nemesis.world import CallFails
from tests.support.harness_fakes import ended_nodes
from tests.support.running_harness import FAST, acknowledged, part, start, wait_until
from tests.support.waiting import PATIENCE_S

ONE = Cluster(brokers=1, replication_factor=1, min_isr=1, partitions=1, timings=FAST)
LONG = Workload(seed=3, clients=2, consumers=1, rate=50, timeout_ms=500, duration_ms=600_000)


@pytest.mark.parametrize(
    ("why", "code", "by"),
    [
        ("kill", -9, "kill"),
        ("kill", -11, "itself"),
        ("kill", 0, "outside"),
        ("stop", 0, "stop"),
        ("stop", 70, "stop"),
        ("stop", -9, "outside"),
        ("itself", -9, "outside"),
        ("itself", -15, "outside"),
        ("itself", 0, "outside"),
        ("itself", -6, "itself"),
        ("itself", 74, "itself"),
        ("hung", -9, "itself"),
    ],
)
def test_who_ended_a_broker(
    why: Literal["kill", "stop", "itself", "hung"], code: int, by: str
) -> None:
    assert who_ended(why, code, only_asked=Nodes.only_asked) == by


@pytest.mark.parametrize(
    ("action", "code", "expected"),
    [("kill", -9, True), ("kill", -6, False), ("error", -6, True), ("error", 1, True)],
)
def test_a_call_fault_excuses_the_end_of_one_process_even_while_strace_attaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: Any, code: int, *, expected: bool
) -> None:
    ours: Any = ended_nodes(monkeypatch, tmp_path, code)
    ours.start("n1")
    ends: list[Exit] = []
    tracers: Any = SimpleNamespace(add=lambda *about: ends.extend(ours.reap()) or 1)
    RealWorld(ours, *[None] * 3, tracers, *[None] * 3, {}).add(  # type: ignore[arg-type]
        "n1", CallFails("sync", action)
    )
    assert [(end.by, end.expected) for end in ends] == [("itself", expected)]
    ours.start("n1")
    assert [end.expected for end in ours.reap() if end.by == "itself"] == [False] * (code != -9)


@pytest.mark.integration
def test_no_other_user_reaches_a_process_of_a_run(tmp_path: Path) -> None:
    """All sockets that listen are in one folder of the user's own, which goes with the run."""
    harness = start(tmp_path, Schedule(cluster=ONE, workload=LONG), "--no-report")
    wait_until(lambda: acknowledged(tmp_path) > 0, harness)
    parts = [psutil.Process(part(harness.pid, name)) for name in ("n1", "v1", "hub", "clients")]
    assert not [one for each in parts for one in each.net_connections(kind="inet")]
    (folder,) = {
        Path(one.laddr).parent
        for each in parts
        for one in each.net_connections(kind="unix")
        if one.laddr
    }
    assert (folder.stat().st_mode & 0o777, folder.stat().st_uid) == (0o700, os.getuid())
    assert {each.name for each in folder.iterdir()} == {"admin", "clients", "hub", "n1", "v1"}
    harness.send_signal(signal.SIGINT)
    harness.communicate(timeout=PATIENCE_S)
    assert not folder.exists()
