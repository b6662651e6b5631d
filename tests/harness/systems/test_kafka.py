"""Kafka's changes of members: first the replicas move, then a controller loses its vote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.systems.adapter import Members, Node
from harness.systems.external import kafka_requests
from harness.systems.external.kafka_requests import Metadata, Partition
from harness.systems.kafka import CLUSTER, Kafka

NODES = [Node(f"n{n}", Path(), {"client": n}, {"client": n}) for n in (1, 2, 3, 4)]


class Cluster:
    """The metadata of brokers 1 to 4, of which `voting` are controllers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **replicas: tuple[int, ...]) -> None:
        self.replicas, self.voting, self.asked = replicas, [1, 2, 3, 4], list[Any]()
        for method in (self.metadata, self.reassign, self.voters, self.remove_voter):
            monkeypatch.setattr(kafka_requests, method.__name__, method)

    def metadata(self, address: str) -> Metadata:
        topics = {name: Partition(ids[0], 1, ids, ids) for name, ids in self.replicas.items()}
        return Metadata(dict.fromkeys((1, 2, 3, 4), "4.4.0"), topics)

    def reassign(self, address: str, topic: str, replicas: list[int]) -> None:
        self.asked.append((topic, replicas))

    def voters(self, address: str) -> dict[int, bytes]:
        return {voter: b"%d" % voter for voter in self.voting}

    def remove_voter(self, address: str, cluster: str, voter: int, directory: bytes) -> None:
        assert (cluster, directory) == (CLUSTER, b"%d" % voter)
        self.voting.remove(voter)


def kafka(version: str = "4.4.0", controllers: str = "combined") -> Kafka:
    made = Kafka({"controllers": controllers})
    made.version = lambda: version  # type: ignore[method-assign]
    return made


def test_a_node_that_leaves_gives_up_replicas_then_its_vote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = Cluster(monkeypatch, **{"log-0": (1, 2, 3), "__consumer_offsets": (3, 1, 2)})
    adapter, want = kafka(), NODES[1:]
    adapter.change(NODES, want, "log-0", 3)
    assert there.asked == [("log-0", [2, 3, 4])]
    with pytest.raises(RuntimeError, match="log-0 is on a node that leaves"):
        adapter.change(NODES, want, "", 0)
    there.replicas["log-0"] = (2, 3, 4)
    with pytest.raises(RuntimeError, match="__consumer_offsets is on a node that leaves"):
        adapter.change(NODES, want, "", 0)
    assert there.asked[1:] == [("__consumer_offsets", [2, 3, 4])]
    assert there.voting == [1, 2, 3, 4]
    there.replicas["__consumer_offsets"] = (2, 3, 4)
    adapter.change(NODES, want, "", 0)
    assert there.voting == [2, 3, 4]
    assert adapter.members(NODES[1]) == Members(frozenset({"n2", "n3", "n4"}), "4.4.0")


def test_brokers_without_a_vote_are_no_members_and_old_controllers_do_not_join(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = Cluster(monkeypatch)
    separate = kafka(controllers="separate")
    assert separate.members(NODES[0]) == Members(version="4.4.0")
    separate.change(NODES, NODES[1:], "", 0)
    assert there.voting == [1, 2, 3, 4]
    assert {"join", "leave", "replace"} <= {*kafka().changes}
    assert kafka("4.0.0").changes == separate.changes == ("reassign", "upgrade", "downgrade")
    assert kafka("2.7.2").changes == ("upgrade", "downgrade")
