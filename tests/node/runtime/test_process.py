"""Real broker processes around a fake core: how they start, serve, and end."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import multiprocess
import pytest

from harness.runs.interrupts import is_stopped
from node.formats.messages import MetadataRequest, MetadataResponse, ProduceRequest
from node.formats.trace import APPEND, event
from node.runtime import breakpoints, template
from node.runtime.breakpoints import Armed, Breakpoint, Breakpoints, Order
from node.runtime.failing_disk import DiskFails
from node.runtime.process import spawn
from node.runtime.store import LmdbStorage
from tests.support.paths import ROOT
from tests.support.python_process import PythonProcess
from tests.support.runtime_fakes import FakeCore, SmallDisk, TellsTime
from tests.support.runtime_rig import BODY, Node, until_gone
from tests.support.scripts import proving, read
from tests.support.waiting import until

pytestmark = pytest.mark.integration

SCRIPTS = Path(__file__).parent / "processes"
MODULES = ("node.runtime.process", "tests.support.runtime_fakes")


either = pytest.mark.parametrize(
    "modules", [(), MODULES], ids=["interpreter", "template"], indirect=True
)
"""For tests of a whole life: children are fresh interpreters, or forked by a template."""


@pytest.fixture(autouse=True)
def modules(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Sequence[str]]:
    """Return the modules of the template that forks the children; () for fresh interpreters."""
    names: Sequence[str] = getattr(request, "param", MODULES)
    monkeypatch.setattr(template, "_template", None)
    if names:
        template.prepare(names)
    yield names
    if (made := template.fitting()) is not None:
        made.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path, FakeCore) as made:
        yield made.start()


def stored(node: Node, partition: str) -> int:
    """Return how many batches a dead node kept."""
    store = LmdbStorage(node.config.data_dir, "boot-1")
    count = len(list(store.batches(partition)))
    store.close()
    return count


test_life = either(proving(read(SCRIPTS / "lives.txt")))


test_script = proving([*read(SCRIPTS / "troubles.txt"), *read(SCRIPTS / "breakpoints.txt")])


def test_the_core_gets_the_time_of_the_nodes_clock_and_the_trace_that_of_the_host(
    tmp_path: Path,
) -> None:
    with Node(tmp_path, TellsTime, clock_percent=50) as node:
        node.start()
        for corr, percent in enumerate((50, 1000, 10)):
            assert node.breakpoints.order({}, {}, percent=percent)
            for number in range(2):
                node.produce("log-0", 2 * corr + number)
        assert node.stop() == 0
        told = [(one["t_us"], one["hw"]) for one in node.trace("hw")]
        for at, percent in ((0, 50), (2, 1000), (4, 10)):
            (began_us, own_began_us), (ended_us, own_ended_us) = told[at : at + 2]
            passed_us = (ended_us - began_us) * percent // 100
            assert abs(own_ended_us - own_began_us - passed_us) <= 1
        assert sorted(own_us for _, own_us in told) == [own_us for _, own_us in told]


def test_a_clock_never_goes_back_however_late_the_process_takes_the_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_us = 1_000_000
    monkeypatch.setattr(breakpoints, "monotonic_us", lambda: now_us)
    near, far = multiprocess.Pipe()
    points = Breakpoints(Armed("n1", 1), far)
    seen_us = []
    for version, percent in enumerate((1000, 100, 10, 200), 1):
        order = Order(version=version, armed={}, percent=percent)
        near.send_bytes(msgspec.msgpack.encode(order))
        for _ in range(2):  # the first turn is under way while the order waits
            now_us += 10_000
            seen_us.append(points.clock.read(now_us))
            points.apply_orders()
            seen_us.append(points.clock.read(now_us))
    assert seen_us == sorted(seen_us)
    near.close()
    far.close()


def test_every_answer_is_in_the_trace_before_it_arrives(node: Node) -> None:
    for corr in range(50):
        node.produce("log-0", corr)
        assert len(node.trace("append")) == corr + 1
    events = node.trace()
    assert list(events[0])[:5] == ["t_us", "node", "incarnation", "seq", "event"]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert all((one["node"], one["incarnation"]) == ("n1", 1) for one in events)
    times = [one["t_us"] for one in events]
    assert times == sorted(times)


def test_a_stop_while_syncs_are_slow_is_no_hang(tmp_path: Path) -> None:
    """The turn in progress, the last one and the flush behind it take longer than a hang may."""
    with Node(tmp_path, FakeCore) as node:
        node.start()
        slow = DiskFails("slow", delay_ms=1600)
        assert node.breakpoints.order({}, {1: slow}, slow_ms=1600)
        node.send(ProduceRequest(corr=0, partition="log-0"), BODY)
        node.send(ProduceRequest(corr=1, partition="deferred-0"), BODY)
        until(lambda: node.breakpoints.reached() or node.breakpoints.writes, "a slow sync")
        node.send(ProduceRequest(corr=2, partition="log-0"), BODY)
        assert node.stop() == 0, node.output()
        assert node.output().splitlines()[-1].startswith("n1/1: stopped after")


@pytest.mark.parametrize("partition", ["log-0", "deferred-0"])
def test_a_full_disk_ends_the_process_with_its_reason(tmp_path: Path, partition: str) -> None:
    with Node(tmp_path, SmallDisk) as node:
        node.start()
        body = BODY + bytes(50_000)
        for corr in range(100):
            node.send(ProduceRequest(corr=corr, partition=partition, acks=-1), body)
        assert node.ended() == 74
        assert "cannot write the" in node.output().splitlines()[-1]
        assert "Traceback" not in node.output()
        answered = 0
        while node.inbox.poll(200):
            node.inbox.recv_multipart()
            answered += 1
        assert stored(node, partition) >= answered
        assert len(node.trace("append")) <= stored(node, partition)


def test_only_a_main_thread_may_spawn(tmp_path: Path) -> None:
    caught: list[BaseException] = []

    def attempt() -> None:
        with Node(tmp_path, FakeCore) as made:
            try:
                spawn(made.config, FakeCore)
            except RuntimeError as error:
                caught.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert "main thread" in str(caught[0])


def loaded_modules(node: Node) -> set[str]:
    """Modules that a running process has imported."""
    node.send(MetadataRequest())
    answer = node.receive()
    assert isinstance(answer, MetadataResponse)
    return set(answer.leaders)


HEAVY = {
    *("pytest", "_pytest", "hypothesis", "numpy", "pandas", "pyarrow", "pyspark"),
    *("typer", "rich", "asyncio", "unittest.mock", "harness", "checker", "nemesis"),
}


@either
def test_a_node_imports_little_and_not_its_parents_script(node: Node) -> None:
    loaded = loaded_modules(node)
    assert loaded & HEAVY == set()


@either
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_a_node_dies_with_its_parent(tmp_path: Path, stopped: bool, modules: Sequence[str]) -> None:
    """The parent is a script, as the installed command is one; the child must not import it."""
    with Node(tmp_path, FakeCore) as node:
        config = json.dumps(msgspec.to_builtins(node.config))
        parent = PythonProcess(ROOT / "tests/support/runtime_parent.py", config, *modules)
        pid = int(parent.line())
        until(lambda: node.trace("started"), "started")
        assert loaded_modules(node) & HEAVY == set()
        if stopped:
            os.kill(pid, signal.SIGSTOP)
            until(lambda: is_stopped(pid), "a stopped process")
        parent.kill()
        parent.communicate()
        until_gone(pid)


def test_breakpoints_of_the_start_are_in_force_from_the_first_turn(tmp_path: Path) -> None:
    with Node(tmp_path, FakeCore, breakpoints={1: Breakpoint("started")}) as node:
        node.start()
        until(lambda: node.trace("break"), "the breakpoint")
        node.breakpoints.order({}, {})
        assert node.stop() == 0


def test_without_a_pipe_nothing_ever_stops() -> None:
    points = Breakpoints(Armed("n1", 1, {1: Breakpoint("append")}))
    assert (
        points.reached(
            [event(APPEND, "log-0", base_offset=0, leo=1, leader_epoch=1, hash="", role="leader")]
        )
        is None
    )
    assert points.wake_fd == -1
