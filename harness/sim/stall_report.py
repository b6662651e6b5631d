"""The state of a simulated cluster in sentences, for a run that makes no progress."""

from __future__ import annotations

from harness.sim.cluster import SimCluster
from node.core.image import PartitionRecord
from node.core.replica import Replica
from node.formats.event_text import leadership, log_ends


def who_waits(cluster: SimCluster) -> tuple[str, ...]:
    """A sentence for each partition and replica: its role, its log, and what it waits for."""
    found = [f"{name} is down" for name, node in cluster.nodes.items() if not node.up]
    controllers = [
        name
        for name, node in cluster.nodes.items()
        if node.core is not None and node.core.controller is not None
    ]
    if not controllers:
        found.append("no voter is the controller")
    for name in controllers:
        core = cluster.nodes[name].core
        assert core is not None
        found += [f"{name}: {_record(state)}" for state in core.ctx.image.partitions.values()]
    for name in cluster.brokers:
        core = cluster.nodes[name].core
        if core is not None:
            if core.ctx.broker_epoch < 0:
                found.append(f"{name} is not registered")
            found += [f"{name}: {_replica(r)}" for r in core.replicas.values()]
    return tuple(found)


def _record(state: PartitionRecord) -> str:
    words = leadership(state.leader, state.leader_epoch, state.isr, state.elr)
    return f"{state.partition}: {words}"


def _replica(r: Replica) -> str:
    said = f"{r.role} of {r.partition} in epoch {r.leader_epoch}, {log_ends(r.leo, r.hw)}"
    if r.role == "leader":
        behind = [name for name in r.maximal_isr if name in r.peers and r.peers[name].leo < r.leo]
        silent = [n for n in r.maximal_isr if n not in r.peers and n != r.leader]
        if r.pending_alter is not None:
            said += f", asks for ISR [{' '.join(r.pending_alter.isr)}]"
        if behind or silent:
            said += f", waits for {' '.join([*behind, *silent])}"
        return said + (f", {len(r.acks)} sends unanswered" if r.acks else "")
    if r.role == "follower":
        doing = "asks where an epoch ends" if r.fetching.asking is not None else "fetches"
        return f"{said}, {doing} from {r.leader or 'nobody'}"
    return said
