"""A replication protocol is data: one rule chosen at each decision point (docs/protocols.md).

There is no subclass per protocol, and no module compares a protocol's name: the core reads these
fields. `expected` says which properties each protocol keeps, and `citation` from which source it
is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Literal

from node.formats.errors import UsageError, unknown_name


class Truncation(Enum):
    """The way in which a follower finds the point where its log leaves the leader's."""

    NONE = "no truncation: records are appended by their offset (unsafe)"
    OWN_HW = "cut to the own high watermark at every transition to follower"
    LEADER_HW = "ask the leader for its high watermark and cut to it (the high-water mark pattern)"
    EPOCH_END_V0 = "ask the leader where the own last epoch ends; it answers an offset (KIP-101)"
    EPOCH_END_V1 = "as before, it answers an epoch too, in several rounds (KIP-279)"
    EPOCH_OFFSET = "as v0, but the leader always knows: the first epoch above, or its log end"
    EPOCH_END_V1_LOWEST = "as before; below the first epoch, its start (KAFKA-7415)"
    ON_FETCH = "every fetch carries the last epoch, the answer the diverging one (KIP-595)"
    ON_APPEND = "every append names the record before it; a conflicting entry cuts the log (Raft)"


class Commit(Enum):
    """The condition under which the high watermark may pass a record."""

    ISR = "all of the maximal ISR have it, and the committed ISR is at least MinISR (KIP-966)"
    MAJORITY = "a majority of the voters has it, or has a later one of the leader's own epoch"


class LeaderBy(Enum):
    """The authority that decides which replica leads."""

    CONTROLLER = "the controller, from the ISR, then the ELR"
    VOTES = "a majority of the voters"


class RestartRule(Enum):
    """The meaning of a new incarnation of a broker for the controller."""

    AFTER_FENCING = "registers once the old incarnation is fenced; unclean ones leave ISR and ELR"
    AT_ONCE = "registers at once; ISR and leader stay as they are"


class Detection(Enum):
    """The way in which the controller learns that a leader, or an in-sync replica, has failed."""

    HEARTBEATS = "a broker that is silent for the session time leaves every ISR and leadership"
    LEADER_REPORTS = "followers report their leader, a majority of the ISR's deposes it"


class Waiting(Enum):
    """The action of a follower at the end of its leader's log."""

    LONG_POLL = "its fetch waits at the leader until there is data, or the wait is over"
    IDLE_WAIT = "it is answered at once and sleeps, until the leader notifies it of new data"


class BelowMinIsr(Enum):
    """The answer to a produce request with acks=all while the ISR is smaller than MinISR."""

    REFUSE = "it is refused, and the producers that wait get an error with an unknown outcome"
    WAIT = "it is appended and not answered; nothing commits before the ISR has grown again"


Expected = Literal["holds", "violable"]

# The checker's names of what a protocol can break, in its order. Written out, since a node imports
# nothing of the checker; a test compares the two.
PROPERTIES: Final = (
    "no-lost-acknowledged-write",
    "committed-prefix-agreement",
    "offsets-and-order",
    "reads-below-hw",
    "log-and-metadata",
    "liveness",
)


