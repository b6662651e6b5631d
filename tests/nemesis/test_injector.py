"""The injector: shapes of partitions, lines of the record, draws (the stories are scripts)."""

from __future__ import annotations

from typing import Any

import pytest

from nemesis.faults import Bridge, Cut, Isolate, Ring
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload
from tests.support.nemesis_world import Storm


def storm_of(*faults: Fault, **cluster: Any) -> Storm:
    load = Workload(clients=0, consumers=0)
    return Storm(Schedule(cluster=Cluster(**cluster), faults=faults, workload=load))


def rules(fault: Fault, **cluster: Any) -> list[str]:
    """Return the links that a fault affects, "n1>n2", sorted."""
    storm = storm_of(fault, **cluster)
    storm.run(10)
    assert [line["action"] for line in storm.lines] == ["inject"]
    assert storm.world.rules
    return sorted(f"{sender}>{receiver}" for sender, receiver in storm.lines[0]["links"])


@pytest.mark.parametrize("brokers", [3, 4, 5, 6, 7, 12])
def test_in_a_ring_everybody_hears_a_majority(brokers: int) -> None:
    nodes = {f"n{i}" for i in range(1, brokers + 1)}
    heard = {node: set(nodes) for node in nodes}
    for link in rules(Ring(at_ms=1), brokers=brokers):
        sender, receiver = link.split(">")
        heard[receiver].discard(sender)
    majority = brokers // 2 + 1
    assert all(node in heard[node] and len(heard[node]) >= majority for node in nodes)
    assert all(heard[node] != nodes for node in nodes)
    if brokers <= 5:
        assert {len(group) for group in heard.values()} == {majority}
        assert len({frozenset(group) for group in heard.values()}) == brokers


@pytest.mark.parametrize("brokers", [3, 4, 5, 8])
def test_a_bridge_joins_two_halves(brokers: int) -> None:
    cut = {tuple(link.split(">")) for link in rules(Bridge(on="n1", at_ms=1), brokers=brokers)}
    halves = {frozenset(r for s, r in cut if s == node) for node, _ in cut}
    assert len(halves) == 2
    assert {node for half in halves for node in half} == {f"n{i}" for i in range(2, brokers + 1)}
    assert abs(len(max(halves, key=len)) - len(min(halves, key=len))) <= 1


def test_lines_are_those_of_the_format() -> None:
    storm = storm_of(Cut(on="n1", to="n2", two_way=False, at_ms=7, for_ms=3))
    storm.run(10)
    shared = {"fault": 0, "what": "cut", "on": "n1", "nodes": ["n1"], "links": [["n1", "n2"]]}
    assert storm.lines == [
        shared | {"action": "inject", "t_us": 7000, "done_us": 7000, "detail": ""},
        shared | {"action": "heal", "t_us": 10_000, "done_us": 10_000, "detail": ""},
        shared
        | {"action": "effect", "t_us": 10_000, "done_us": 10_000}
        | {"detail": "10 messages matched", "dropped": 1, "delayed": 3},
    ]


def test_one_faults_draws_do_not_move_anothers() -> None:
    def victims(*faults: Fault) -> list[str]:
        storm = storm_of(*faults, brokers=9)
        storm.run(99)
        return [line["nodes"][0] for line in storm.lines if line["action"] == "inject"]

    late = [Isolate(on="any", at_ms=10 * i) for i in range(1, 6)]
    moved = [Isolate(on="any", at_ms=60), *late[1:]]
    assert victims(*late)[1:] == victims(*moved)[:-1]
