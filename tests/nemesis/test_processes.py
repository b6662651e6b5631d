"""Processes of a world that refuses in the middle of a fault: no lie and no dead node remains."""

from __future__ import annotations

import random

import pytest

from nemesis.faults import LyingFsync
from nemesis.faults.kind import Injected, Site
from nemesis.formats.schedule import Cluster
from nemesis.processes import Processes
from nemesis.view import ClusterView
from nemesis.world import Lasting, World
from node.formats.errors import FloodmarkError


class Refuses(World):
    """A world whose power cuts kill the node and fail then."""

    def __init__(self) -> None:
        self.up = {"n1"}
        self.faults = {7}
        self.refuses = True

    def is_up(self, node: str) -> bool:
        return node in self.up

    def power_cut(self, node: str, keep: float, shuffle: int | None = None) -> tuple[int, int]:
        self.up.discard(node)
        if self.refuses:
            raise FloodmarkError("the disk did not answer")
        return 0, 0

    def start(self, node: str) -> None:
        self.up.add(node)

    def remove(self, node: str, what: Lasting, number: int) -> int:
        self.faults.remove(number)
        return 0


def processes(world: World) -> tuple[Processes, ClusterView]:
    view = ClusterView()
    view.observe({"event": "started", "node": "n1", "incarnation": 1})
    return Processes(world, view), view


def test_a_node_whose_power_cut_failed_after_the_kill_is_started_again() -> None:
    world = Refuses()
    acting, view = processes(world)
    with pytest.raises(FloodmarkError, match="did not answer"):
        acting.power_cut(0, "n1", lambda: 0.0)
    assert world.is_up("n1")
    assert view.up() == ()  # until its new process says that it has started


def test_a_disk_lies_on_until_the_power_cut_of_the_heal_succeeds() -> None:
    world = Refuses()
    acting, view = processes(world)
    site = Site(
        number=0,
        nodes=("n1",),
        world=world,
        view=view,
        cluster=Cluster(),
        clients=(),
        processes=acting,
        rng=random.Random(1),
        others=lambda target: (),
        undo=lambda name: (),
    )
    fault = LyingFsync(on="n1", at_ms=0, for_ms=1)
    injected = Injected(nodes=("n1",), held={7: "n1"})
    assert fault.heal(injected, site).failed == ("n1: the disk did not answer",)
    assert (world.faults, injected.held) == ({7}, {7: "n1"})
    world.refuses = False
    assert not fault.heal(injected, site).failed
    assert (world.faults, injected.held) == (set(), {})
