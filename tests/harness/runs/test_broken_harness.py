"""A broken harness is never blamed on the system: parts of a run are killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import psutil
import pytest
import zmq

from harness.formats.process_exits import Exit
from harness.systems.floodmark.nodes import who_ended_a_broker
from harness.systems.floodmark.world import RealWorld
from nemesis.faults import Kill
from nemesis.formats.schedule import Cluster, Schedule, Workload
from nemesis.world import CallFails
from tests.support.harness_fakes import ended_nodes
from tests.support.running_harness import (
    FAST,
    acknowledged,
    lives,
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
    assert who_ended_a_broker(why, code) == by


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


def broken(
    folder: Path, cluster: Cluster, breakage: Callable[[subprocess.Popen[str]], None], at: int = 20
) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Make a run in which `breakage` happens after `at` acknowledgements; return its exit code,
    run.json and result."""
    # A fault that is never due: the plan is not complete before the end.
    faults = (Kill(on="n1", at_ms=599_000),)
    harness = start(folder, Schedule(cluster=cluster, workload=LONG, faults=faults), "--no-report")
    wait_until(lambda: acknowledged(folder) > at, harness)
    breakage(harness)
    out, err = harness.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in out + err
    here = run_folder(folder)
    info = json.loads((here / "run.json").read_text())
    return harness.returncode, info, json.loads((here / "results.json").read_text())


@pytest.mark.integration
def test_rejected_senders_stand_in_run_json_and_changes_no_verdict(tmp_path: Path) -> None:
    def breakage(harness: subprocess.Popen[str]) -> None:
        """Messages with no key of the run to every port of it, until a broker has traced one."""
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

    _, info, _ = broken(tmp_path, ONE, breakage)
    assert info["rejected"].keys() <= {"n1", "v1", "hub", "clients", "admin"}
    assert info["rejected"]["n1"] >= 1
    assert problems(info) == ["interrupted"]


def listening(pid: int) -> list[Any]:
    connections = psutil.Process(pid).net_connections(kind="tcp")
    return [one for one in connections if one.status == psutil.CONN_LISTEN]


@pytest.mark.integration
def test_processes_killed_from_outside_are_nobodys_fault(tmp_path: Path) -> None:
    def breakage(harness: subprocess.Popen[str]) -> None:
        """Both have ended when the harness looks: what ends after the heal, nothing starts."""
        os.kill(harness.pid, signal.SIGSTOP)
        for name, number in (("n1", signal.SIGTERM), ("v1", signal.SIGKILL)):
            os.kill(pid := part(harness.pid, name), number)
            until(lambda pid=pid: not lives(pid), f"the end of {name}")
        os.kill(harness.pid, signal.SIGCONT)

    code, info, result = broken(tmp_path, ONE, breakage)
    assert (code, result["verdict"]) == (2, "unknown"), result["sentence"]
    assert problems(info) == ["node-ended"] * 2
    first = "was ended from outside (" in result["sentence"]
    assert first, result["sentence"]
    exits = [json.loads(line) for line in (run_folder(tmp_path) / "exits.jsonl").open()]
    assert {each["node"] for each in exits if each["by"] == "outside"} == {"n1", "v1"}
