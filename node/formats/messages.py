"""Every message between brokers, voters and clients, as frozen values.

A message is a typed header and, for data, a body of raw bytes (`body`, never part of the header).
The body of a fetch response begins with 16 bytes, leader epoch and HW big-endian (Liftbridge's
replication protocol), followed by whole batches. Names follow Kafka's; see docs/protocols.md.
`corr` is a correlation id: it serves clients and tracing, no replication rule reads it. Every field
has a type of `node.formats.wire_bounds`, which a decoder enforces."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, get_args

import msgspec

from node.formats.trace import GROUPS_PARTITION
from node.formats.wire_bounds import (
    DEFAULT_FETCH_BYTES,
    MAX_GROUP_PARTITIONS,
    MAX_NODES,
    MAX_PARTITIONS,
    Acks,
    BrokerName,
    Copies,
    Correlation,
    Epoch,
    FetchBytes,
    GroupPartitions,
    Incarnation,
    LookupVersion,
    NodeName,
    Nodes,
    Offset,
    PartitionCount,
    PartitionName,
    Position,
    PrefixHash,
    Sentence,
    Version,
    Wait,
)


class Error(StrEnum):
    """The reason for which a request was refused; NONE if it was not."""

    NONE = ""
    NOT_LEADER = "not-leader"
    FENCED_LEADER_EPOCH = "fenced-leader-epoch"
    UNKNOWN_LEADER_EPOCH = "unknown-leader-epoch"
    UNKNOWN_PARTITION = "unknown-partition"
    OFFSET_OUT_OF_RANGE = "offset-out-of-range"
    NOT_ENOUGH_REPLICAS = "not-enough-replicas"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = "not-enough-replicas-after-append"
    LEADERSHIP_LOST = "leadership-lost"
    REQUEST_TIMED_OUT = "request-timed-out"
    CORRUPT_BATCH = "corrupt-batch"
    STALE_BROKER_EPOCH = "stale-broker-epoch"
    NOT_CONTROLLER = "not-controller"
    INVALID_UPDATE_VERSION = "invalid-update-version"
    INVALID_REQUEST = "invalid-request"
    INELIGIBLE_REPLICA = "ineligible-replica"
    DUPLICATE_REGISTRATION = "duplicate-registration"
    OVERLOADED = "overloaded"
    OUT_OF_ORDER_SEQUENCE = "out-of-order-sequence"
    DUPLICATE_SEQUENCE = "duplicate-sequence"
    UNKNOWN_PRODUCER = "unknown-producer"
    FENCED_PRODUCER_EPOCH = "fenced-producer-epoch"
    LOADING = "loading"
    UNKNOWN_MEMBER = "unknown-member"
    FENCED_MEMBER_EPOCH = "fenced-member-epoch"


CONSUMER: Final = ""
"""`replica` of a fetch request that comes from a consumer, not from a follower."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """The base of all messages."""

    corr: Correlation = 0


class FetchRequest(Message, frozen=True, kw_only=True, tag="fetch"):
    """A request for records from `offset` on; the sender's log has all records below `offset`.
    `leader_epoch` is the epoch the sender believes current (-1: a consumer that does not know),
    `last_epoch` that of the sender's last record (-1: empty log). The leader does not count the log
    of an `observer`, even if it is a voter. See docs/protocols.md."""

    partition: PartitionName
    replica: NodeName = CONSUMER
    broker_epoch: Offset = -1
    leader_epoch: Epoch = -1
    offset: Position = 0
    last_epoch: Epoch = -1
    max_wait_ms: Wait = 0
    max_bytes: FetchBytes = DEFAULT_FETCH_BYTES
    observer: bool = False


class FetchResponse(Message, frozen=True, kw_only=True, tag="fetch-response"):
    """The answer to a fetch; the body has leader epoch, HW and batches (see `node.formats.wire`).

    `offset`, `last_epoch` and `request_epoch` echo the request. `diverging` is (epoch, end offset)
    if the follower's log differs from the leader's: then there are no batches and HW must be
    ignored. After OFFSET_OUT_OF_RANGE a follower goes on from `log_end`; one below `log_start`
    starts over there, and `before_start` is (epoch, prefix hash) of the last deleted record.
    `leader` is a hint."""

    partition: PartitionName
    error: Error = Error.NONE
    offset: Position = 0
    last_epoch: Epoch = -1
    request_epoch: Epoch = -1
    diverging: tuple[Epoch, Position] | None = None
    log_start: Position = 0
    before_start: tuple[Epoch, PrefixHash] | None = None
    log_end: Offset = -1
    leader: NodeName = ""


class EpochEndRequest(Message, frozen=True, kw_only=True, tag="offset-for-leader-epoch"):
    """A question to a leader: where does `epoch` end in your log? (OffsetForLeaderEpoch, `version`
    0 as in KIP-101, 1 as in KIP-279.) `leader_epoch` is the epoch the sender believes current. With
    version HW_ONLY it asks for the leader's high watermark."""

    partition: PartitionName
    replica: NodeName
    epoch: Epoch
    leader_epoch: Epoch = -1
    version: LookupVersion = 1


