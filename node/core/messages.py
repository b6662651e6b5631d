"""Every message between brokers, voters and clients, as frozen values.

A message is a typed header and, for data, a body of raw bytes (`body`, never part of the header).
The body of a fetch response begins with 16 bytes, leader epoch and HW big-endian (Liftbridge's
replication protocol), followed by whole batches. Names follow Kafka's; see docs/protocols.md.
`corr` is a correlation id: it serves clients and tracing, no replication rule reads it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec


class Error(StrEnum):
    """Why a request was refused; NONE when it was not."""

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


CONSUMER: Final = ""
"""`replica` of a fetch request that comes from a consumer, not from a follower."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all messages."""

    corr: int = 0


class FetchRequest(Message, frozen=True, kw_only=True, tag="fetch"):
    """Requests records from `offset` on. Everything below `offset` is in the sender's log.

    `leader_epoch` is the epoch the sender believes current (-1: a consumer that does not know),
    `last_epoch` that of the sender's last record (-1: empty log). What an `observer` has counts for
    nothing, even if it is a voter. See docs/protocols.md.
    """

    partition: str
    replica: str = CONSUMER
    broker_epoch: int = -1
    leader_epoch: int = -1
    offset: int = 0
    last_epoch: int = -1
    max_wait_ms: int = 0
    max_bytes: int = 1 << 20
    observer: bool = False


class FetchResponse(Message, frozen=True, kw_only=True, tag="fetch-response"):
    """Answer to a fetch; the body carries leader epoch, HW and batches (see `node.formats.wire`).

    `offset`, `last_epoch` and `request_epoch` echo the request. `diverging` is (epoch, end offset)
    when the sender's log differs from the leader's: then there are no batches and HW must be
    ignored. `log_end` helps after OFFSET_OUT_OF_RANGE. `leader` is a hint.
    """

    partition: str
    error: Error = Error.NONE
    offset: int = 0
    last_epoch: int = -1
    request_epoch: int = -1
    diverging: tuple[int, int] | None = None
    log_start: int = 0
    log_end: int = -1
    leader: str = ""


class EpochEndRequest(Message, frozen=True, kw_only=True, tag="offset-for-leader-epoch"):
    """Asks where `epoch` ends in the leader's log: OffsetForLeaderEpoch, KIP-101 (`version` 0) and
    KIP-279 (1). `leader_epoch` is the epoch the sender believes current. With version HW_ONLY it
    asks for the leader's high watermark."""

    partition: str
    replica: str
    epoch: int
    leader_epoch: int = -1
    version: int = 1


class EpochEndResponse(Message, frozen=True, kw_only=True, tag="offset-for-leader-epoch-response"):
    """`end_offset` of `epoch`, exclusive; UNDEFINED when the leader does not know. `asked` and
    `request_epoch` echo the request. Version 0 answers have no `epoch` of their own."""

    partition: str
    asked: int
    error: Error = Error.NONE
    request_epoch: int = -1
    epoch: int = -1
    end_offset: int = -1
    version: int = 1
    leader: str = ""


UNDEFINED: Final = -1
"""End offset of an epoch the leader knows nothing of."""

HW_ONLY: Final = -1
"""Version of the question whose answer is the leader's high watermark."""


class PartitionNotification(Message, frozen=True, kw_only=True, tag="partition-notification"):
    """Notifies a follower that sleeps (idle wait) of new records."""

    partition: str


class ReportLeader(Message, frozen=True, kw_only=True, tag="report-leader"):
    """`replica` has had no valid answer from `leader` for the leader timeout. To the controller,
    which ignores a report of another leader epoch or partition epoch; never answered."""

    partition: str
    replica: str
    leader: str
    leader_epoch: int
    partition_epoch: int


class ProduceRequest(Message, frozen=True, kw_only=True, tag="produce"):
    """Append the one batch in the body. `acks`: 0 no answer, 1 leader's log, -1 all of the ISR."""

    partition: str
    acks: int = -1
    timeout_ms: int = 3000


class ProduceResponse(Message, frozen=True, kw_only=True, tag="produce-response"):
    """With an error, `appended` False: nothing was written; True: the outcome is unknown."""

    partition: str
    error: Error = Error.NONE
    appended: bool = False
    base_offset: int = -1
    leader_epoch: int = -1
    leader: str = ""


class MetadataRequest(Message, frozen=True, kw_only=True, tag="metadata"):
    """Asks which node leads each partition."""


class MetadataResponse(Message, frozen=True, kw_only=True, tag="metadata-response"):
    """The answering broker's (possibly old) view: partition -> (leader or "", leader epoch)."""

    leaders: dict[str, tuple[str, int]] = {}


class RegisterBroker(Message, frozen=True, kw_only=True, tag="register"):
    """A process of `broker` started. It has all writes since its incarnation `intact_since`. A
    restart after an unanswered registration therefore does not look like a loss of data."""

    broker: str
    incarnation: int
    intact_since: int


class RegisterBrokerResponse(Message, frozen=True, kw_only=True, tag="register-response"):
    """The broker epoch of this process: the metadata offset of its registration record."""

    error: Error = Error.NONE
    incarnation: int = -1
    broker_epoch: int = -1
    leader: str = ""


