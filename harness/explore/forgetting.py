"""Fields of a node that do not affect what it does while the clock stands still.

They are set to fixed values, so that nodes that differ only in them count as one state. Some decide
only how long a wait takes, or how a node stops, some belong to a role that the replica does not
have, some are read under other protocols only. `Explorer(check=True)` also steps the nodes with the
fields as they were, and compares."""

from __future__ import annotations

from node.core.broker import Broker
from node.core.protocol import Commit, Detection, Waiting
from node.core.replica import LONG_AGO, NEVER, Fetching, Replica


def forget(broker: Broker) -> None:
    """Set the fields of a broker that do not affect what it does to fixed values."""
    for name in (broker.quorum.r.partition, *broker.replicas):
        voted = broker.quorums.get(name)
        r = broker.replicas[name] if voted is None else voted.r
        if r.role == "leader" or (r.role == "none" and voted is None):
            # A replica that begins to follow sets all of these fields.
            r.fetching = Fetching()
        else:
            _forget_fetching(r)
        _forget_peers(r)
    if broker.membership is not None:
        broker.membership.fenced = True  # how often to send heartbeats
    if broker.controller is not None:
        # Whether a broker that asked to stop may do so.
        broker.controller.applied = dict.fromkeys(broker.controller.applied, 0)


def _forget_fetching(r: Replica) -> None:
    fetching, protocol = r.fetching, r.protocol
    sleeps = protocol.waiting is Waiting.IDLE_WAIT
    if not sleeps:
        fetching.notified = False
    if protocol.detection is not Detection.LEADER_REPORTS:
        fetching.heard_us = LONG_AGO
        if not sleeps and not protocol.falls_back_after:
            fetching.failures = 0  # how long the pause is
    if not r.bugs.one_round_only:
        fetching.cut = False


def _forget_peers(r: Replica) -> None:
    """Reset what a leader knows of its followers and its commit rule does not read: of a majority
    only the log ends of voters count; of an ISR, the last high watermark sent does not."""
    majority = r.protocol.commit is Commit.MAJORITY
    if majority:
        r.next_lag_check_us = NEVER
    for name, peer in r.peers.items():
        if peer.hw_sent < r.hw or not r.protocol.sends_hw_at_once:
            peer.hw_sent = -1
        if not majority:
            continue
        peer.broker_epoch = -1
        peer.leader_leo_at_fetch = 0
        peer.last_caught_up_us = LONG_AGO
        if name not in r.replicas:
            peer.leo = 0
            peer.last_fetch_us = LONG_AGO
