"""The resolution of a target ("leader:log-0", "minority", "n1,n2") to nodes, at one moment. Pure.

Everything random is drawn from the given generator and from lists in a fixed order, so equal views
and seeds give equal nodes in every interpreter."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from nemesis.formats.cluster_spec import Cluster, is_voter
from nemesis.formats.fault import ROLES, ROLES_OF_A_PARTITION
from nemesis.view import ClusterView
from node.formats.errors import FloodmarkError

FEWEST_VOTERS_HIT: Final = 3
"""A storm never hits voters of a smaller quorum: the metadata would be gone with the first one."""


class Absent(FloodmarkError):
    """No node has the role that a fault is on: one may have it soon."""


class Resolution(NamedTuple):
    """The nodes that a target stands for now, perhaps none, and the partition that was drawn for it
    ("" if none was)."""

    nodes: tuple[str, ...]
    partition: str = ""


def resolve(
    target: str,
    view: ClusterView,
    cluster: Cluster,
    rng: random.Random,
    among: Collection[str],
    *,
    clients: Sequence[str] = (),
    on: Collection[str] = (),
    busy: Collection[str] = (),
    spare_voters: bool = False,
) -> Resolution:
    """Return the nodes that `target` stands for now, in the order of their names.

    A role stands only for nodes in `among`, those that the fault can act on; nodes that are named
    are taken as they are. `clients` are all client names, `on` the nodes that the role `rest`
    leaves out, `busy` the nodes under a fault, which `another-follower` leaves out. With
    `spare_voters` (drawn storms) voters of a quorum below FEWEST_VOTERS_HIT are left out."""
    role, _, partition = target.partition(":")
    if role not in ROLES:
        nodes: Collection[str] = target.split(",")
    elif role in ROLES_OF_A_PARTITION:
        nodes, partition = _of_partition(role, partition, view, cluster, rng, among, busy)
    else:
        nodes = _of_cluster(role, view, cluster, rng, among, clients, on)
    if spare_voters and cluster.voters < FEWEST_VOTERS_HIT:
        nodes = [node for node in nodes if not is_voter(node)]
    return Resolution(tuple(sorted(set(nodes), key=node_order)), partition)


def node_order(name: str) -> tuple[str, int]:
    """Return the sort key of a node's name: n2 before n10, brokers before voters."""
    digits = name[1:]
    return name[:1], int(digits) if digits.isdigit() else 0


def _of_partition(
    role: str,
    partition: str,
    view: ClusterView,
    cluster: Cluster,
    rng: random.Random,
    among: Collection[str],
    busy: Collection[str],
) -> tuple[list[str], str]:
    """Return one node by its role in a partition (all of them for `isr` and `followers`): the given
    partition, or a drawn one in which some node has the role."""
    names = [partition] if partition else list(cluster.partition_names())
    if not partition:
        rng.shuffle(names)
    for name in names:
        found = _with_role(role, name, view, among, busy)
        found = sorted((node for node in found if node in among), key=node_order)
        if found:
            return (found if role in ("isr", "followers") else [rng.choice(found)]), name
    return [], ""


def _with_role(
    role: str, name: str, view: ClusterView, among: Collection[str], busy: Collection[str]
) -> Collection[str]:
    """Return the nodes with a role in a partition. Without leaders any node may have it, and one
    that is ready leads."""
    ready = [node for node in view.isr(name) if node in among]
    match role:
        case "isr":
            return ready
        case "lagging":
            return view.lagging(name)
        case "leader":
            return (ready or among) if view.leaderless else [view.leader(name) or ""]
        case "followers" if view.leaderless:
            return sorted(ready, key=node_order)[1:]
    nodes = among if view.leaderless else view.followers(name)
    return [node for node in nodes if role != "another-follower" or node not in busy]


def _of_cluster(
    role: str,
    view: ClusterView,
    cluster: Cluster,
    rng: random.Random,
    among: Collection[str],
    clients: Sequence[str],
    on: Collection[str],
) -> list[str]:
    """Return nodes by their part in the cluster as a whole."""
    brokers = [node for node in cluster.broker_names() if node in among]
    voters = [node for node in cluster.voter_names() if node in among]
    match role:
        case "controller":
            controller = view.controller()
            return [controller] if controller in among and controller else []
        case "any":
            return [rng.choice(brokers)] if brokers else []
        case "minority":
            return rng.sample(brokers, min((cluster.brokers - 1) // 2, len(brokers)))
        case "majority":
            size = cluster.brokers // 2 + 1
            return rng.sample(brokers, size) if len(brokers) >= size else []
        case "all":
            return brokers
        case "voters":
            return voters
        case "clients":
            return list(clients)
        case "spare" | "former":
            return [rng.choice(sorted(among, key=node_order))] if among else []
        case _:
            return [node for node in (*brokers, *voters) if node not in on]
