"""What the nemesis knows of the cluster, and whom a target stands for."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nemesis.formats.schedule import Cluster
from nemesis.targets import resolve
from nemesis.view import ClusterView
from node.formats import trace
from node.formats.trace import METADATA_PARTITION

CLUSTER = Cluster(brokers=5, voters=3, partitions=2)
EVERYBODY = (*CLUSTER.broker_names(), *CLUSTER.voter_names())


def happened(node: str, name: str, partition: str | None = None, **fields: Any) -> dict[str, Any]:
    """A trace event of a node's process number `incarnation` (1 unless given)."""
    stamp = {"t_us": 0, "node": node, "incarnation": fields.pop("incarnation", 1)}
    return stamp | trace.event(name, partition, **fields)


def role(node: str, what: str, epoch: int, partition: str = "log-0", **more: Any) -> dict[str, Any]:
    rest = {"leader": "", "leader_epoch": epoch, "partition_epoch": 0, "leo": 0, "hw": 0}
    return happened(node, trace.ROLE, partition, role=what, **rest, **more)


def in_sync(
    node: str, isr: str, epoch: int, change: int, partition: str = "log-0"
) -> dict[str, Any]:
    members = isr.split()
    return happened(
        node,
        trace.ISR,
        partition,
        isr=members,
        maximal_isr=members,
        leader_epoch=epoch,
        partition_epoch=change,
    )


def committed(
    leader: str, isr: str, epoch: int, change: int, partition: str = "log-0"
) -> dict[str, Any]:
    return happened(
        "v1",
        trace.PARTITION,
        partition,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=change,
        isr=isr.split(),
        elr=[],
        last_known_elr=[],
        replicas=["n1", "n2", "n3"],
        unclean=False,
        adding=[],
        removing=[],
        min_isr=2,
    )


def controls(node: str, state: str, term: int) -> dict[str, Any]:
    return happened(node, trace.CONTROLLER, METADATA_PARTITION, state=state, term=term)


def started(node: str, incarnation: int) -> dict[str, Any]:
    return happened(
        node, trace.STARTED, protocol="kafka", bugs=[], clean=True, incarnation=incarnation
    )


def seen(*events: dict[str, Any]) -> ClusterView:
    view = ClusterView()
    for event in events:
        view.observe(event)
    return view


@pytest.mark.parametrize(
    ("events", "leader"),
    [
        ([], None),
        ([role("n1", "leader", 1)], "n1"),
        ([role("n1", "leader", 1), role("n2", "leader", 2)], "n2"),
        # Files of different nodes are read in any order: the epoch decides.
        ([role("n2", "leader", 2), role("n1", "leader", 1)], "n2"),
        ([role("n2", "leader", 2), role("n2", "follower", 3)], None),
        ([role("n2", "leader", 2), role("n2", "follower", 1)], "n2"),
        ([role("n2", "leader", 2), role("n1", "follower", 3)], "n2"),
        ([role("n2", "leader", 2), started("n2", 2)], None),
        ([started("n2", 2), role("n2", "leader", 2)], None),
        ([role("n2", "leader", 2), happened("n2", trace.STOPPED)], None),
        ([role("n2", "leader", 2), committed("", "n2", 3, 9)], None),
        ([role("n2", "leader", 2), committed("n1", "n1", 3, 9)], "n2"),
    ],
)
def test_the_leader_is_who_says_so_in_the_highest_epoch(
    events: list[dict[str, Any]], leader: str | None
) -> None:
    assert seen(*events).leader("log-0") == leader


def test_the_isr_is_that_of_the_latest_change() -> None:
    view = seen(
        committed("n1", "n1 n2 n3", 1, 1),
        in_sync("n1", "n1 n2", 1, 2),
        in_sync("n1", "n1 n2 n3", 1, 1),
        role("n1", "leader", 1),
    )
    assert view.isr("log-0") == ("n1", "n2")
    assert view.followers("log-0") == ("n2",)
    assert view.lagging("log-0") == ("n3",)
    assert view.replicas("log-0") == ("n1", "n2", "n3")
    assert view.partitions() == ("log-0",)
    assert view.leader_epoch("log-0") == 1