class EpochEndResponse(Message, frozen=True, kw_only=True, tag="offset-for-leader-epoch-response"):
    """The `end_offset` (exclusive) of `epoch` in the leader's log; UNDEFINED if the leader does not
    know it. `asked` and `request_epoch` echo the request. Answers of version 0 have no `epoch`."""

    partition: PartitionName
    asked: Epoch
    error: Error = Error.NONE
    request_epoch: Epoch = -1
    epoch: Epoch = -1
    end_offset: Offset = -1
    version: LookupVersion = 1
    leader: NodeName = ""


UNDEFINED: Final = -1
"""End offset of an epoch the leader knows nothing of."""

HW_ONLY: Final = -1
"""Version of the question whose answer is the leader's high watermark."""


class AppendEntries(Message, frozen=True, kw_only=True, tag="append-entries"):
    """Records of a leader for a follower, from `offset` on (in the body; none in a heartbeat).
    `last_epoch` is that of the record before `offset` (-1: there never was one), `hw` the leader's
    high watermark. If the follower lacks records that are deleted, `before_start` is as in
    `FetchResponse`."""

    partition: PartitionName
    leader_epoch: Epoch
    offset: Position
    last_epoch: Epoch
    hw: Position
    log_start: Position = 0
    before_start: tuple[Epoch, PrefixHash] | None = None


class AppendResponse(Message, frozen=True, kw_only=True, tag="append-entries-response"):
    """The answer of a follower in `leader_epoch`; `request_epoch` echoes the request. If its log
    `matched`, it is the leader's below `end`. Otherwise it may be that below `end`, before which
    its record has `epoch`. An `observer` is not counted."""

    partition: PartitionName
    leader_epoch: Epoch
    request_epoch: Epoch
    matched: bool
    epoch: Epoch = -1
    end: Position = 0
    observer: bool = False


class PartitionNotification(Message, frozen=True, kw_only=True, tag="partition-notification"):
    """A notice to a sleeping follower (idle wait) that its leader has new records."""

    partition: PartitionName


class ReportLeader(Message, frozen=True, kw_only=True, tag="report-leader"):
    """A report to the controller that `replica` has had no valid answer from `leader` for the
    leader timeout. It is ignored if it names an old leader epoch or partition epoch, and never
    answered."""

    partition: PartitionName
    replica: NodeName
    leader: NodeName
    leader_epoch: Epoch
    partition_epoch: Version


class ProduceRequest(Message, frozen=True, kw_only=True, tag="produce"):
    """A request to append the one batch in the body. `acks`: 0 no answer; 1 an answer when the
    leader's log has the batch; -1 when all of the ISR have it."""

    partition: PartitionName
    acks: Acks = -1
    timeout_ms: Wait = 3000


class ProduceResponse(Message, frozen=True, kw_only=True, tag="produce-response"):
    """The answer to a produce request. After an `error`, `appended` False means that nothing was
    written, True that the outcome is unknown."""

    partition: PartitionName
    error: Error = Error.NONE
    appended: bool = False
    base_offset: Offset = -1
    leader_epoch: Epoch = -1
    leader: NodeName = ""


class MetadataRequest(Message, frozen=True, kw_only=True, tag="metadata"):
    """A question which node leads each partition."""


class MetadataResponse(Message, frozen=True, kw_only=True, tag="metadata-response"):
    """The answering broker's (possibly old) view: partition -> (leader or "", leader epoch)."""

    leaders: Annotated[
        dict[PartitionName, tuple[NodeName, Epoch]], msgspec.Meta(max_length=MAX_PARTITIONS)
    ] = {}


class RegisterBroker(Message, frozen=True, kw_only=True, tag="register"):
    """A message to the controller that a process of `broker` started. `intact_since` is the
    incarnation since which its disk has lost no write: a restart after an unanswered registration
    so does not look like a loss of data."""

    broker: BrokerName
    incarnation: Incarnation
    intact_since: Incarnation


