"""Rules about the change that a message makes in the replica that gets it, from docs/protocols.md.

Each rule takes a step, and yields a sentence for each thing that is not as specified. A rule reads
the message and the state before, never how the broker decides."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from harness.sim.step import Before, BrokerStep, Entries
from node.core import batch as batches
from node.core.batch import BatchView
from node.core.protocol import Commit, Protocol, Truncation
from node.core.replica import Replica
from node.formats.messages import (
    CONSUMER,
    UNDEFINED,
    AppendEntries,
    AppendResponse,
    EpochEndResponse,
    Error,
    FetchRequest,
    FetchResponse,
    VoteRequest,
)
from node.formats.trace import REFUSED, VOTE
from node.formats.wire import split_fetch_body

Rule = Callable[[BrokerStep, Replica, Before], Iterator[str]]
_ISR: Final = Commit.ISR
_NONE: Final = Error.NONE
_ON_FETCH: Final = Truncation.ON_FETCH
"""Read at each fetch: members of an enum are found slowly."""


def end_of(entries: Entries, epoch: int, leo: int) -> tuple[int, int]:
    """Return the largest epoch at or below `epoch` and its end; below the first one, that epoch
    itself and the start of the first ("Truncation")."""
    below = [each for each, _ in entries if each <= epoch]
    if not entries or not below:
        return epoch, entries[0][1] if entries else leo
    above = [start for each, start in entries if each > below[-1]]
    return below[-1], above[0] if above else leo


def last_epoch(r: Replica) -> int:
    """Return the last epoch that a fetch states; -1 if the protocol does not compare it."""
    return r.log.last_epoch if r.protocol.truncation is _ON_FETCH else -1


def _log(r: Replica, b: Before, leo: int, hw: int) -> Iterator[str]:
    """Check the end of the log and the high watermark."""
    if (r.leo, r.hw) != (leo, hw):
        was = f"from log end {b.leo} and high watermark {b.hw}"
        yield f"went {was} to {r.leo} and {r.hw}, and should be at {leo} and {hw}"
    elif (
        leo <= b.leo and b.hashes.get(leo, b.chain.hex()) != r.log.chain.hex() and leo > r.log.start
    ):
        yield f"has another log below {leo} than before"


def _stays(r: Replica, b: Before) -> Iterator[str]:
    """Check that log and high watermark are what they were. A leader appends and counts at the end
    of a turn, whatever message that has: its log has to go on."""
    if b.role == r.role == "leader":
        if r.log.start < b.leo and r.log.hash_at(b.leo) != (b.leo, b.chain.hex()):
            yield f"has another log below {b.leo}, and a message that does not count changed it"
    elif (r.leo, r.hw, r.log.chain) != (b.leo, b.hw, b.chain):
        was = f"log end {b.leo} and high watermark {b.hw}"
        yield f"had {was}, has {r.leo} and {r.hw}, and a message that does not count changed it"


def _extends(chain: str, data: bytes) -> dict[int, str]:
    """Return the ends of batches and the prefix hashes there, if they follow on `chain`."""
    found, last = {}, bytes.fromhex(chain or "00" * 8)
    for one in _batches(data):
        last = batches.chain(last, one)
        found[one.end] = last.hex()
    return found


def _batches(data: bytes) -> Sequence[BatchView]:
    return batches.split(data) if data else ()


# -- "A response, on the follower"


def _counts(s: BrokerStep, r: Replica, b: Before) -> bool:
    """Return whether a fetch response counts: current leader, epoch, and log end."""
    m, p = s.message, r.protocol
    if b.role != "follower" or r.role != "follower" or s.source != b.leader or b.asking is not None:
        return False
    if (r.leader, r.leader_epoch) != (b.leader, b.epoch):
        return False  # It has learned of another leader.
    last = b.last_epoch if p.truncation is _ON_FETCH else -1
    late = p.appends_by_index and not m.error and m.diverging is None and m.offset <= b.leo
    if (m.offset, m.last_epoch) != (b.leo, last) and not late:
        return False
    epoch = split_fetch_body(s.body)[0]
    current = m.request_epoch == b.epoch and (epoch == b.epoch or bool(m.error))
    return current or not p.fences_by_epoch


def on_fetch_response(s: BrokerStep, r: Replica, b: Before) -> Iterator[str]:
    """Check what a fetch response makes of a follower's log."""
    m = s.message
    if not b.serving or not _counts(s, r, b):
        yield from _stays(r, b)
        return
    _, hw, data = split_fetch_body(s.body)
    if m.error:
        yield from _out_of_range(s, r, b)
    elif m.diverging is not None:
        epoch, end = m.diverging
        leo = b.floor(min(end_of(b.entries, epoch, b.leo)[1], end))
        yield from _log(r, b, leo, min(b.hw, leo))
    elif not s.traced(REFUSED):
        ends: dict[int, str] = {}
        leo = b.leo
        if data and r.protocol.appends_by_index:
            leo = max([leo, *(one.end for one in batches.split(data))])
        elif data:
            ends = _extends(b.chain.hex(), data)
            leo = max(ends, default=leo)
        floor = b.hw if r.protocol.hw_only_rises else b.start
        yield from _log(r, b, leo, max(floor, min(leo, hw), r.log.start))
        if ends and ends[leo] != r.log.chain.hex():
            yield f"appended other batches below {leo} than it fetched"
        yield from _begins(r, b, m.log_start)


