"""Orders to the processes of our own brokers that a process confirms too late, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from multiprocess.connection import Connection

from harness.systems.floodmark import nodes
from harness.systems.floodmark.nodes import Nodes
from harness.systems.floodmark.world import RealWorld
from node.formats.errors import FloodmarkError
from node.formats.files import AppendOnlyFile
from node.runtime.breakpoints import Breakpoint, Order, Report
from node.runtime.failing_disk import DiskFails

REQUESTS: dict[str, Callable[[Nodes], object]] = {
    "breakpoint": lambda ours: ours.arm("n1", Breakpoint("append")),
    "disk": lambda ours: ours.add_disk_fault("n1", DiskFails("error")),
    "clock": lambda ours: ours.set_clock_rate("n1", 50),
}
request = pytest.mark.parametrize("name", REQUESTS)


class Settings(msgspec.Struct):
    """The part of a process's configuration that the harness sets."""

    breakpoints: dict[int, object] = {}
    disk_faults: dict[int, object] = {}
    clock_percent: int = 100
    slow_ms: int = 0
    boots: int = 0


class Deaf:
    """A node `n1` whose processes begin, and then confirm no order. `patience_s` has how long the
    harness waited for each."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.started: list[Settings] = []
        self.pipes: list[Connection] = []
        self.patience_s: list[float] = []
        patch.setattr(nodes, "spawn", self._spawn)
        patch.setattr(nodes.ProcessOrders, "_read", self._noting(nodes.ProcessOrders._read))
        make: Any = lambda node, incarnation: Settings()  # noqa: E731
        self.nodes = Nodes(make, AppendOnlyFile(folder / "exits.jsonl"))
        self.nodes.start("n1")

    def _spawn(self, config: Settings, pipe: Connection) -> Any:
        self.started.append(config)
        self.pipes.append(Connection(os.dup(pipe.fileno())))
        self.pipes[-1].send_bytes(msgspec.msgpack.encode(Report(version=0)))
        self._process = SimpleNamespace(pid=os.getpid(), exitcode=None, join=lambda _: None)
        return self._process

    def end(self) -> None:
        """Let the process end."""
        self._process.exitcode = 0
        self.nodes.reap()

    def _noting(self, read: Callable[..., bool]) -> Callable[..., bool]:
        def noting(orders: Any, patience_s: float) -> bool:
            if patience_s:
                self.patience_s.append(patience_s)
            return read(orders, 0)

        return noting

    def ordered(self) -> Order:
        """Return what holds for the first process after all orders that it was sent."""
        last = b""
        while self.pipes[0].poll():
            last = self.pipes[0].recv_bytes()
        return msgspec.msgpack.decode(last, type=Order)


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deaf:
    return Deaf(monkeypatch, tmp_path)


@request
def test_a_refused_order_is_in_force_nowhere(deaf: Deaf, name: str) -> None:
    with pytest.raises(FloodmarkError, match="did not confirm"):
        REQUESTS[name](deaf.nodes)
    order = deaf.ordered()
    assert (order.armed, order.disk, order.percent) == ({}, {}, 100)
    deaf.end()
    deaf.nodes.start("n1")
    assert deaf.started[1] == Settings()


@request
def test_a_refused_order_leaves_what_holds_already(deaf: Deaf, name: str) -> None:
    deaf.end()
    REQUESTS[name](deaf.nodes)
    deaf.nodes.start("n1")
    before = deaf.started[1]
    assert before != Settings()
    for other in REQUESTS.values():
        with pytest.raises(FloodmarkError, match="did not confirm"):
            other(deaf.nodes)
    deaf.end()
    deaf.nodes.start("n1")
    assert deaf.started[2] == before


def test_a_heal_that_is_not_confirmed_can_be_repeated(deaf: Deaf) -> None:
    deaf.end()
    number = deaf.nodes.add_disk_fault("n1", DiskFails("full"))
    deaf.nodes.start("n1")
    for _ in range(2):
        with pytest.raises(FloodmarkError, match="did not confirm"):
            deaf.nodes.remove_disk_fault("n1", number)
    deaf.end()
    assert deaf.nodes.remove_disk_fault("n1", number) == 0


def test_the_harness_waits_longer_for_a_process_on_a_slow_disk(deaf: Deaf) -> None:
    disks = SimpleNamespace(add_fault=lambda node, fault: 7, remove_fault=lambda node, number: 3)
    world = RealWorld(*cast(Any, [deaf.nodes, None, disks, *[None] * 6]))
    slow = DiskFails("slow", delay_ms=1950)
    number = world.add("n1", slow)
    for wanted in REQUESTS.values():
        with pytest.raises(FloodmarkError):
            wanted(deaf.nodes)
    assert set(deaf.patience_s) == {nodes.PATIENCE_S + 3 * 1.95}
    assert world.remove("n1", slow, number) == 3
    deaf.patience_s.clear()
    for wanted in REQUESTS.values():
        with pytest.raises(FloodmarkError):
            wanted(deaf.nodes)
    assert deaf.patience_s[-1] == nodes.PATIENCE_S