class RegisterBrokerResponse(Message, frozen=True, kw_only=True, tag="register-response"):
    """The controller's answer to a new process: `broker_epoch` is the metadata offset of its
    registration record, `leader` a hint whom to ask instead."""

    error: Error = Error.NONE
    incarnation: Incarnation = -1
    broker_epoch: Offset = -1
    leader: NodeName = ""


class Heartbeat(Message, frozen=True, kw_only=True, tag="heartbeat"):
    """The heartbeat of a broker; `metadata_offset` is the offset up to which it has applied the
    metadata. `want_shutdown`: the broker asks to lose its leaderships and to be allowed to stop.
    `damaged` are the partitions whose logs are damaged on its disk, so that the controller must not
    count on them."""

    broker: BrokerName
    broker_epoch: Offset
    metadata_offset: Position = 0
    want_shutdown: bool = False
    damaged: Annotated[tuple[PartitionName, ...], msgspec.Meta(max_length=MAX_PARTITIONS)] = ()


class HeartbeatResponse(Message, frozen=True, kw_only=True, tag="heartbeat-response"):
    """The broker's state at the controller: whether it is fenced, and whether it may stop
    (`should_shutdown`). `leader` is a hint whom to ask instead."""

    error: Error = Error.NONE
    broker_epoch: Offset = -1
    fenced: bool = True
    should_shutdown: bool = False
    leader: NodeName = ""


class AlterPartition(Message, frozen=True, kw_only=True, tag="alter-partition"):
    """A leader's proposal of an ISR. Each new member comes with the broker epoch of its last fetch,
    existing members with -1."""

    partition: PartitionName
    broker: BrokerName
    broker_epoch: Offset
    leader_epoch: Epoch
    partition_epoch: Version
    isr: Annotated[tuple[tuple[NodeName, Offset], ...], msgspec.Meta(max_length=MAX_NODES)]


class AlterPartitionResponse(Message, frozen=True, kw_only=True, tag="alter-partition-response"):
    """The partition's state after a proposal, with the `error` if it was refused. `request_epoch`
    echoes the partition epoch of the request."""

    partition: PartitionName
    error: Error = Error.NONE
    request_epoch: Version = -1
    isr: Nodes = ()
    leader: NodeName = ""
    leader_epoch: Epoch = -1
    partition_epoch: Version = -1


class VoteRequest(Message, frozen=True, kw_only=True, tag="vote"):
    """A candidate's request for a vote in `term`; its log ends at (`last_epoch`, `last_offset`).
    `pre`: a pre-vote, which asks whether the vote would be granted."""

    partition: PartitionName
    term: Epoch
    last_epoch: Epoch
    last_offset: Offset
    pre: bool = False


class VoteResponse(Message, frozen=True, kw_only=True, tag="vote-response"):
    """The answer to a vote request. `term` is the responder's own; `request_term` echoes the
    request."""

    partition: PartitionName
    term: Epoch
    request_term: Epoch
    granted: bool
    pre: bool = False


class BeginQuorumEpoch(Message, frozen=True, kw_only=True, tag="begin-epoch"):
    """A leader's message to the voters that it was elected in `term`: they are to fetch from it."""

    partition: PartitionName
    term: Epoch


class CreateTopic(Message, frozen=True, kw_only=True, tag="create-topic"):
    """A command to make the partitions topic-0, topic-1 ... of a topic, with replicas spread over
    the active brokers; with `groups` also the partition of the groups that consume it."""

    topic: PartitionName
    partitions: PartitionCount
    replication_factor: Copies
    min_isr: Copies
    groups: bool = False


class ElectLeader(Message, frozen=True, kw_only=True, tag="elect-leader"):
    """A command to elect the preferred replica (the first) or, if `unclean` and no replica leads,
    any active one. With `first` that replica becomes the preferred one before. Kafka:
    ElectLeaders."""

    partition: PartitionName
    unclean: bool = False
    first: NodeName = ""


class ReassignReplicas(Message, frozen=True, kw_only=True, tag="reassign"):
    """A command to move a partition to `replicas`, in this order; with none, to cancel the
    reassignment under way. It is answered when the reassignment has begun, not when it is complete.
    KIP-455."""

    partition: PartitionName
    replicas: Nodes = ()


class SetMinIsr(Message, frozen=True, kw_only=True, tag="set-min-isr"):
    """A command to change min.insync.replicas of all partitions of a topic."""

    topic: PartitionName
    min_isr: Copies


class AdminResponse(Message, frozen=True, kw_only=True, tag="admin-response"):
    """The answer to an admin command. `detail` says why it was refused, or why nothing had to be
    done (a command may be sent again if its answer was lost). `leader` is a hint whom to ask
    instead."""

    error: Error = Error.NONE
    detail: Sentence = ""
    leader: NodeName = ""


