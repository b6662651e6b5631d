"""Deletion of the head of a log: committed records beyond the retention.

The leader decides, at an append, in whole batches, and never above its high watermark. Followers do
not count records: they delete up to the log start that the leader's answers state, so that no
replica has deleted what its leader still offers. A follower whose log ends below the leader's log
start starts over there. docs/protocols.md, "Retention"."""

from __future__ import annotations

from node.core.context import Context
from node.core.log import LogStart
from node.core.replica import Replica
from node.formats.messages import AppendEntries, FetchResponse
from node.formats.trace import DELETED, INTERNAL_PARTITIONS


def at_append(ctx: Context, r: Replica) -> None:
    """Delete a leader's oldest committed records if there are a quarter more than the retention
    keeps."""
    keep = ctx.config.retention_records
    if r.partition in INTERNAL_PARTITIONS:
        return
    end = r.leo if r.bugs.delete_beyond_hw else r.hw
    if end - r.log.start > keep + keep // 4:
        _delete(ctx, r, end - keep, "retention")


def follow(ctx: Context, r: Replica, log_start: int) -> None:
    """Delete the records of a follower below its leader's `log_start`, which is above its own, but
    only those below its own high watermark."""
    _delete(ctx, r, min(log_start, r.hw), "leader")


def start_of(r: Replica) -> tuple[int, str]:
    """Return the leader epoch of the last deleted record of this log (-1 if none was), and the
    prefix hash there in hexadecimal."""
    begins = r.log.begins
    return begins.epoch, begins.chain.hex()


def restart(ctx: Context, r: Replica, response: FetchResponse | AppendEntries) -> bool:
    """Return whether the response says that the leader has deleted this follower's next record; if
    so, drop the log and start over at the leader's log start."""
    if response.before_start is None or response.log_start <= r.leo:
        return False
    epoch, chain = response.before_start
    before = r.log.start
    r.log.restart_at(LogStart(response.log_start, epoch, bytes.fromhex(chain)))
    r.producers.rebuild(r.log.produced())
    _trace(ctx, r, before, "restart")
    r.set_hw(ctx, r.log.start)
    return True


def trace_emptied(ctx: Context, r: Replica, before: int) -> None:
    """Trace that a truncation below `before`, the log's former start, has emptied the log, if it
    has."""
    if r.log.start != before:
        _trace(ctx, r, before, "truncated")


def _delete(ctx: Context, r: Replica, upto: int, reason: str) -> None:
    before = r.log.start
    if r.log.delete_head(upto):
        _trace(ctx, r, before, reason)
        if r.hw < r.log.start:
            r.set_hw(ctx, r.log.start)


def _trace(ctx: Context, r: Replica, before: int, reason: str) -> None:
    ctx.trace(
        DELETED,
        r.partition,
        from_start=before,
        start=r.log.start,
        leo=r.leo,
        leader_epoch=r.leader_epoch,
        reason=reason,
        hash=r.log.begins.chain.hex() if r.log.start else "",
    )
