"""Truncation before a new follower's first fetch: at the leader's answer, or at the own high
watermark.

The module has all rules but truncate-on-fetch, which is part of every fetch (`follower.py`), and
the leader's answers to these requests. If the leader does not know the epoch, or no epochs at all,
the follower cuts to its own high watermark, as the KIPs say; so does one whose last record has no
epoch, being of the older message format. If the answer is lost, the request is sent again; with
`Protocol.falls_back_after`, only so many times.
KIP-101, KIP-279, Liftbridge's LeaderEpoch offset request; docs/protocols.md."""

from __future__ import annotations

from typing import NamedTuple

from node.core.context import Context
from node.core.epochs import EpochEnd
from node.core.protocol import Truncation
from node.core.replica import Replica
from node.formats.messages import HW_ONLY, UNDEFINED, EpochEndRequest, EpochEndResponse, Error

_VERSIONS = {
    Truncation.LEADER_HW: HW_ONLY,
    Truncation.EPOCH_END_V0: 0,
    Truncation.EPOCH_OFFSET: 0,
    Truncation.EPOCH_END_V1: 1,
    Truncation.EPOCH_END_V1_LOWEST: 1,
}


def epoch_to_ask(r: Replica) -> int | None:
    """Return the epoch whose end a follower must ask for before it fetches; None if it need not, or
    cannot, ask."""
    if r.protocol.truncation not in _VERSIONS or r.log.last_epoch < 0:
        return None
    return r.log.last_epoch


def cuts_unasked(r: Replica) -> bool:
    """Return whether a follower cuts to its own high watermark at once: its protocol says so, or
    would ask the leader for an epoch's end, and its last record has none."""
    rule = r.protocol.truncation
    return rule is Truncation.OWN_HW or (rule in _VERSIONS and r.log.last_epoch < 0)


def ask(ctx: Context, r: Replica, epoch: int) -> None:
    """Ask the leader where `epoch` ends; the follower asks again until it has an answer."""
    ctx.send(
        r.leader,
        EpochEndRequest(
            partition=r.partition,
            replica=ctx.node,
            epoch=epoch,
            leader_epoch=r.leader_epoch,
            version=_VERSIONS[r.protocol.truncation],
        ),
    )
    r.fetching.asking = epoch
    r.fetching.outstanding = True
    r.fetching.deadline_us = ctx.now_us + ctx.config.timings.fetch_timeout_ms * 1000
    r.wake_us = min(r.wake_us, r.fetching.deadline_us)


def falls_back(r: Replica) -> bool:
    """Return whether to give up asking for an epoch's end, after the protocol's number of failures:
    KIP-279 keeps "any error falls back to the high watermark", Liftbridge tries three times."""
    asks = r.fetching.asking is not None
    return asks and 0 < r.protocol.falls_back_after <= r.fetching.failures


def on_request(ctx: Context, r: Replica, source: str, request: EpochEndRequest) -> None:
    """Answer a follower that asks for the end of an epoch in this leader's log."""
    error = Error.NONE
    if r.role != "leader":
        error = Error.NOT_LEADER
    elif r.protocol.fences_by_epoch and request.leader_epoch < r.leader_epoch:
        error = Error.FENCED_LEADER_EPOCH
    elif r.protocol.fences_by_epoch and request.leader_epoch > r.leader_epoch:
        error = Error.UNKNOWN_LEADER_EPOCH
    version = min(request.version, _VERSIONS.get(r.protocol.truncation, request.version))
    found = EpochEnd(UNDEFINED, UNDEFINED)
    if not error:
        found = _answer(r, request.epoch, version)
    ctx.send(
        source,
        EpochEndResponse(
            corr=request.corr,
            partition=r.partition,
            asked=request.epoch,
            error=error,
            request_epoch=request.leader_epoch,
            epoch=found.epoch,
            end_offset=found.end,
            version=version,
            leader=r.leader,
        ),
    )