class ReplicaLogInfoRequest(Message, frozen=True, kw_only=True, tag="log-info"):
    """A question to a member of the last-known ELR how long its log is (KIP-966,
    GetReplicaLogInfo). It answers when it has applied `partition_epoch`, in which no replica
    leads."""

    partition: PartitionName
    partition_epoch: Version


class ReplicaLogInfo(Message, frozen=True, kw_only=True, tag="log-info-response"):
    """The answer of a replica: its log's last leader epoch (-1 if empty) and its end offset.
    `partition_epoch` echoes the question."""

    partition: PartitionName
    partition_epoch: Version
    broker_epoch: Offset
    last_epoch: Epoch
    end_offset: Offset


class GroupHeartbeat(Message, frozen=True, kw_only=True, tag="group-heartbeat"):
    """A report of a member to the coordinator: it is in `epoch` and has the partitions `owned`, of
    those to which it is `subscribed`. With epoch 0 it joins, and has none; with -1 it leaves.
    `group_epoch` is that of the last answer: what it lacks is given up for that target only."""

    partition: PartitionName = GROUPS_PARTITION
    group: PartitionName
    member: NodeName
    epoch: Epoch = 0
    group_epoch: Epoch = -1
    owned: GroupPartitions = ()
    subscribed: GroupPartitions = ()


class OffsetCommit(Message, frozen=True, kw_only=True, tag="offset-commit"):
    """A request of a member in `epoch` to record positions of its group in partitions."""

    partition: PartitionName = GROUPS_PARTITION
    group: PartitionName
    member: NodeName
    epoch: Epoch
    offsets: Annotated[dict[PartitionName, Position], msgspec.Meta(max_length=MAX_GROUP_PARTITIONS)]


class OffsetFetch(Message, frozen=True, kw_only=True, tag="offset-fetch"):
    """A question of a member in `epoch` for the positions of its group in partitions it owns."""

    partition: PartitionName = GROUPS_PARTITION
    group: PartitionName
    member: NodeName
    epoch: Epoch
    partitions: GroupPartitions


class GroupResponse(Message, frozen=True, kw_only=True, tag="group-response"):
    """The answer of the coordinator: the epochs of member and group, the partitions that the member
    may own now, or positions (-1: none). After an `error`, `appended` is as in `ProduceResponse`;
    `leader` is a hint whom to ask instead."""

    partition: PartitionName = GROUPS_PARTITION
    error: Error = Error.NONE
    appended: bool = False
    epoch: Epoch = -1
    group_epoch: Epoch = -1
    assigned: GroupPartitions = ()
    offsets: Annotated[
        dict[PartitionName, Offset], msgspec.Meta(max_length=MAX_GROUP_PARTITIONS)
    ] = {}
    leader: NodeName = ""


GroupRequest = GroupHeartbeat | OffsetCommit | OffsetFetch
"""Everything that only the coordinator of groups can decide."""

AdminRequest = CreateTopic | ElectLeader | ReassignReplicas | SetMinIsr
"""Commands to the controller from outside."""

ControllerRequest = RegisterBroker | Heartbeat | AlterPartition | AdminRequest | ReplicaLogInfo
"""Everything that only the active controller can act on."""

AnyMessage = (
    ControllerRequest
    | FetchRequest
    | FetchResponse
    | EpochEndRequest
    | EpochEndResponse
    | AppendEntries
    | AppendResponse
    | PartitionNotification
    | ReportLeader
    | ProduceRequest
    | ProduceResponse
    | MetadataRequest
    | MetadataResponse
    | RegisterBrokerResponse
    | HeartbeatResponse
    | AlterPartitionResponse
    | VoteRequest
    | VoteResponse
    | BeginQuorumEpoch
    | AdminResponse
    | ReplicaLogInfoRequest
    | GroupRequest
    | GroupResponse
)

_IN_BODY: Final = {"fetch-response": ("hw", "leader_epoch")}
_FORMS: Final = {str(form.__struct_config__.tag): form for form in get_args(AnyMessage)}
MESSAGE_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    kind: tuple(sorted((*form.__struct_encode_fields__, *_IN_BODY.get(kind, ()))))
    for kind, form in sorted(_FORMS.items())
}
"""Header fields of each kind of message, without `kind` and `body_bytes`: for rules about single
messages. Those of a fetch response include what opens its body (see `node.formats.wire.peek`)."""

MESSAGE_KINDS: Final = tuple(MESSAGE_FIELDS)
"""Kinds of messages on the wire, for faults that affect only some of them."""