def _begins(r: Replica, b: Before, log_start: int) -> Iterator[str]:
    """Check that a follower deletes what is committed and its leader has not ("Retention")."""
    upto = max(min(log_start, r.hw), b.start)
    if r.log.start != r.log.hash_at(upto)[0]:
        yield f"begins its log at {r.log.start}, its leader at {log_start}"


def _out_of_range(s: BrokerStep, r: Replica, b: Before) -> Iterator[str]:
    m = s.message
    if m.error is not Error.OFFSET_OUT_OF_RANGE:
        yield from _stays(r, b)
    elif m.before_start is not None and m.log_start > b.leo:
        if (r.log.start, r.leo, r.hw) != (m.log_start,) * 3:
            yield f"did not start over at {m.log_start}, where its leader begins"
    elif 0 <= m.log_end < b.leo:
        leo = b.floor(m.log_end)
        yield from _log(r, b, leo, min(b.hw, leo))
    else:
        yield from _stays(r, b)


# -- "Kafka's earlier protocols", "Truncation"


def on_epoch_end(s: BrokerStep, r: Replica, b: Before) -> Iterator[str]:
    """Check the cut that follows from the end of an epoch at the leader."""
    m = s.message
    counts = b.role == "follower" and s.source == b.leader and m.asked == b.asking
    if r.protocol.fences_by_epoch and m.request_epoch != b.epoch:
        counts = False
    if not b.serving or not counts or m.error:
        yield from _stays(r, b)
        return
    target, again = _cut(r.protocol, b, m)
    leo = b.floor(target)
    yield from _log(r, b, leo, min(b.hw, leo))
    if r.fetching.asking != again:
        yield f"asks for the end of epoch {r.fetching.asking} next, and should for {again}"


def _cut(p: Protocol, b: Before, m: EpochEndResponse) -> tuple[int, int | None]:
    """Return where to cut, and which epoch to ask for then (KIP-101, KIP-279)."""
    if m.end_offset == UNDEFINED:
        return b.hw, None
    if m.version < 1:
        return min(m.end_offset, b.leo), None
    has = any(each == m.epoch for each, _ in b.entries)
    older = [each for each, _ in b.entries if each < m.epoch]
    above = [start for each, start in b.entries if each > m.epoch]
    own = above[0] if above else b.leo
    if has:
        return min(m.end_offset, own), None
    if older:
        return own, older[-1]
    lowest = p.truncation is Truncation.EPOCH_END_V1_LOWEST and b.entries
    return min(m.end_offset, b.entries[0][1] if lowest else b.leo), None


