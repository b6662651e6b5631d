"""The timers of a node by name, and a way to let one of them expire at once.

    for name in timers(broker): ...
    expire(broker, "session/n1")
    effects = broker.step(now_us, Tick())

A world whose clock stands still chooses itself which wait ends next. A name has the kind of the
wait, then its partition or broker, then the node or client that waits: `wait/log-0/n2` is the fetch
of n2 that its leader holds. Some waits have no deadline and are measured from a past moment (the
last heartbeat of a broker): those end if that moment is made long past. As `snapshot` does, this
module looks inside all parts of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from node.core.broker import Broker
from node.core.protocol import Commit, Detection
from node.core.quorum import Quorum
from node.core.replica import LONG_AGO, NEVER, Replica

Wait = tuple[str, Callable[[], None]]
"""The name of a wait, and what ends it."""


def timers(broker: Broker) -> tuple[str, ...]:
    """Return the names of all waits of a node that can end by time alone, in a fixed order."""
    return tuple(name for name, _ in _waits(broker))


def expire(broker: Broker, name: str) -> None:
    """End the wait of that name: the next Tick, at this time or later, acts as if it had run out.
    Raises KeyError if no such wait is under way."""
    dict(_waits(broker))[name]()


def _waits(broker: Broker) -> Iterator[Wait]:
    membership, now_us = broker.membership, broker.ctx.now_us
    if membership is not None and not membership.may_stop:
        yield "heartbeat", partial(setattr, membership, "next_us", now_us)
    if broker._checkpoint_us < NEVER:
        yield "checkpoint", partial(setattr, broker, "_checkpoint_us", now_us)
    if broker._flush_us < NEVER:
        yield "flush", partial(setattr, broker, "_flush_us", now_us)
    for r in (broker.quorum.r, *broker.replicas.values()):
        if r.role == "leader":
            yield from _of_leader(broker, r)
        elif r.role == "follower" and r.fetching.deadline_us < NEVER:
            yield f"fetch/{r.partition}", _over(broker, r, r.fetching, "deadline_us")
            if r.protocol.detection is Detection.LEADER_REPORTS:
                yield f"silence/{r.partition}", partial(_silence, broker, r)
    for name, quorum in broker.quorums.items():
        yield from _of_quorum(broker, name, quorum)
    yield from _of_controller(broker)


def _of_leader(broker: Broker, r: Replica) -> Iterator[Wait]:
    name, over = r.partition, partial(_over, broker, r)
    for follower, fetch in r.follower_waits.items():
        yield f"wait/{name}/{follower}", over(fetch, "deadline_us")
    for (client, corr), read in r.consumer_waits.items():
        yield f"read/{name}/{client}.{corr}", over(read, "deadline_us")
    for ack in r.acks:
        yield f"ack/{name}/{ack.client}.{ack.corr}", over(ack, "deadline_us")
    if r.pending_alter is not None:
        yield f"alter/{name}", over(r.pending_alter, "retry_at_us")
    if r.protocol.commit is Commit.ISR:
        for member in r.isr:
            if member != broker.ctx.node:
                yield f"lag/{name}/{member}", partial(_lag, broker, r, member)


def _of_quorum(broker: Broker, name: str, quorum: Quorum) -> Iterator[Wait]:
    over = partial(_over, broker, quorum.r, quorum)
    if quorum.r.role == "leader":
        if quorum._announce_us < NEVER:
            yield f"announce/{name}", over("_announce_us")
        if quorum._watch_us < NEVER:
            yield f"majority/{name}", partial(_majority, broker, quorum)
        return
    if quorum._election_us < NEVER:
        yield f"election/{name}", over("_election_us")
    if quorum._leader_heard_us > LONG_AGO:
        # The patience with the leader for whose sake pre-votes are refused.
        yield f"patience/{name}", partial(setattr, quorum, "_leader_heard_us", LONG_AGO)


def _of_controller(broker: Broker) -> Iterator[Wait]:
    active = broker.controller
    if active is None:
        return
    for each in active.image.brokers.values():
        if not each.fenced:
            yield f"session/{each.broker}", partial(_session, broker, each.broker)
    for partition, question in active._recovery._open.items():
        yield f"recovery/{partition}", partial(_of_active, broker, question, "ask_at_us")
    for partition, witness in active._witnesses._of.items():
        yield f"reports/{partition}", partial(_of_active, broker, witness, "expires_us")


# -- what makes each of them due ------------------------------------------------------------------


def _wake(broker: Broker, r: Replica) -> None:
    """Let the next tick look at that replica."""
    r.wake_us = min(r.wake_us, broker.ctx.now_us)
    if r.partition in broker.replicas:
        broker.arm(r.partition)


def _over(broker: Broker, r: Replica, part: Any, deadline: str) -> Callable[[], None]:
    """Return a function that moves a deadline of a replica to the present."""

    def end() -> None:
        setattr(part, deadline, broker.ctx.now_us)
        _wake(broker, r)

    return end


def _of_active(broker: Broker, part: Any, deadline: str) -> None:
    setattr(part, deadline, broker.ctx.now_us)
    broker._controller_us = broker.ctx.now_us


def _lag(broker: Broker, r: Replica, follower: str) -> None:
    """End the lag time of a follower that has not been at the log end."""
    r.next_lag_check_us = broker.ctx.now_us
    peer = r.peers.get(follower)
    if peer is None:
        r.led_since_us = LONG_AGO
    else:
        peer.last_caught_up_us = LONG_AGO
    _wake(broker, r)


def _silence(broker: Broker, r: Replica) -> None:
    """End the leader timeout without a valid answer, and give the fetch up."""
    r.fetching.heard_us = LONG_AGO
    _over(broker, r, r.fetching, "deadline_us")()


def _majority(broker: Broker, quorum: Quorum) -> None:
    """End the time in which no voter has fetched from this leader."""
    quorum._watch_us = broker.ctx.now_us
    quorum.r.led_since_us = LONG_AGO
    for peer in quorum.r.peers.values():
        peer.last_fetch_us = LONG_AGO
    _wake(broker, quorum.r)


def _session(broker: Broker, silent: str) -> None:
    assert broker.controller is not None
    broker.controller._heard_us[silent] = LONG_AGO
    broker._controller_us = broker.ctx.now_us