def test_the_hw_is_the_latest_leaders() -> None:
    def hw(node: str, value: int, epoch: int, who: str = "leader") -> dict[str, Any]:
        rest = {"leo": 9, "leader_epoch": epoch, "role": who, "batch_end": value, "hash": ""}
        return happened(node, trace.HW, "log-0", hw=value, **rest)

    assert seen(hw("n1", 5, 1), hw("n2", 4, 2), hw("n1", 6, 1)).hw("log-0") == 4
    assert seen(hw("n1", 5, 1), hw("n2", 7, 1, "follower")).hw("log-0") == 5


@pytest.mark.parametrize(
    ("events", "controller"),
    [
        ([controls("v1", "active", 1)], "v1"),
        ([controls("v2", "active", 2), controls("v1", "active", 1)], "v2"),
        ([controls("v1", "active", 1), controls("v1", "resigned", 1)], None),
        ([controls("v1", "resigned", 1), controls("v2", "active", 2)], "v2"),
        ([controls("v2", "active", 2), controls("v1", "resigned", 2)], "v2"),
        ([controls("v1", "active", 1), started("v1", 2)], None),
    ],
)
def test_the_controller_leads_the_metadata(
    events: list[dict[str, Any]], controller: str | None
) -> None:
    view = seen(*events)
    assert view.controller() == controller
    assert view.leader(METADATA_PARTITION) == controller
    assert view.partitions() == ()


def test_who_is_up() -> None:
    view = seen(started("n1", 1), started("n2", 1), happened("n2", trace.STOPPED), started("n3", 1))
    assert view.up() == ("n1", "n3")
    view.lost("n3")
    assert view.up() == ("n1",)
    view.observe(started("n3", 2))
    assert view.up() == ("n1", "n3")


BUSY = seen(
    committed("n1", "n1 n2", 1, 1),
    role("n1", "leader", 1),
    committed("n3", "n3 n2 n1", 1, 1, "log-1"),
    role("n3", "leader", 1, "log-1"),
    controls("v2", "active", 1),
)


def meant(target: str, among: str = "", seed: int = 0, **more: Any) -> str:
    found = resolve(target, BUSY, CLUSTER, random.Random(seed), among.split() or EVERYBODY, **more)
    return " ".join(found.nodes)


@pytest.mark.parametrize(
    ("target", "among", "expected"),
    [
        ("n2", "", "n2"),
        ("n10,n2,v1,n2", "", "n2 n10 v1"),
        ("n2", "n1", "n2"),
        ("leader:log-0", "", "n1"),
        ("leader:log-1", "", "n3"),
        ("leader:log-0", "n2 n3", ""),
        ("follower:log-0", "", "n2"),
        ("follower:log-1", "n2 n3", "n2"),
        ("lagging:log-0", "", "n3"),
        ("lagging:log-1", "", ""),
        ("lagging", "", "n3"),
        ("isr:log-0", "", "n1 n2"),
        ("isr:log-0", "n2 n3", "n2"),
        ("controller", "", "v2"),
        ("controller", "n1 v1", ""),
        ("any", "n4", "n4"),
        ("any", "v1", ""),
        ("majority", "n1 n2 v1 v2", ""),
        ("majority", "n1 n2 n3", "n1 n2 n3"),
        ("all", "", "n1 n2 n3 n4 n5"),
        ("all", "n1 n3 v1", "n1 n3"),
        ("voters", "", "v1 v2 v3"),
        ("clients", "", ""),
        ("rest", "", "n1 n2 n3 n4 n5 v1 v2 v3"),
    ],
)
def test_whom_a_target_stands_for(target: str, among: str, expected: str) -> None:
    assert meant(target, among) == expected