# -- "quorum-push"


def on_append(s: BrokerStep, r: Replica, b: Before) -> Iterator[str]:
    """Check what records that a leader pushes make of a log, and the answer."""
    m, quorum = s.message, s.quorum
    if quorum is None or not r.protocol.pushes:
        return
    answer = next(s.sent(AppendResponse, s.source), None)
    refused = s.source not in quorum.voters or (b.role == "leader" and m.leader_epoch == b.epoch)
    if m.leader_epoch < b.epoch or refused:
        yield from _stays(r, b)
        if answer is not None and answer.matched:
            yield f"matched records of term {m.leader_epoch}, and is in term {b.epoch}"
        return
    if s.traced(REFUSED) or (m.before_start is not None and m.log_start > b.leo):
        return
    here = b.start <= m.offset <= b.leo and b.at[0] == m.offset
    known = end_of(b.entries, m.last_epoch, b.leo) if b.entries else (m.last_epoch, b.leo)
    matched = here and known[1] >= m.offset and _epoch_before(r, b, m) == m.last_epoch
    if answer is not None and answer.matched and not matched:
        yield f"matched records after epoch {m.last_epoch} at {m.offset}, which it does not have"
    if answer is None or not answer.matched:
        yield from _stays(r, b)
        return
    ends = _extends(b.at[1], s.body)
    end = max(ends, default=m.offset)
    had = [one.end for one in itertools.takewhile(partial(_had, b), _batches(s.body))]
    leo = end if len(had) < len(ends) else b.leo
    hw = max(b.hw, min(end, m.hw), r.log.start)
    if (r.leo, r.hw) != (leo, hw):
        yield f"has log end {r.leo} and high watermark {r.hw}, and should have {leo} and {hw}"
    elif all(b.hashes.get(each) == ends[each] for each in had) and any(
        r.log.hash_at(each) != (each, chain) for each, chain in ends.items()
    ):
        yield f"has another log below {end} than its leader sent"
    yield from _begins(r, b, m.log_start)
    if answer.end != end:
        yield f"answered that its log is its leader's below {answer.end}, and compared up to {end}"


def _had(b: Before, one: BatchView) -> bool:
    """Return whether a follower had a record of the same term there. It keeps that, as Raft does;
    two of one term differ only if a disk has lost what it had synced."""
    return one.base_offset < b.leo and one.epoch == max(
        (epoch for epoch, start in b.entries if start <= one.base_offset), default=-1
    )


def _epoch_before(r: Replica, b: Before, m: AppendEntries) -> int:
    """Return the epoch of the record before the first one that was sent, in the log as it was."""
    return r.log.epoch_before(m.offset) if r.log.start <= m.offset <= r.leo else m.last_epoch


def on_append_response(s: BrokerStep, r: Replica, b: Before) -> Iterator[str]:
    """Check what a leader counts for a follower that answered a push."""
    m = s.message
    if b.role != "leader" or r.role != "leader" or not r.protocol.pushes:
        return
    peer = r.peers.get(s.source)
    counts = m.matched and m.request_epoch == b.epoch and m.end <= b.leo and not m.observer
    expected = m.end if counts else None if b.peer is None else b.peer[0]
    if (None if peer is None else peer.leo) != expected:
        yield f"counts {s.source} for {peer and peer.leo}, and should for {expected}"


# -- "A fetch, on the leader"


