"""The timers of a node by name, and a way to let one of them expire at once.

    for name in timers(broker): ...
    expire(broker, "session/n1")
    effects = broker.step(now_us, Tick())

A world whose clock stands still decides itself which wait is over next. A name is the kind of the
wait, then the partition or the broker that it is about, then of whom: `wait/log-0/n2` is the fetch
of n2 that its leader holds. Some waits are measured from a moment that is kept, not to a deadline:
those are over when that moment is long ago. As `snapshot` does, this module looks inside all parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from node.core.broker import Broker
from node.core.protocol import Commit, Detection
from node.core.replica import LONG_AGO, NEVER, PendingAck, PendingFetch, Replica


def timers(broker: Broker) -> tuple[str, ...]:
    """Return the names of all waits of a node that can end by time alone, in a fixed order."""
    return (*_of_node(broker), *_of_replicas(broker), *_of_controller(broker))


def expire(broker: Broker, name: str) -> None:
    """End that wait: the next Tick, at this time or later, does what follows. Raises KeyError for a
    wait that is not under way."""
    if name not in timers(broker):
        raise KeyError(name)
    kind, _, rest = name.partition("/")
    about, _, of = rest.partition("/")
    _EXPIRE[kind](broker, about, of)


def _of_node(broker: Broker) -> Iterator[str]:
    if broker.membership is not None and not broker.membership.may_stop:
        yield "heartbeat"
    if broker._checkpoint_us < NEVER:
        yield "checkpoint"
    if broker._flush_us < NEVER:
        yield "flush"


def _of_replicas(broker: Broker) -> Iterator[str]:
    for r in (broker.quorum.r, *broker.replicas.values()):
        if r.role == "leader":
            yield from _of_leader(broker, r)
        elif r.role == "follower" and r.fetching.deadline_us < NEVER:
            yield f"fetch/{r.partition}"
            if r.protocol.detection is Detection.LEADER_REPORTS:
                yield f"silence/{r.partition}"
    for name, quorum in broker.quorums.items():
        if quorum.r.role == "leader":
            if quorum._announce_us < NEVER:
                yield f"announce/{name}"
            if quorum._watch_us < NEVER:
                yield f"majority/{name}"
            continue
        if quorum._election_us < NEVER:
            yield f"election/{name}"
        if quorum._leader_heard_us > LONG_AGO:
            yield f"patience/{name}"


def _of_leader(broker: Broker, r: Replica) -> Iterator[str]:
    name = r.partition
    yield from (f"wait/{name}/{follower}" for follower in r.follower_waits)
    yield from (f"read/{name}/{client}.{corr}" for client, corr in r.consumer_waits)
    yield from (f"ack/{name}/{ack.client}.{ack.corr}" for ack in r.acks)
    if r.pending_alter is not None:
        yield f"alter/{name}"
    if r.protocol.commit is Commit.ISR:
        yield from (f"lag/{name}/{member}" for member in r.isr if member != broker.ctx.node)


def _of_controller(broker: Broker) -> Iterator[str]:
    active = broker.controller
    if active is None:
        return
    yield from (f"session/{b.broker}" for b in active.image.brokers.values() if not b.fenced)
    yield from (f"recovery/{partition}" for partition in active._recovery._open)
    yield from (f"reports/{partition}" for partition in active._witnesses._of)


# -- what makes each of them due ------------------------------------------------------------------


def _replica(broker: Broker, name: str) -> Replica:
    return broker.quorum.r if name == broker.quorum.r.partition else broker.replicas[name]


def _wake(broker: Broker, r: Replica) -> None:
    """Let the next tick look at that replica."""
    r.wake_us = min(r.wake_us, broker.ctx.now_us)
    if r.partition in broker.replicas:
        broker.arm(r.partition)


def _heartbeat(broker: Broker, about: str, of: str) -> None:
    assert broker.membership is not None
    broker.membership.next_us = broker.ctx.now_us


def _checkpoint(broker: Broker, about: str, of: str) -> None:
    broker._checkpoint_us = broker.ctx.now_us


def _flush(broker: Broker, about: str, of: str) -> None:
    broker._flush_us = broker.ctx.now_us


def _end(broker: Broker, r: Replica, wait: PendingAck | PendingFetch) -> None:
    wait.deadline_us = broker.ctx.now_us
    _wake(broker, r)


def _wait(broker: Broker, about: str, of: str) -> None:
    r = _replica(broker, about)
    _end(broker, r, r.follower_waits[of])


def _read(broker: Broker, about: str, of: str) -> None:
    r = _replica(broker, about)
    client, _, corr = of.rpartition(".")
    _end(broker, r, r.consumer_waits[client, int(corr)])


def _ack(broker: Broker, about: str, of: str) -> None:
    r = _replica(broker, about)
    for ack in r.acks:
        if f"{ack.client}.{ack.corr}" == of:
            _end(broker, r, ack)


def _alter(broker: Broker, about: str, of: str) -> None:
    r = _replica(broker, about)
    assert r.pending_alter is not None
    r.pending_alter.retry_at_us = broker.ctx.now_us
    _wake(broker, r)


def _lag(broker: Broker, about: str, of: str) -> None:
    """End the lag time of a follower that has not been at the log end."""
    r = _replica(broker, about)
    r.next_lag_check_us = broker.ctx.now_us
    peer = r.peers.get(of)
    if peer is None:
        r.led_since_us = LONG_AGO
    else:
        peer.last_caught_up_us = LONG_AGO
    _wake(broker, r)


def _fetch(broker: Broker, about: str, of: str) -> None:
    """Give a fetch up, or end the pause before the next one."""
    r = _replica(broker, about)
    r.fetching.deadline_us = broker.ctx.now_us
    _wake(broker, r)


def _silence(broker: Broker, about: str, of: str) -> None:
    """End the leader timeout without a valid answer, and give the fetch up."""
    _replica(broker, about).fetching.heard_us = LONG_AGO
    _fetch(broker, about, of)


def _announce(broker: Broker, about: str, of: str) -> None:
    broker.quorums[about]._announce_us = broker.ctx.now_us
    _wake(broker, broker.quorums[about].r)


def _majority(broker: Broker, about: str, of: str) -> None:
    """No voter has fetched from this leader for long."""
    quorum = broker.quorums[about]
    quorum._watch_us = broker.ctx.now_us
    quorum.r.led_since_us = LONG_AGO
    for peer in quorum.r.peers.values():
        peer.last_fetch_us = LONG_AGO
    _wake(broker, quorum.r)


def _election(broker: Broker, about: str, of: str) -> None:
    broker.quorums[about]._election_us = broker.ctx.now_us
    _wake(broker, broker.quorums[about].r)


def _patience(broker: Broker, about: str, of: str) -> None:
    """End the patience with the leader for whose sake pre-votes are refused."""
    broker.quorums[about]._leader_heard_us = LONG_AGO


def _session(broker: Broker, about: str, of: str) -> None:
    """End the session of a broker that has been silent for the session time."""
    assert broker.controller is not None
    broker.controller._heard_us[about] = LONG_AGO
    broker._controller_us = broker.ctx.now_us


def _recovery(broker: Broker, about: str, of: str) -> None:
    assert broker.controller is not None
    broker.controller._recovery._open[about].ask_at_us = broker.ctx.now_us
    broker._controller_us = broker.ctx.now_us


def _reports(broker: Broker, about: str, of: str) -> None:
    assert broker.controller is not None
    broker.controller._witnesses._of[about].expires_us = broker.ctx.now_us
    broker._controller_us = broker.ctx.now_us


_EXPIRE: Final[dict[str, Callable[[Broker, str, str], None]]] = {
    "heartbeat": _heartbeat,
    "checkpoint": _checkpoint,
    "flush": _flush,
    "wait": _wait,
    "read": _read,
    "ack": _ack,
    "alter": _alter,
    "lag": _lag,
    "fetch": _fetch,
    "silence": _silence,
    "announce": _announce,
    "majority": _majority,
    "election": _election,
    "patience": _patience,
    "session": _session,
    "recovery": _recovery,
    "reports": _reports,
}
