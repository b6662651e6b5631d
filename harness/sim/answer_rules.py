"""Rules about the fields of a message, given the state of its sender when the step has ended, and
about what a leader appends and answers to producers.

Each rule takes a step, and a message that it sends, and yields a sentence for each field that is
not as docs/protocols.md says ("Produce" and "Idempotent producers" too)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from harness.sim.adoption_rules import end_of, last_epoch
from harness.sim.before import replica_of
from harness.sim.step import Before, BrokerStep
from node.core import batch as batches
from node.core.batch import BatchView
from node.core.protocol import BelowMinIsr, Commit, Truncation
from node.core.replica import Replica
from node.formats.errors import WireError
from node.formats.messages import (
    HW_ONLY,
    UNDEFINED,
    AlterPartition,
    AppendEntries,
    BeginQuorumEpoch,
    EpochEndRequest,
    EpochEndResponse,
    Error,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
    ReplicaLogInfo,
    ReportLeader,
    VoteRequest,
    VoteResponse,
)
from node.formats.trace import GROUPS_PARTITION, PROPOSED, VOTE
from node.formats.wire import split_fetch_body

Rule = Callable[[BrokerStep, Replica, Any, bytes], Iterable[str]]
_ISR: Final = Commit.ISR
_WAIT: Final = BelowMinIsr.WAIT
"""Read at each step of a leader: members of an enum are found slowly."""


def _differs(name: str, said: object, expected: object) -> Iterator[str]:
    if said != expected:
        yield f"said {name} {said}, and has {expected}"


def _wrong(r: Replica, offset: int, data: bytes) -> str:
    """Return what is wrong with the records that a message has from `offset` on, "" if nothing."""
    end, chain = r.log.hash_at(offset)
    last = bytes.fromhex(chain) if chain else batches.EMPTY_CHAIN
    for one in batches.split(data):
        last = batches.chain(last, one)
        if one.base_offset != end or r.log.hash_at(one.end) != (one.end, last.hex()):
            return f"sent a batch at {one.base_offset} that its log does not have there"
        end = one.end
    return ""


def fetch_response(s: BrokerStep, r: Replica, m: FetchResponse, body: bytes) -> Iterator[str]:
    """Check an answer to a fetch: the records of the log from that offset on, and no others."""
    epoch, hw, data = split_fetch_body(body)
    if m.error or r.log.damage is not None:
        if data:
            yield "sent records with an error"
        return
    if epoch != r.leader_epoch and not s.changed_role(r):
        yield f"said leader epoch {epoch}, and has {r.leader_epoch}"
    if m.log_start != r.log.start:
        yield f"said log start {m.log_start}, and has {r.log.start}"
    if hw > r.hw or (s.before is not None and s.before.r is r and hw < s.before.hw):
        yield f"said high watermark {hw}, and has {r.hw}"
    if data and (wrong := _wrong(r, m.offset, data)):
        yield wrong
    if m.diverging is not None and data:
        yield "sent records of a log that diverges"


def epoch_end_response(
    s: BrokerStep, r: Replica, m: EpochEndResponse, body: bytes
) -> Iterator[str]:
    """Check an answer to the question where an epoch ends ("Kafka's earlier protocols")."""
    if s.changed_role(r):
        return
    if r.role != "leader":
        if not m.error:
            yield "answered where an epoch ends, and does not lead"
        return
    p, entries, asked = r.protocol, r.log.cache.entries(), m.asked
    fenced = p.fences_by_epoch and m.request_epoch != r.leader_epoch
    if bool(m.error) != fenced:
        yield f"answered a question of epoch {m.request_epoch} with {m.error or 'no error'}"
    if m.error or fenced:
        return
    known = bool(entries) and entries[0][0] <= asked <= entries[-1][0]
    epoch, end = end_of(entries, asked, r.leo)
    expected = (UNDEFINED, UNDEFINED)
    if m.version == HW_ONLY:
        expected = (UNDEFINED, r.hw)
    elif p.truncation is Truncation.OWN_HW:
        pass
    elif p.truncation is Truncation.EPOCH_OFFSET:
        above = [start for each, start in entries if each > asked]
        expected = (UNDEFINED, above[0] if above else r.leo)
    elif m.version == 0:
        above = [start for each, start in entries if each > asked]
        expected = (UNDEFINED, (above[0] if above else r.leo) if known else UNDEFINED)
    elif known or p.truncation is Truncation.EPOCH_END_V1_LOWEST:
        expected = (epoch, end)
    yield from _differs(f"end of epoch {asked}", (m.epoch, m.end_offset), expected)


def append_entries(s: BrokerStep, r: Replica, m: AppendEntries, body: bytes) -> Iterator[str]:
    """Check records that a leader pushes ("quorum-push")."""
    if r.role != "leader" or m.leader_epoch != r.leader_epoch:
        if not s.changed_role(r):
            yield f"pushed records of term {m.leader_epoch}, and does not lead it"
        return
    if m.hw > r.hw:
        yield f"pushed high watermark {m.hw}, and has {r.hw}"
    if m.offset >= r.log.start:
        yield from _differs(f"epoch before {m.offset}", m.last_epoch, r.log.epoch_before(m.offset))
        if body and (wrong := _wrong(r, m.offset, body)):
            yield wrong


def vote_response(s: BrokerStep, r: Replica, m: VoteResponse, body: bytes) -> Iterator[str]:
    """Check the answer to a request for a vote."""
    yield from _differs("term", m.term, r.leader_epoch)
    yield from _differs("that it votes", m.granted, s.traced(VOTE))


def _stands(s: BrokerStep, r: Replica) -> bool:
    """Return whether a node stands for election: it may vote, and votes for itself."""
    quorum = s.core.quorums[r.partition]
    return quorum.is_voter and quorum.voted_for == s.node


_STATED: Final[dict[type, Callable[[BrokerStep, Replica, Any], tuple[object, object]]]] = {
    BeginQuorumEpoch: lambda s, r, m: (("leader", m.term), (r.role, r.leader_epoch)),
    EpochEndRequest: lambda s, r, m: (
        (m.epoch, m.leader_epoch),
        (r.fetching.asking, r.leader_epoch),
    ),
    FetchRequest: lambda s, r, m: (
        (m.offset, m.last_epoch, m.leader_epoch, m.broker_epoch, m.observer),
        (r.leo, last_epoch(r), r.leader_epoch, s.core.ctx.broker_epoch, r.observer),
    ),
    ReplicaLogInfo: lambda s, r, m: (
        (m.broker_epoch, m.last_epoch, m.end_offset, True),
        # The log of a follower cannot grow in this partition epoch.
        (
            *(s.core.ctx.broker_epoch, r.log.last_epoch, r.leo),
            r.role != "leader" and r.partition_epoch >= m.partition_epoch,
        ),
    ),
    ReportLeader: lambda s, r, m: (
        (m.leader, m.leader_epoch, m.partition_epoch),
        (r.leader, r.leader_epoch, r.partition_epoch),
    ),
    VoteRequest: lambda s, r, m: (
        (m.term, m.last_epoch, m.last_offset, True),
        (r.leader_epoch + m.pre, r.log.last_epoch, r.leo, m.pre or _stands(s, r)),
    ),
}
"""The fields of a message that state what its sender has, and what that is."""


def stated(s: BrokerStep, r: Replica, m: Any, body: bytes) -> Iterable[str]:
    """Check the fields that state log end, epochs, leader, process, and vote of the sender."""
    said, has = _STATED[type(m)](s, r, m)
    return () if said == has else _differs(f"in a {m.__struct_config__.tag}", said, has)


def alter_partition(s: BrokerStep, r: Replica, m: AlterPartition, body: bytes) -> Iterator[str]:
    """Check the proposal of an ISR: its epochs; and, when it is made, its members ("Maximal
    ISR")."""
    ctx, b = s.core.ctx, s.before
    said = m.broker_epoch, m.leader_epoch, m.partition_epoch
    has = ctx.broker_epoch, r.leader_epoch, r.partition_epoch
    yield from _differs("broker epoch, leader epoch, partition epoch", said, has)
    if not s.traced_of(r, PROPOSED):
        return  # It is sent again, as it was made.
    if b is not None and b.pending is not None and b.pending.request is not m:
        yield "proposed an ISR while another proposal was not answered"
    names = [name for name, _ in m.isr]
    for name, epoch in m.isr:
        peer = r.peers.get(name)
        if name in r.isr or name == s.node:
            continue
        late_us = ctx.now_us - peer.last_caught_up_us if peer is not None else ctx.lag_us + 1
        hw = r.hw if b is None else min(b.hw, r.hw)
        if (
            peer is None
            or late_us > ctx.lag_us
            or peer.leo < max(hw, r.leso)
            or name not in r.replicas
            or epoch != ctx.image.broker_epoch(name)
            or not ctx.image.is_active(name)
        ):
            yield f"proposed {name} for the ISR, against the rules of expansion"
    for name in r.isr:
        peer = r.peers.get(name)
        if name in names:
            continue
        caught_up_us = r.led_since_us if peer is None else peer.last_caught_up_us
        if name == s.node or ctx.now_us - caught_up_us <= ctx.lag_us:
            yield f"proposed an ISR without {name}, which does not lag"


RULES: Final[dict[type, Rule]] = {
    **dict.fromkeys(_STATED, stated),
    AlterPartition: alter_partition,
    AppendEntries: append_entries,
    EpochEndResponse: epoch_end_response,
    FetchResponse: fetch_response,
    VoteResponse: vote_response,
}


# -- state at the end of each step


def high_watermark(r: Replica) -> int | None:
    """Return the offset up to which a leader may count records as committed; None if it may not
    move ("High watermark"; Raft, section 5.4.2)."""
    p = r.protocol
    if p.commit is _ISR and len(r.isr) < r.min_isr and (p.elr or p.below_min_isr is _WAIT):
        return None
    ends = {name: peer.leo for name, peer in r.peers.items()}
    ends[r.leader] = r.leo
    if p.commit is _ISR:
        counted = [ends.get(name, -1) for name in r.maximal_isr]
        return None if -1 in counted else min(counted, default=None)
    least = len(r.replicas) + (not p.half_is_enough)
    known = [ends.get(name, 0) for name in r.replicas]
    end = max((e for e in known if 2 * sum(other >= e for other in known) >= least), default=0)
    return min(end, r.leo) if end > r.leso or p.counts_old_terms else None


# -- "Produce", "Idempotent producers"

_Key = tuple[str, str, str, int]
"""Node, partition, client and number of a request."""


class ProduceRules:
    """A memory of where the batch of each unanswered request was written."""

    def __init__(self) -> None:
        self._written: dict[_Key, set[tuple[int, int]]] = {}

    def request(self, s: BrokerStep, r: Replica, b: Before) -> Iterator[str]:
        """Yield what is wrong with the answer to a request, and with what was appended."""
        m = s.message
        if not b.serving or r.partition == GROUPS_PARTITION:
            return
        said = next(s.sent(ProduceResponse, s.source), None)
        if b.role != "leader" or r.role != "leader":
            if b.role == r.role and m.acks and (said is None or said.error is not Error.NOT_LEADER):
                yield f"answered a batch with {said and (said.error or 'no error')}, as no leader"
            return
        try:
            batch = batches.view(s.body)
        except WireError:  # no link and no client changes a byte
            yield "refused a whole batch as damaged"
            return
        if batch.control or len(r.acks) >= 10_000:
            return
        error, kept = _judged(s, r, m, batch, b.known)
        appended = r.leo - b.leo
        if appended != (0 if error or kept else batch.count):
            yield f"appended {appended} records of a batch that should be " + (
                f"refused: {error}" if error else f"known at {kept}" if kept else "appended"
            )
            return
        if error and m.acks and (said is None or said.error is not error):
            yield f"answered a batch with {said and (said.error or 'no error')}, not {error}"
        if not error or error is Error.DUPLICATE_SEQUENCE:
            where = kept or ((b.leo, r.leo) if not error else (-1, -1))
            key = (s.node, r.partition, s.source, m.corr)
            self._written.setdefault(key, set()).add(where)

    def answer(self, s: BrokerStep, to: str, m: ProduceResponse) -> Iterator[str]:
        """Yield what is wrong with an answer to a producer."""
        where = self._written.get((s.node, m.partition, to, m.corr), set())
        r = replica_of(s.core, m.partition)
        if m.error:
            # Who does not know the partition refuses a second copy, and knows of no first one.
            if r is not None and where and not m.appended and not _refuses(s, to, m):
                yield f"denied that it appended the batch, with {m.error}"
            return
        if r is not None and not any(base == m.base_offset for base, _ in where):
            yield f"acknowledged a batch at {m.base_offset}, and has it at {sorted(where)}"


def _refuses(s: BrokerStep, to: str, m: ProduceResponse) -> bool:
    """Return whether an answer is to a request of this step that appended nothing: a second copy of
    it may be refused when the first was not."""
    asked = type(s.message) is ProduceRequest and (s.source, s.message.corr) == (to, m.corr)
    return asked and s.r is not None and s.before is not None and s.r.leo == s.before.leo


def _judged(
    s: BrokerStep, r: Replica, m: ProduceRequest, batch: BatchView, known: Any
) -> tuple[Error, tuple[int, int] | None]:
    """Return the error of the answer; or where the batch is, if the log has it already."""
    waits = r.protocol.commit is Commit.ISR and m.acks == -1
    if waits and r.protocol.below_min_isr is BelowMinIsr.REFUSE and len(r.isr) < r.min_isr:
        return Error.NOT_ENOUGH_REPLICAS, None
    mine = batch.produced
    if mine is None:
        return Error.NONE, None
    if not known:
        return (Error.UNKNOWN_PRODUCER if mine.sequence else Error.NONE), None
    last = known[-1]
    if mine.epoch < last.epoch:
        return Error.FENCED_PRODUCER_EPOCH, None
    if mine.epoch > last.epoch:
        return (Error.OUT_OF_ORDER_SEQUENCE if mine.sequence else Error.NONE), None
    for kept in reversed(known):
        if kept.sequence == mine.sequence and kept.end - kept.base == batch.count:
            return Error.NONE, (kept.base, kept.end)
    after = last.sequence + last.end - last.base
    if mine.sequence == after:
        return Error.NONE, None
    gap = mine.sequence > after
    return (Error.OUT_OF_ORDER_SEQUENCE if gap else Error.DUPLICATE_SEQUENCE), None
