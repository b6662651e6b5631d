"""The nemesis' view of the cluster, from the brokers' own trace events. Pure.

Events come from many files and so in no order between nodes: facts about a partition are ordered by
leader epoch and partition epoch, facts about a process by incarnation, and never by arrival. A view
may be out of date by as long as an event takes to arrive, which is good enough to choose targets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from harness.formats.history import GROUP_PREFIX
from node.formats import trace
from node.formats.trace import GROUPS_PARTITION, METADATA_PARTITION

NOBODY: Final = ""
_OF_PARTITIONS: Final = frozenset({trace.ROLE, trace.ISR, trace.PARTITION, trace.HW})
_OF_LOGS: Final = frozenset({trace.APPEND, trace.TRUNCATED, trace.DELETED})


@dataclass
class _PartitionView:
    """Facts about one partition, each with the epoch that dates it."""

    leader: str = NOBODY
    leader_epoch: int = -1
    isr: tuple[str, ...] = ()
    isr_at: tuple[int, int] = (-1, -1)
    replicas: tuple[str, ...] = ()
    replicas_at: tuple[int, int] = (-1, -1)
    seen: set[str] = field(default_factory=set)
    hw: int = 0
    hw_epoch: int = -1
    knows: dict[str, tuple[int, int]] = field(default_factory=dict)
    # end and prefix hash of the log of each replica, as its present process last said
    logs: dict[str, tuple[int, str]] = field(default_factory=dict)


class ClusterView:
    """The leaders, in-sync replicas and running nodes of a cluster, as far as the events given to
    `observe` tell."""

    def __init__(self) -> None:
        self._partitions: dict[str, _PartitionView] = {}
        self._incarnation: dict[str, int] = {}
        self._up: set[str] = set()
        self._controller: str = NOBODY
        self._term = -1
        self.leaderless = False
        """Whether the system has no leaders, so that a role may be any node."""

    def observe(self, event: Mapping[str, Any]) -> None:
        """Take in one trace event, as in `node.formats.trace` with its `node` and `incarnation`."""
        node, name = event["node"], event["event"]
        incarnation = event.get("incarnation", 1)
        known = self._incarnation.get(node, 0)
        if incarnation < known:
            return
        if incarnation > known:
            self._incarnation[node] = incarnation
            self._forget_roles(node)
            for facts in self._partitions.values():
                facts.logs.pop(node, None)
            self._up.add(node)
        if name in _OF_PARTITIONS:
            self._of_partition(name, node, event)
        elif name == trace.STOPPED:
            self.lost(node)
        elif name == trace.CONTROLLER:
            self._controller_is(node, event)
        elif name in _OF_LOGS and "hash" in event:
            logs = self._partitions.setdefault(event["partition"], _PartitionView()).logs
            logs.pop(node, None)
            if name != trace.DELETED:  # Its hash is that of what was deleted.
                logs[node] = event["leo"], event["hash"]

    def lost(self, node: str) -> None:
        """Note that `node` runs no longer: it stopped, or was killed, which leaves no event. Lines
        that its process wrote before, and that are read later, give it no role."""
        self._up.discard(node)
        self._forget_roles(node)

    def up(self) -> tuple[str, ...]:
        """Return the nodes that run as far as is known, sorted."""
        return tuple(sorted(self._up))

    def partitions(self) -> tuple[str, ...]:
        """Return the data partitions known so far, sorted, without the groups that consume them."""
        names = (name for name in self._partitions if not name.startswith(GROUP_PREFIX))
        return tuple(sorted(name for name in names if name != METADATA_PARTITION))

    def controller(self) -> str | None:
        """Return the voter that leads the metadata partition; None if none is known to."""
        return self._controller or None

    def leader(self, partition: str) -> str | None:
        """Return the running node that claims to lead in the highest epoch, if any."""
        if partition == METADATA_PARTITION:
            return self.controller()
        return self._facts(partition).leader or None

    def leader_epoch(self, partition: str) -> int:
        """Return the highest leader epoch in which a node led; -1 if none is known."""
        return self._facts(partition).leader_epoch

    def isr(self, partition: str) -> tuple[str, ...]:
        """Return the in-sync replicas by the latest partition epoch; empty if unknown."""
        return self._facts(partition).isr

    def replicas(self, partition: str) -> tuple[str, ...]:
        """Return the replicas that the controller assigned; if they are unknown, all nodes that
        took a role."""
        facts = self._facts(partition)
        return facts.replicas or tuple(sorted(facts.seen))

    def followers(self, partition: str) -> tuple[str, ...]:
        """Return the members of the ISR (if it is unknown, the replicas) other than the leader."""
        facts = self._facts(partition)
        return tuple(node for node in facts.isr or facts.replicas if node != facts.leader)

    def lagging(self, partition: str) -> tuple[str, ...]:
        """Return the replicas outside the ISR; none while the ISR is unknown."""
        isr = self.isr(partition)
        return tuple(node for node in self.replicas(partition) if isr and node not in isr)

    def hw(self, partition: str) -> int:
        """Return the high watermark that the latest leader last reported; 0 without a report."""
        return self._facts(partition).hw

    def common_hw(self, partition: str) -> int:
        """Return the high watermark that every replica has reached in the latest leader epoch; -1
        while a replica has reported none in that epoch. For partitions without an ISR: a replica
        with the high watermark has the records below it."""
        facts = self._facts(partition)
        latest = max((epoch for epoch, _ in facts.knows.values()), default=-1)
        said = [facts.knows.get(node, (-1, -1)) for node in self.replicas(partition)]
        return min((hw if epoch == latest else -1 for epoch, hw in said), default=-1)

    def have_equal_logs(self, partition: str, nodes: Collection[str]) -> bool:
        """Return whether the logs of these nodes are known to be equal. The log of a node is
        unknown until its present process appends or cuts records."""
        logs = self._facts(partition).logs
        known = [logs[node] for node in nodes if node in logs]
        return len(known) == len(nodes) > 0 and len({*known}) == 1

    def _facts(self, partition: str) -> _PartitionView:
        """Return what is known of a partition or group; of a group that no node says to lead, what
        is known of the partition that has the state of all groups."""
        if partition.startswith(GROUP_PREFIX) and partition not in self._partitions:
            partition = GROUPS_PARTITION
        return self._partitions.get(partition, _NOTHING)

    def _of_partition(self, name: str, node: str, event: Mapping[str, Any]) -> None:
        partition = event.get("partition")
        if partition is None:
            return
        facts = self._partitions.setdefault(partition, _PartitionView())
        match name:
            case trace.ROLE if partition == METADATA_PARTITION:
                return
            case trace.ROLE:
                self._role(facts, node, event)
            case trace.ISR:
                _isr(facts, event)
            case trace.PARTITION:
                _isr(facts, event)
                at = (event["leader_epoch"], event["partition_epoch"])
                if at >= facts.replicas_at:
                    facts.replicas, facts.replicas_at = tuple(event["replicas"]), at
                if event["leader_epoch"] > facts.leader_epoch and not event["leader"]:
                    facts.leader, facts.leader_epoch = NOBODY, event["leader_epoch"]
            case trace.HW:
                facts.knows[node] = max(
                    facts.knows.get(node, (-1, -1)), (event["leader_epoch"], event["hw"])
                )
                if event["role"] == "leader" and event["leader_epoch"] >= facts.hw_epoch:
                    facts.hw, facts.hw_epoch = event["hw"], event["leader_epoch"]

    def _role(self, facts: _PartitionView, node: str, event: Mapping[str, Any]) -> None:
        epoch = event["leader_epoch"]
        if event["role"] != "none":
            facts.seen.add(node)
        if event["role"] == "leader" and node in self._up:
            if epoch >= facts.leader_epoch:
                facts.leader, facts.leader_epoch = node, epoch
        elif facts.leader == node and epoch >= facts.leader_epoch:
            facts.leader = NOBODY

    def _controller_is(self, node: str, event: Mapping[str, Any]) -> None:
        term = event["term"]
        if event["state"] == "active" and term >= self._term and node in self._up:
            self._controller, self._term = node, term
        elif event["state"] == "resigned" and node == self._controller and term >= self._term:
            self._controller = NOBODY

    def _forget_roles(self, node: str) -> None:
        """Forget the roles of a node: a new process leads nothing until it says so."""
        for facts in self._partitions.values():
            if facts.leader == node:
                facts.leader = NOBODY
        if self._controller == node:
            self._controller = NOBODY


_NOTHING: Final = _PartitionView()


def _isr(facts: _PartitionView, event: Mapping[str, Any]) -> None:
    at = (event["leader_epoch"], event["partition_epoch"])
    if at >= facts.isr_at:
        facts.isr, facts.isr_at = tuple(event["isr"]), at
