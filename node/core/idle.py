"""Idle wait: a follower at the end of its leader's log sleeps until there is data.

This replaces the long poll of Kafka. The leader answers a caught-up follower at once, with the 16
bytes of LeaderEpoch and HW and no records, and remembers it as a data waiter of the log. When the
log grows, each waiter gets one notification. A notification only ends a sleep early, so a lost one
costs time and nothing else.

Source: Liftbridge's replication protocol (`replica.max.idle.wait`); docs/protocols.md."""

from __future__ import annotations

from node.core.context import Context
from node.core.protocol import Protocol, Waiting
from node.core.replica import Replica
from node.formats.errors import UsageError
from node.formats.messages import PartitionNotification

_JITTER_SHARE = 5
"""A sleep is shorter than `idle_wait_ms` by a random part of up to a fifth (2 s of 10 s)."""


def check(protocol: Protocol, *, idle_wait_ms: int, lag_ms: int) -> None:
    """Raise UsageError if a follower could sleep for longer than the lag time, and so fall out of
    the ISR."""
    if protocol.waiting is Waiting.IDLE_WAIT and idle_wait_ms >= lag_ms:
        raise UsageError(
            f"idle_wait_ms is {idle_wait_ms}, but under {protocol.name} it must be below lag_ms, "
            f"which is {lag_ms}"
        )


# -- the leader -----------------------------------------------------------------------------------


def notify(ctx: Context, r: Replica) -> None:
    """Send each data waiter one notification that the log has grown, and forget the waiters."""
    waiters = list(r.data_waiters.values())
    r.data_waiters.clear()
    for follower in waiters:
        ctx.send(follower, PartitionNotification(partition=r.partition))


# -- the follower ---------------------------------------------------------------------------------


def sleep(ctx: Context, r: Replica) -> None:
    """Put off the next fetch by the idle wait, since there was nothing to fetch; fetch at once if a
    notification came while the response was under way."""
    fetching = r.fetching
    fetching.outstanding = False
    sleep_us = 0
    if not fetching.notified:
        longest_us = ctx.config.timings.idle_wait_ms * 1000
        sleep_us = longest_us - ctx.jitter.randint(0, longest_us // _JITTER_SHARE)
    fetching.deadline_us = ctx.now_us + sleep_us
    r.wake_us = min(r.wake_us, fetching.deadline_us)


def on_notification(ctx: Context, r: Replica, source: str) -> None:
    """End the sleep, because there are new records. If a fetch is under way its response may be
    older than they are, so the next sleep is skipped."""
    fetching = r.fetching
    if r.role != "follower" or source != r.leader:
        return
    fetching.notified = True
    asleep = not fetching.outstanding and fetching.failures == 0
    if asleep:
        fetching.deadline_us = ctx.now_us
        r.wake_us = min(r.wake_us, ctx.now_us)