@dataclass(frozen=True, slots=True)
class Protocol:
    """One way to replicate a log, as choices at decision points.

    `fences_by_epoch`: fetches of another leader epoch are refused, and answers to them ignored.
    `elr`: eligible leader replicas are kept while the ISR is below MinISR, and the high watermark
    stands still then; without it the last member never leaves the ISR (before KIP-966).
    `sends_hw_at_once`: a waiting follower's fetch is answered when the high watermark moves, not
    only with the next data or at the end of its wait. `pushes`: the leader sends records to its
    followers, which do not fetch. `random_first_leader`: a new partition is led
    by any of its replicas, not by the first. `epochs_are_offsets`: partition epoch and leader epoch
    are the metadata offset of the record that changed them; otherwise each change adds one.
    `clean_only`: `expected` is for synced writes (flush interval 0) and clean elections only. The
    controller does not detect a restart, so a leader that lost unflushed records leads on in its
    epoch (before KIP-966). And if the leader does not know a follower's epoch, the follower cuts to
    its own high watermark, which an unclean election may have made wrong (KIP-279).
    `hw_only_rises`: no replica's high watermark ever falls; a node that is asked to cut below its
    own stops, as in KRaft. `falls_back_after`: a follower whose question about an epoch's end
    failed, or was not answered, so many times cuts to its own high watermark; 0: it asks on.
    `epochs_in_records`: leaders stamp records with their leader epoch; the message format before
    KIP-101 has no place for one.

    If a majority commits, each field below is Raft's rule as False, and a literal reading of the
    high-water mark pattern as True. `counts_old_terms`: records of earlier terms commit by counting
    alone, so a leader does not begin its term with a record of its own. `half_is_enough`: the
    offset that half of an even number of voters have commits. `last_index_matches`: the leader
    counts a fetch's offset before it compares the follower's log with its own. `appends_by_index`:
    a follower skips records below its log end, without a comparison."""

    name: str
    citation: str
    truncation: Truncation
    commit: Commit
    leader_by: LeaderBy
    restart: RestartRule
    fences_by_epoch: bool
    expected: tuple[tuple[str, Expected], ...]
    detection: Detection = Detection.HEARTBEATS
    waiting: Waiting = Waiting.LONG_POLL
    below_min_isr: BelowMinIsr = BelowMinIsr.REFUSE
    elr: bool = False
    sends_hw_at_once: bool = False
    pushes: bool = False
    random_first_leader: bool = False
    epochs_are_offsets: bool = False
    clean_only: bool = False
    hw_only_rises: bool = False
    falls_back_after: int = 0
    epochs_in_records: bool = True
    counts_old_terms: bool = False
    half_is_enough: bool = False
    last_index_matches: bool = False
    appends_by_index: bool = False


_ALL_HOLD: Final[tuple[tuple[str, Expected], ...]] = tuple((p, "holds") for p in PROPERTIES)
_ONLY_READS_HOLD: Final[tuple[tuple[str, Expected], ...]] = tuple(
    (p, "holds" if p == "reads-below-hw" else "violable") for p in PROPERTIES
)