def _answer(r: Replica, epoch: int, version: int) -> EpochEnd:
    if version == HW_ONLY:
        return EpochEnd(UNDEFINED, r.hw)
    if r.protocol.truncation is Truncation.OWN_HW:
        return EpochEnd(UNDEFINED, UNDEFINED)  # an older version, which knows no leader epochs
    if r.protocol.truncation is Truncation.EPOCH_OFFSET:
        return epoch_offset(r, epoch, learned_late=r.bugs.liftbridge_epoch_offset)
    return end_v0(r, epoch) if version == 0 else end_v1(r, epoch)


def end_v0(r: Replica, epoch: int) -> EpochEnd:
    """Return KIP-101's answer: the log end for the latest epoch, else the start of the first later
    epoch; UNDEFINED for an epoch before the first or after the latest."""
    entries = r.log.cache.entries()
    if entries and epoch == entries[-1][0]:
        return EpochEnd(UNDEFINED, r.leo)
    above = [start for each, start in entries if each > epoch]
    if not above or epoch < entries[0][0]:
        return EpochEnd(UNDEFINED, UNDEFINED)
    return EpochEnd(UNDEFINED, above[0])


def epoch_offset(r: Replica, epoch: int, *, learned_late: bool = False) -> EpochEnd:
    """Return Liftbridge's answer: the start of the first epoch above the one asked for, else the
    log end. With bug LB1 (`learned_late`) an answer is the last offset to keep. Entries of a
    leader's own epoch are one lower then, but an epoch learned from records is entered with the
    offset of its first record: one record too many is kept."""
    for above, start in r.log.cache.entries():
        if above > epoch:
            learned = above != r.leader_epoch
            return EpochEnd(UNDEFINED, start + (learned_late and learned))
    return EpochEnd(UNDEFINED, r.leo)


def _knows_lowest(r: Replica) -> bool:
    """Return whether an epoch below the first ends where the first begins. KAFKA-7415 added this
    together with the cache entry at the election, so bug M3 removes both."""
    lowest = r.protocol.truncation is Truncation.EPOCH_END_V1_LOWEST
    return lowest and not r.bugs.lazy_epoch_cache


def end_v1(r: Replica, epoch: int) -> EpochEnd:
    """Return KIP-279's answer: the largest epoch at or below the one asked for, and where it ends.
    By the KIP's letter it is UNDEFINED below the first epoch, and above the latest; with KAFKA-7415
    it always has an answer."""
    if _knows_lowest(r):
        return r.log.cache.end_of(epoch, r.leo)
    entries = r.log.cache.entries()
    below = [each for each, _ in entries if each <= epoch]
    if not below:
        return EpochEnd(UNDEFINED, UNDEFINED)
    above = [start for each, start in entries if each > below[-1]]
    if not above and below[-1] < epoch:
        return EpochEnd(UNDEFINED, UNDEFINED)
    return EpochEnd(below[-1], above[0] if above else r.leo)


class CutTo(NamedTuple):
    """The next action of a follower after an answer: cut to `target`, then ask for the end of epoch
    `again`, or fetch if that is None."""

    target: int
    again: int | None = None


def decide(r: Replica, response: EpochEndResponse) -> CutTo:
    """Return the cut that follows from the leader's answer."""
    if response.end_offset == UNDEFINED:
        return CutTo(r.hw)
    if response.version < 1:
        return CutTo(min(response.end_offset, r.leo))
    own = r.log.cache.entries()
    starts_above = [start for each, start in own if each > response.epoch]
    own_end = starts_above[0] if starts_above else r.leo
    if any(each == response.epoch for each, _ in own):
        return CutTo(min(response.end_offset, own_end))
    older = [each for each, _ in own if each < response.epoch]
    if not older:
        return CutTo(min(response.end_offset, own[0][1] if own and _knows_lowest(r) else r.leo))
    return CutTo(own_end, again=older[-1])