def test_rest_and_clients_are_told() -> None:
    assert meant("rest", on=("n1", "n2", "v1")) == "n3 n4 n5 v2 v3"
    assert meant("clients", clients=("c2", "c10", "c1")) == "c1 c2 c10"


def test_sizes_of_drawn_groups() -> None:
    for seed in range(20):
        assert len(meant("minority", seed=seed).split()) == 2
        assert len(meant("majority", seed=seed).split()) == 3
    assert len({meant("any", seed=seed) for seed in range(50)}) == 5


def test_without_a_partition_one_is_drawn_where_somebody_has_the_role() -> None:
    found = [resolve("leader", BUSY, CLUSTER, random.Random(s), EVERYBODY) for s in range(20)]
    assert set(found) == {(("n1",), "log-0"), (("n3",), "log-1")}
    alive = ("n1", "n2")
    found = [resolve("leader", BUSY, CLUSTER, random.Random(s), alive) for s in range(20)]
    assert set(found) == {(("n1",), "log-0")}


@pytest.mark.parametrize(("voters", "hit"), [(1, ""), (3, "v1")])
def test_storms_spare_the_voters_of_a_small_quorum(voters: int, hit: str) -> None:
    view = seen(controls("v1", "active", 1))
    cluster = Cluster(voters=voters)
    among = (*cluster.broker_names(), *cluster.voter_names())
    for target in ("controller", "v1"):
        found = resolve(target, view, cluster, random.Random(0), among, spare_voters=True)
        assert " ".join(found.nodes) == hit


def test_where_there_is_no_isr_the_high_watermark_that_all_have_tells_who_is_in_sync() -> None:
    def said(node: str, what: str, epoch: int, value: int) -> dict[str, Any]:
        rest = {"leo": 9, "leader_epoch": epoch, "role": what, "batch_end": True, "hash": ""}
        return happened(node, trace.HW, "log-0", hw=value, **rest)

    view = ClusterView()
    for node in ("n1", "n2", "n3"):
        view.observe(role(node, "leader" if node == "n1" else "follower", 1))
    assert view.common_hw("log-0") == -1, "nobody has said anything"
    for node, value in (("n1", 7), ("n2", 5), ("n3", 6)):
        view.observe(said(node, "follower", 1, value))
    assert view.common_hw("log-0") == 5
    view.observe(said("n2", "leader", 2, 8))
    assert view.common_hw("log-0") == -1, "in epoch 2 only n2 has said anything"


def test_logs_are_equal_where_all_say_the_same_of_theirs() -> None:
    def appended(node: str, leo: int, hash: str, incarnation: int = 1) -> dict[str, Any]:
        at = {"base_offset": 0, "leo": leo, "leader_epoch": 1, "hash": hash, "role": "leader"}
        return happened(node, trace.APPEND, "log-0", incarnation=incarnation, **at)

    cut = {"from_leo": 5, "leo": 4, "hw": 4, "reason": "", "hash": "cc"}
    gone = {"from_start": 0, "start": 5, "leo": 5, "leader_epoch": 1, "reason": "", "hash": "aa"}
    view = ClusterView()
    both = ("n1", "n2")
    assert not view.have_equal_logs("log-0", ())
    assert not view.have_equal_logs("log-0", both)
    view.observe(appended("n1", 5, "aa"))
    assert not view.have_equal_logs("log-0", both), "nothing is known of n2"
    view.observe(appended("n2", 5, "bb"))
    assert not view.have_equal_logs("log-0", both), "they end alike and are not"
    view.observe(happened("n2", trace.TRUNCATED, "log-0", **cut))
    view.observe(appended("n2", 5, "aa"))
    assert view.have_equal_logs("log-0", both)
    view.observe(happened("n2", trace.STOPPED, incarnation=2))
    assert not view.have_equal_logs("log-0", both), "a new process may have less"
    view.observe(appended("n2", 5, "aa", incarnation=2))
    assert view.have_equal_logs("log-0", both)
    view.observe(happened("n1", trace.DELETED, "log-0", **gone))
    assert not view.have_equal_logs("log-0", both)
