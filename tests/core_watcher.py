"""An all-knowing watcher: the white-box invariants of replication, checked after every step.

So a breach is found in the step that makes it and not at the end of a storm. The names in the
messages are those of the TLA+ specifications (kafka-tlaplus).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any

from node.core import batch as batches
from node.core.broker import Broker
from node.core.election import effective_min_isr
from node.core.image import Image, PartitionRecord
from node.core.protocol import Commit, protocol
from node.core.replica import Replica
from node.trace import ACK, METADATA_PARTITION

if TYPE_CHECKING:
    from core_chaos import ChaosWorld


class Watcher:
    """Invariants that hold at every moment, whoever knows what.

    Keeps the true high watermark of each partition: the highest that a leader of the newest epoch
    ever set, with the prefix hash there.
    """

    def __init__(self, world: ChaosWorld, protocol_name: str) -> None:
        self.world = world
        self.protocol = protocol(protocol_name)
        self.prefix: dict[tuple[str, int], str] = {}
        self.ends: dict[str, list[int]] = {}
        self.true_hw: dict[str, int] = {}
        self.leaders: dict[tuple[str, int], str] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.terms: dict[str, int] = {}
        self.promises = True
        """Whether committed records must survive: off when more was lost than is promised."""
        self.steady = True
        """Whether MinISR and the number of replicas stay as they are."""

    def hear(self, event: dict[str, Any]) -> None:
        """What is acknowledged is committed."""
        if event["event"] == ACK and event["acks"] == -1:
            assert event["leo"] <= event["hw"], event

    def look(self, node: Broker) -> None:
        """Check what this node's last step may have broken."""
        name = node.ctx.node
        assert not node.replicas or node.ctx.broker_epoch >= 0, f"ValidBrokerState: {name}"
        for r in (*node.replicas.values(), node.quorum.r):
            self._replica(name, r)
        self._voter(node)
        self._controller(node)

    def _replica(self, name: str, r: Replica) -> None:
        p = r.partition
        assert 0 <= r.hw <= r.leo, (name, p, r.hw, r.leo)
        if r.role == "leader":
            first = self.leaders.setdefault((p, r.leader_epoch), name)
            assert first == name, f"{p}: {first} and {name} lead epoch {r.leader_epoch}"
            assert set(r.isr) <= set(r.maximal_isr), (name, p, r.isr, r.maximal_isr)
            assert r.leader == name, f"ValidReplicaState: {name}: {p} is led by {r.leader}"
            assert 0 <= r.leso <= r.leo, f"ValidReplicaState: {name}: {p}: {r.leso}"
            assert not r.fetching.outstanding, f"ValidFetcherState: {name}: {p}"
        else:
            assert r.leso == -1, f"ValidReplicaState: {name}: {p}: {r.leso}"
            assert not r.peers, f"ValidReplicaState: {name}: {p}"
            assert r.pending_alter is None, f"ValidReplicaState: {name}: {p}"
        if r.role == "follower" and r.protocol.commit is Commit.ISR:
            assert r.leader not in ("", name), f"ValidFetcherState: {name}: {p}"
        self._log_matching(name, r)
        if r.role == "leader":
            self.true_hw[p] = max(self.true_hw.get(p, 0), r.hw)

    def _log_matching(self, name: str, r: Replica) -> None:
        """Below the high watermark there is one log."""
        p = r.partition
        end, chain = r.log.hash_at(r.hw)
        assert end == r.hw, f"{name}: {p}: high watermark {r.hw} inside a batch"
        if end <= r.log.start or not self.promises:
            return
        known = self.prefix.get((p, end))
        if known is None:
            self.prefix[p, end] = chain
            ends = self.ends.setdefault(p, [])
            below = bisect_left(ends, end) - 1
            if below >= 0:
                at = ends[below]
                found = r.log.hash_at(at)
                assert found == (at, self.prefix[p, at]), f"LogMatching: {name}: {p} at {at}"
            insort(ends, end)
        else:
            assert known == chain, f"LogMatching: {name}: {p}: another prefix at {end}"

    def _voter(self, node: Broker) -> None:
        name, q = node.ctx.node, node.quorum
        if not q.is_voter:
            return
        term = q.r.leader_epoch
        assert term >= self.terms.get(name, 0), f"{name}: term fell to {term}"
        self.terms[name] = term
        if q.voted_for:
            voted = self.votes.setdefault((name, term), q.voted_for)
            assert voted == q.voted_for, f"{name} voted for {voted} and {q.voted_for} in {term}"

    def _controller(self, node: Broker) -> None:
        """What the newest controller has committed, against the brokers' logs."""
        world = self.world
        r = node.quorum.r
        if r.role != "leader" or r.hw <= r.leso:
            return
        newest = max(
            n.quorum.r.leader_epoch for n in world.nodes.values() if n.quorum.r.role == "leader"
        )
        if r.leader_epoch < newest:
            return
        for state in node.ctx.image.partitions.values():
            self._record(state, node.ctx.image)
            if self.promises:
                self._candidates_complete(
                    state.partition, (*state.isr, *state.elr), node.ctx.image
                )
            self._quorum_superset(state)

    def _record(self, state: PartitionRecord, image: Image) -> None:
        """ValidControllerState, ValidControllerIsrAndElr, MinIsrRecoveryQuorum."""
        isr, elr, last = set(state.isr), set(state.elr), set(state.last_known_elr)
        replicas = set(state.replicas)
        assert not isr & elr, state
        assert isr | elr | last <= replicas, state
        assert len(replicas) == len(state.replicas) > 0, state
        assert state.leader == "" or state.leader in isr, state
        target, adding, removing = map(set, (state.target, state.adding, state.removing))
        assert target | adding <= replicas, state
        assert removing == (replicas - target if target else set()), state
        assert target or not adding, state
        if len(isr) >= effective_min_isr(state):
            assert not elr, state
        if not self.protocol.elr:
            return
        away = [name for name in state.isr if not image.is_active(name)]
        assert not away, f"ValidControllerState: {away} in the ISR: {state}"
        if self.steady and not isr | elr:
            assert len(last) >= effective_min_isr(state), f"MinIsrRecoveryQuorum: {state}"

    def _candidates_complete(self, p: str, candidates: tuple[str, ...], image: Image) -> None:
        """Whoever may be elected has every committed record (a running, registered process)."""
        for name in candidates:
            broker = self.world.nodes.get(name)
            if broker is None or broker.ctx.broker_epoch != image.broker_epoch(name):
                continue
            r = broker.replicas.get(p)
            if r is None:
                continue
            true = self.true_hw.get(p, 0)
            assert r.leo >= true, f"{p}: {name} may lead but ends at {r.leo}, committed is {true}"
            end, chain = r.log.hash_at(true)
            if true:
                assert end == true, f"{p}: {name} has no batch end at {true}"
                assert self.prefix.get((p, true), chain) == chain, f"{p}: {name} differs at {true}"

    def _quorum_superset(self, state: PartitionRecord) -> None:
        """ReplicationQuorumSuperset: the leader waits for everyone the controller might elect."""
        broker = self.world.nodes.get(state.leader)
        r = broker.replicas.get(state.partition) if broker else None
        if r is None or r.role != "leader" or r.leader_epoch != state.leader_epoch:
            return
        if r.pending_alter is None:
            assert set(r.maximal_isr) == set(r.isr), (state, r.isr, r.maximal_isr)
        if len(r.isr) >= r.min_isr:
            electable = set(state.isr) | set(state.elr)
            assert electable <= set(r.maximal_isr), (state, r.isr, r.maximal_isr)

    def somebody_has_it(self) -> None:
        """NoCommittedRecordLostGlobally: all that is committed is on some disk."""
        if not self.promises:
            return
        for p, true in self.true_hw.items():
            if p == METADATA_PARTITION:
                continue
            ends = [_end(disk.logs.get(p, {})) for disk in self.world.disks.values()]
            assert max(ends) >= true, f"NoCommittedRecordLostGlobally: {p}: {true}, disks {ends}"


def _end(log: dict[int, tuple[bytes, bytes]]) -> int:
    if not log:
        return 0
    return batches.view(log[max(log)][1]).end