def on_fetch(s: BrokerStep, r: Replica, b: Before) -> Iterator[str]:
    """Check the answer to a fetch, and what the leader counts for the follower."""
    m = s.message
    error, diverging = _fetch_answer(s, r, b)
    answer = _fetch_answered(s)
    said = _NONE if answer is None else answer.error
    if said != error and said is not Error.OVERLOADED:
        yield f"answered a fetch at {m.offset} with {said or 'no error'}, not {error or 'no error'}"
        return
    if not error and (None if answer is None else answer.diverging) != diverging:
        what = f"a fetch at {m.offset} after epoch {m.last_epoch}"
        yield f"answered {what} with divergence {answer and answer.diverging}, not {diverging}"
        return
    if m.replica == CONSUMER or r.role != "leader" or b.role != "leader":
        return
    expected, peer = b.peer, r.peers.get(s.source)
    counts = not error and diverging is None
    if r.protocol.last_index_matches:
        counts = not error or (error is Error.OFFSET_OUT_OF_RANGE and m.offset > b.leo)
    if counts and not m.observer:
        expected = m.offset, m.broker_epoch
    if expected != (None if peer is None else (peer.leo, peer.broker_epoch)):
        has = None if peer is None else (peer.leo, peer.broker_epoch)
        yield f"counts {s.source} for log end and broker epoch {has}, and should for {expected}"


def _fetch_answered(s: BrokerStep) -> Any:
    """Return the answer to the fetch of a step, None if the fetch waits."""
    m = s.message
    for answer in s.sent(FetchResponse, s.source) if s.effects.messages else ():
        if answer.offset == m.offset and answer.request_epoch == m.leader_epoch:
            return answer
    return None


def _fetch_answer(s: BrokerStep, r: Replica, b: Before) -> tuple[Error, tuple[int, int] | None]:
    """Return the error of the answer to a fetch, and the divergence in it."""
    m, p, consumes = s.message, r.protocol, s.message.replica == CONSUMER
    in_sync = p.commit is _ISR
    if b.role != "leader" or r.role != "leader":
        return Error.NOT_LEADER, None
    if p.fences_by_epoch and not (consumes and m.leader_epoch < 0) and m.leader_epoch != b.epoch:
        older = m.leader_epoch < b.epoch
        return (Error.FENCED_LEADER_EPOCH if older else Error.UNKNOWN_LEADER_EPOCH), None
    if consumes:
        within = b.start <= m.offset <= b.leo
        return (_NONE if within else Error.OFFSET_OUT_OF_RANGE), None
    if in_sync and m.replica not in r.replicas:
        return Error.UNKNOWN_LEADER_EPOCH, None
    if m.offset < b.start:
        return Error.OFFSET_OUT_OF_RANGE, None
    latest = m.last_epoch == r.log.cache.latest and m.offset <= r.leo
    if m.last_epoch >= 0 and m.offset and not latest:
        epoch, end = end_of(r.log.cache.entries(), m.last_epoch, r.leo)
        if epoch < m.last_epoch or end < m.offset:
            return _NONE, (epoch, end)
    if m.offset > b.leo:
        return Error.OFFSET_OUT_OF_RANGE, None
    if in_sync and m.broker_epoch < s.core.ctx.image.broker_epoch(m.replica):
        return Error.STALE_BROKER_EPOCH, None
    return _NONE, None


# -- votes ("quorum")


def on_vote_request(s: BrokerStep, r: Replica, b: Before) -> Iterator[str]:
    """Check that a vote is granted if and only if the candidate may have it."""
    m, quorum = s.message, s.quorum
    if quorum is None:
        return
    given = s.traced(VOTE)
    complete = (m.last_epoch, m.last_offset) >= (b.last_epoch, b.leo)
    newer = m.term > b.epoch
    if m.pre:
        may = complete and newer and b.role != "leader"
    else:
        free = newer or (b.role == "follower" and b.voted_for in ("", s.source))
        may = complete and m.term >= b.epoch and free
    voter = quorum.is_voter and s.source in quorum.voters
    if (given and not (may and voter)) or (may and voter and not given and not m.pre):
        how = "gave" if given else "refused"
        yield f"{how} {s.source} its vote for term {m.term}, against the rule"


RULES: Final[dict[type, Rule]] = {
    FetchRequest: on_fetch,
    FetchResponse: on_fetch_response,
    EpochEndResponse: on_epoch_end,
    AppendEntries: on_append,
    AppendResponse: on_append_response,
    VoteRequest: on_vote_request,
}