HIGH_WATERMARK: Final = Protocol(
    name="high-watermark",
    citation="Kafka before KIP-101: truncation to the own high watermark, no epoch fencing",
    truncation=Truncation.OWN_HW,
    commit=Commit.ISR,
    leader_by=LeaderBy.CONTROLLER,
    restart=RestartRule.AT_ONCE,
    fences_by_epoch=False,
    expected=_ONLY_READS_HOLD,
)
KIP_101: Final = Protocol(
    name="kip-101",
    citation="KIP-101: leader epochs; the answer to OffsetForLeaderEpoch v0 is an offset only",
    truncation=Truncation.EPOCH_END_V0,
    commit=Commit.ISR,
    leader_by=LeaderBy.CONTROLLER,
    restart=RestartRule.AT_ONCE,
    fences_by_epoch=True,
    # A follower whose log differs and ends where the leader's does is in sync; elected, it lacks
    # what was acknowledged. One whose log does not fit is stuck (KIP-279, scenario 1).
    expected=_ONLY_READS_HOLD,
    clean_only=True,
)
KIP_279: Final = Protocol(
    name="kip-279",
    citation="KIP-279 with KAFKA-7415 (2.0.1): OffsetForLeaderEpoch v1 answers the epoch too",
    truncation=Truncation.EPOCH_END_V1_LOWEST,
    commit=Commit.ISR,
    leader_by=LeaderBy.CONTROLLER,
    restart=RestartRule.AT_ONCE,
    fences_by_epoch=True,
    expected=_ALL_HOLD,
    clean_only=True,
)
KAFKA: Final = Protocol(
    name="kafka",
    citation="KIP-320, KIP-595 (truncate on fetch), KIP-497, KIP-903, KIP-966 (ISR, ELR)",
    truncation=Truncation.ON_FETCH,
    commit=Commit.ISR,
    leader_by=LeaderBy.CONTROLLER,
    restart=RestartRule.AFTER_FENCING,
    fences_by_epoch=True,
    elr=True,
    expected=_ALL_HOLD,
)
LIFTBRIDGE: Final = Protocol(
    name="liftbridge",
    citation="Liftbridge's replication protocol: leader reports, idle wait, LeaderEpoch offsets",
    truncation=Truncation.EPOCH_OFFSET,
    commit=Commit.ISR,
    leader_by=LeaderBy.CONTROLLER,
    restart=RestartRule.AT_ONCE,
    fences_by_epoch=True,
    detection=Detection.LEADER_REPORTS,
    waiting=Waiting.IDLE_WAIT,
    below_min_isr=BelowMinIsr.WAIT,
    random_first_leader=True,
    epochs_are_offsets=True,
    # Two weaknesses are documented behaviour, not defects of its code. The answer to a LeaderEpoch
    # offset request has no epoch: KIP-279's scenarios diverge or get stuck, as under kip-101. And
    # the controller never detects a restart: a leader that lost unflushed records (flush=async,
    # power loss) leads on in the same LeaderEpoch and writes others in their place, with equal
    # offset and epoch; and a follower that lost some may be elected. Acknowledged records are lost.
    expected=_ONLY_READS_HOLD,
)
QUORUM: Final = Protocol(
    name="quorum",
    citation="the high-water mark pattern with Raft's rules, by pull as in KIP-595",
    truncation=Truncation.ON_FETCH,
    commit=Commit.MAJORITY,
    leader_by=LeaderBy.VOTES,
    restart=RestartRule.AFTER_FENCING,
    fences_by_epoch=True,
    sends_hw_at_once=True,
    hw_only_rises=True,
    expected=_ALL_HOLD,
)
QUORUM_PUSH: Final = replace(
    QUORUM,
    name="quorum-push",
    citation="the high-water mark pattern with Raft's rules, by push: AppendEntries",
    truncation=Truncation.ON_APPEND,
    pushes=True,
)
QUORUM_NAIVE: Final = Protocol(
    name="quorum-naive",
    citation="the high-water mark pattern, literally: the log end counts, cuts go to the HW",
    truncation=Truncation.LEADER_HW,
    commit=Commit.MAJORITY,
    leader_by=LeaderBy.VOTES,
    restart=RestartRule.AFTER_FENCING,
    fences_by_epoch=True,
    sends_hw_at_once=True,
    counts_old_terms=True,
    half_is_enough=True,
    last_index_matches=True,
    appends_by_index=True,
    expected=_ONLY_READS_HOLD,
)

METADATA_PROTOCOL: Final = QUORUM
"""The metadata partition is always replicated by votes, under every protocol."""

_PROTOCOLS: Final = (
    *(HIGH_WATERMARK, KIP_101, KIP_279, KAFKA, LIFTBRIDGE),
    *(QUORUM, QUORUM_NAIVE, QUORUM_PUSH),
)
REGISTRY: Final = {p.name: p for p in _PROTOCOLS}
"""Protocols that data partitions can be run under."""


def protocol(name: str) -> Protocol:
    """Return the protocol of that name. Raises UsageError, which lists the known ones."""
    found = REGISTRY.get(name)
    if found is None:
        raise UsageError(unknown_name("protocol", name, REGISTRY))
    return found


def in_format(rules: Protocol, *, record_epochs: bool) -> Protocol:
    """Return the protocol as its brokers follow it in this message format: those that know leader
    epochs always write them."""
    old = not record_epochs and rules.truncation is Truncation.OWN_HW
    return replace(rules, epochs_in_records=False) if old else rules


_EPOCH_END: Final = frozenset(
    {Truncation.EPOCH_END_V0, Truncation.EPOCH_END_V1, Truncation.EPOCH_END_V1_LOWEST}
)


def are_compatible(one: Protocol, other: Protocol) -> bool:
    """Return whether brokers of both protocols may serve one partition: they differ at most in the
    version of OffsetForLeaderEpoch, which leader and follower agree on for each question
    (KIP-279). Or one of them knows no leader epochs yet, and the other is the next version."""
    if {one.name, other.name} == {HIGH_WATERMARK.name, KIP_101.name}:
        return True
    if not {one.truncation, other.truncation} <= _EPOCH_END:
        return one == other
    return one == replace(
        other,
        name=one.name,
        citation=one.citation,
        expected=one.expected,
        truncation=one.truncation,
    )