class Heartbeat(Message, frozen=True, kw_only=True, tag="heartbeat"):
    """Sent every heartbeat interval; `metadata_offset` is how far the sender has applied.
    `want_shutdown`: the sender asks to be rid of its leaderships, and to be allowed to stop. Its
    logs of the partitions `damaged` are not what it wrote: nobody may count on them."""

    broker: str
    broker_epoch: int
    metadata_offset: int = 0
    want_fence: bool = False
    want_shutdown: bool = False
    damaged: tuple[str, ...] = ()


class HeartbeatResponse(Message, frozen=True, kw_only=True, tag="heartbeat-response"):
    """The sender's state at the controller."""

    error: Error = Error.NONE
    broker_epoch: int = -1
    fenced: bool = True
    should_shutdown: bool = False
    leader: str = ""


class AlterPartition(Message, frozen=True, kw_only=True, tag="alter-partition"):
    """The leader proposes an ISR. Each member comes with the broker epoch of its last fetch;
    -1 for existing members."""

    partition: str
    broker: str
    broker_epoch: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[str, int], ...]


class AlterPartitionResponse(Message, frozen=True, kw_only=True, tag="alter-partition-response"):
    """The accepted state, or why not. `request_epoch` echoes the request's partition epoch."""

    partition: str
    error: Error = Error.NONE
    request_epoch: int = -1
    isr: tuple[str, ...] = ()
    leader: str = ""
    leader_epoch: int = -1
    partition_epoch: int = -1


class VoteRequest(Message, frozen=True, kw_only=True, tag="vote"):
    """Asks for a vote in `term`; the candidate's log ends at (`last_epoch`, `last_offset`).
    `pre`: a pre-vote, which asks whether the vote would be given."""

    partition: str
    term: int
    last_epoch: int
    last_offset: int
    pre: bool = False


class VoteResponse(Message, frozen=True, kw_only=True, tag="vote-response"):
    """`term` is the responder's own; `request_term` echoes the request."""

    partition: str
    term: int
    request_term: int
    granted: bool
    pre: bool = False


class BeginQuorumEpoch(Message, frozen=True, kw_only=True, tag="begin-epoch"):
    """The sender was elected in `term`; voters are to fetch from it."""

    partition: str
    term: int


class CreateTopic(Message, frozen=True, kw_only=True, tag="create-topic"):
    """Make partitions topic-0 .. of a topic; replicas are spread over the unfenced brokers."""

    topic: str
    partitions: int
    replication_factor: int
    min_isr: int


class ElectLeader(Message, frozen=True, kw_only=True, tag="elect-leader"):
    """Elects the preferred replica (the first); or, `unclean`, any active one where none leads.
    Kafka: ElectLeaders. With `first` that replica becomes the preferred one before."""

    partition: str
    unclean: bool = False
    first: str = ""


class ReassignReplicas(Message, frozen=True, kw_only=True, tag="reassign"):
    """Move a partition to `replicas`, in this order; none: cancel the move that is under way.

    Answered when the move has begun, not when it is complete. KIP-455.
    """

    partition: str
    replicas: tuple[str, ...] = ()


class SetMinIsr(Message, frozen=True, kw_only=True, tag="set-min-isr"):
    """Change min.insync.replicas of all partitions of a topic."""

    topic: str
    min_isr: int


class AdminResponse(Message, frozen=True, kw_only=True, tag="admin-response"):
    """Answer to an admin command. `detail` says why it was refused, or that nothing had to be
    done: a command may be asked again when its answer is lost."""

    error: Error = Error.NONE
    detail: str = ""
    leader: str = ""


class ReplicaLogInfoRequest(Message, frozen=True, kw_only=True, tag="log-info"):
    """Asks a last-known ELR member for the length of its log (KIP-966, GetReplicaLogInfo). Not
    answered before the receiver has applied `partition_epoch`, in which no replica leads."""

    partition: str
    partition_epoch: int


class ReplicaLogInfo(Message, frozen=True, kw_only=True, tag="log-info-response"):
    """The log's last leader epoch (-1 when empty) and its end offset; `partition_epoch` echoes."""

    partition: str
    partition_epoch: int
    broker_epoch: int
    last_epoch: int
    end_offset: int


AdminRequest = CreateTopic | ElectLeader | ReassignReplicas | SetMinIsr
"""Commands to the controller from outside."""

ControllerRequest = RegisterBroker | Heartbeat | AlterPartition | AdminRequest | ReplicaLogInfo
"""Everything that only the active controller can act on."""

AnyMessage = (
    FetchRequest
    | FetchResponse
    | EpochEndRequest
    | EpochEndResponse
    | PartitionNotification
    | ReportLeader
    | ProduceRequest
    | ProduceResponse
    | MetadataRequest
    | MetadataResponse
    | RegisterBroker
    | RegisterBrokerResponse
    | Heartbeat
    | HeartbeatResponse
    | AlterPartition
    | AlterPartitionResponse
    | VoteRequest
    | VoteResponse
    | BeginQuorumEpoch
    | CreateTopic
    | ElectLeader
    | ReassignReplicas
    | SetMinIsr
    | AdminResponse
    | ReplicaLogInfoRequest
    | ReplicaLogInfo
)
