"""Ends of brokers from outside and under faults, and senders that a run rejects."""

from __future__ import annotations

import json
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import psutil
import pytest
import zmq

from harness.formats.process_exits import Exit
from harness.systems.floodmark.nodes import Nodes
from harness.systems.floodmark.world import RealWorld
from harness.systems.node_processes import who_ended
from nemesis.formats.schedule import Cluster, Schedule, Workload
from nemesis.world import CallFails
from tests.support.harness_fakes import ended_nodes
from tests.support.running_harness import (
    FAST,
    acknowledged,
    part,
    problems,
    run_folder,
    start,
    wait_until,
)
from tests.support.waiting import PATIENCE_S, until

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
    RealWorld(ours, *[None] * 3, tracers, *[None] * 3, {}).add_call_fault(  # type: ignore[arg-type]
        "n1", CallFails("sync", action)
    )
    assert [(end.by, end.expected) for end in ends] == [("itself", expected)]
    ours.start("n1")
    assert [end.expected for end in ours.reap() if end.by == "itself"] == [False] * (code != -9)


@pytest.mark.integration
def test_rejected_senders_stand_in_run_json_and_changes_no_verdict(tmp_path: Path) -> None:
    """Messages with no key of the run go to every port of it, until a broker has traced one."""
    harness = start(tmp_path, Schedule(cluster=ONE, workload=LONG), "--no-report")
    wait_until(lambda: acknowledged(tmp_path) > 20, harness)
    trace = run_folder(tmp_path) / "trace" / "n1.jsonl"
    pids = {part(harness.pid, name) for name in ("n1", "v1", "hub", "clients")}
    ports = {c.laddr.port for pid in pids for c in listening(pid)}
    with zmq.Context() as context, ExitStack() as stack:
        for port in ports:
            outsider = stack.enter_context(context.socket(zmq.PUSH))
            outsider.set(zmq.LINGER, 0)
            public, secret = zmq.curve_keypair()
            outsider.set(zmq.CURVE_PUBLICKEY, public)
            outsider.set(zmq.CURVE_SECRETKEY, secret)
            outsider.set(zmq.CURVE_SERVERKEY, public)
            outsider.connect(f"tcp://127.0.0.1:{port}")
            with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
                plain.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48))
        until(lambda: b'"unauthenticated"' in trace.read_bytes())
    harness.send_signal(signal.SIGINT)
    harness.communicate(timeout=PATIENCE_S)
    info = json.loads((run_folder(tmp_path) / "run.json").read_text())
    assert info["rejected"].keys() <= {"n1", "v1", "hub", "clients", "admin"}
    assert info["rejected"]["n1"] >= 1
    assert problems(info) == ["interrupted"]


def listening(pid: int) -> list[Any]:
    connections = psutil.Process(pid).net_connections(kind="tcp")
    return [one for one in connections if one.status == psutil.CONN_LISTEN]
