"""Invariants that are checked after every step of every node: the simulator's, and some of records.

A violation is found in the step that causes it, not at the end of a storm. The messages use the
names of the TLA+ specifications (kafka-tlaplus).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.formats.run_info import Promise
from harness.sim import invariant_checker as simulated
from harness.sim.invariant_checker import Violation
from node.core import batch as batches
from node.core.broker import Broker
from node.core.election import effective_min_isr
from node.core.image import Image, PartitionRecord
from node.core.protocol import Commit, protocol
from node.core.replica import Replica
from node.formats.trace import ACK, METADATA_PARTITION

if TYPE_CHECKING:
    from tests.support.broker_world import World


class Invariants:
    """Invariants that hold after every step of every node."""

    def __init__(self, world: World, protocol_name: str) -> None:
        self.world = world
        self.protocol = protocol(protocol_name)
        self.true_hw: dict[str, int] = {}
        self.terms: dict[str, int] = {}
        self.steady = True
        """Whether MinISR and the number of replicas stay as they are."""
        self._simulator = simulated.InvariantChecker(
            lambda name: world.nodes.get(name),
            self.protocol,
            Promise(),
            lambda: (world.sent, world.now_us),
            _fail,
        )

    @property
    def promises(self) -> bool:
        """Whether committed records must survive: off when more was lost than is promised."""
        return self._simulator.committed_stays

    @promises.setter
    def promises(self, value: bool) -> None:
        self._simulator.committed_stays = value

    def turn(self, node: Broker, events: list[dict[str, Any]]) -> None:
        """Check what this node's last turn may have broken."""
        for event in events:
            self.hear(event)
        self._simulator.turn(node.ctx.node, events)
        self.look(node)

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
        assert r.log.hash_at(r.hw)[0] == r.hw, f"{name}: {p}: high watermark {r.hw} inside a batch"
        if r.role == "leader":
            self.true_hw[p] = max(self.true_hw.get(p, 0), r.hw)

    def _voter(self, node: Broker) -> None:
        name, q = node.ctx.node, node.quorum
        if not q.is_voter:
            return
        term = q.r.leader_epoch
        assert term >= self.terms.get(name, 0), f"{name}: term fell to {term}"
        self.terms[name] = term

    def _controller(self, node: Broker) -> None:
        """What the newest controller has committed."""
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

    def committed_is_on_some_disk(self) -> None:
        """NoCommittedRecordLostGlobally: all that is committed is on some disk."""
        if not self.promises:
            return
        for p, true in self.true_hw.items():
            if p == METADATA_PARTITION:
                continue
            ends = [_end(disk.logs.get(p, {})) for disk in self.world.disks.values()]
            assert max(ends) >= true, f"NoCommittedRecordLostGlobally: {p}: {true}, disks {ends}"


def _fail(violation: Violation) -> None:
    raise AssertionError(f"{violation.invariant}: {violation.sentence}")


def _end(log: dict[int, tuple[bytes, bytes]]) -> int:
    if not log:
        return 0
    return batches.view(log[max(log)][1]).end
