"""Admin commands at the controller: topics, elections, reassignments, MinISR.

The functions are pure: from the metadata image and a command they make the records to append, or an
error in one sentence. A command whose work is already done appends nothing and is no error, so that
it can be sent again when its answer was lost. See docs/protocols.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from node.core import election
from node.core.context import Jitter
from node.core.image import NO_LEADER, Image, PartitionRecord
from node.core.protocol import LeaderBy, Protocol
from node.formats.messages import AdminRequest, CreateTopic, Error, ReassignReplicas, SetMinIsr
from node.formats.trace import GROUPS_PARTITION
from node.formats.wire_bounds import MAX_PARTITIONS

_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of an admin command: the metadata records to append, or an error. `detail` says
    in a sentence why the command is refused; without an `error`, why nothing has to be done."""

    records: Sequence[PartitionRecord] = ()
    error: Error = Error.NONE
    detail: str = ""


def decide(
    image: Image, request: AdminRequest, protocol: Protocol, rules: election.Rules, jitter: Jitter
) -> Decision:
    """Return the records that a command leads to, or why it is refused. `jitter` draws the first
    leader of a new partition if the protocol takes any replica."""
    if isinstance(request, CreateTopic):
        return _create_topic(image, request, protocol, jitter)
    if protocol.leader_by is LeaderBy.VOTES:
        return _refused(
            f"under protocol {protocol.name} replicas elect their leader by votes: no command can "
            "change leaders, replicas or MinISR"
        )
    if isinstance(request, SetMinIsr):
        return _set_min_isr(image, request, rules)
    state = image.partitions.get(request.partition)
    if state is None:
        return Decision(
            error=Error.UNKNOWN_PARTITION, detail=f"there is no partition {request.partition}"
        )
    if isinstance(request, ReassignReplicas):
        return _reassign(image, state, request.replicas, rules)
    if request.unclean:
        return _elect_unclean(image, state, rules)
    return _elect_preferred(image, state, request.first, rules)


def _refused(why: str) -> Decision:
    return Decision(error=Error.INVALID_REQUEST, detail=why)


def _one(record: PartitionRecord | None, otherwise: str) -> Decision:
    return Decision(detail=otherwise) if record is None else Decision((record,))


def _elect_preferred(
    image: Image, state: PartitionRecord, put_first: str, rules: election.Rules
) -> Decision:
    first = put_first or state.replicas[0]
    if first not in state.replicas:
        return _refused(f"{first} is no replica of {state.partition}")
    if put_first and state.target:
        return _refused(
            f"a reassignment of {state.partition} is under way; order its replicas after that"
        )
    if state.leader == first:
        return Decision(detail=f"{first} leads {state.partition} already")
    if not image.is_active(first):
        return _refused(f"{first} cannot lead {state.partition}: it is down, fenced or stopping")
    if first not in state.isr:
        return _refused(f"{first} cannot lead {state.partition}: it is not in the ISR")
    return _one(election.preferred(state, first, image.is_active, rules), "")


def _elect_unclean(image: Image, state: PartitionRecord, rules: election.Rules) -> Decision:
    if state.leader != NO_LEADER:
        return Decision(detail=f"{state.leader} leads {state.partition}: no election is needed")
    if not image.active(state.replicas):
        return _refused(f"no replica of {state.partition} is active")
    return _one(election.unclean(state, image.is_active, rules), "")


def _reassign(
    image: Image, state: PartitionRecord, target: tuple[str, ...], rules: election.Rules
) -> Decision:
    if not target:
        why_not = election.why_not_cancelled(state, rules) if state.target else ""
        if why_not:
            return _refused(why_not)
        return _one(
            election.cancel_reassignment(state, image.is_active, rules),
            f"{state.partition} is not being moved",
        )
    if len(set(target)) != len(target):
        return _refused(f"name each replica once, not {' '.join(target)}")
    unknown = [name for name in target if name not in image.brokers]
    if unknown:
        return _refused(f"{' '.join(unknown)} never registered as a broker")
    return _one(
        election.reassign(state, target, image.is_active, rules),
        f"{state.partition} is on {' '.join(target)} already, or being moved there",
    )


def _set_min_isr(image: Image, request: SetMinIsr, rules: election.Rules) -> Decision:
    if request.min_isr < 1:
        return _refused(f"min_isr is {request.min_isr}, but must be at least 1")
    states = [p for name, p in image.partitions.items() if name.rpartition("-")[0] == request.topic]
    if not states:
        return Decision(error=Error.UNKNOWN_PARTITION, detail=f"there is no topic {request.topic}")
    changes = (
        election.min_isr_set(state, request.min_isr, image.is_active, rules) for state in states
    )
    records = [change for change in changes if change is not None]
    detail = "" if records else f"min_isr of {request.topic} is {request.min_isr} already"
    return Decision(records, detail=detail)


# -- topics ---------------------------------------------------------------------------------------


def _create_topic(
    image: Image, request: CreateTopic, protocol: Protocol, jitter: Jitter
) -> Decision:
    if request.topic + "-0" in image.partitions:
        return Decision(detail=f"topic {request.topic} is there already")
    brokers = sorted(image.active(image.brokers), key=lambda b: (len(b), b))
    groups = request.groups and GROUPS_PARTITION not in image.partitions
    room = MAX_PARTITIONS - len(image.partitions) - groups
    refusal = _wrong_with_topic(request, len(brokers), room)
    if refusal:
        return _refused(refusal)
    records = []
    names = [f"{request.topic}-{number}" for number in range(request.partitions)]
    for number, name in enumerate([*names, *[GROUPS_PARTITION] * groups]):
        replicas = tuple(
            brokers[(number + i) % len(brokers)] for i in range(request.replication_factor)
        )
        record = PartitionRecord(
            partition=name, replicas=replicas, isr=(), partition_epoch=1, min_isr=request.min_isr
        )
        if protocol.leader_by is LeaderBy.CONTROLLER:
            drawn = protocol.random_first_leader
            first = jitter.randint(0, len(replicas) - 1) if drawn else 0
            record = replace(record, isr=replicas, leader=replicas[first], leader_epoch=1)
        records.append(record)
    return Decision(records)


def _wrong_with_topic(request: CreateTopic, brokers: int, room: int) -> str:
    """Return why a topic cannot be created on this many `brokers`, with `room` for this many more
    partitions; "" if it can."""
    if _TOPIC_NAME.fullmatch(request.topic) is None or request.topic.startswith("__"):
        return "a topic's name has 1 to 200 letters, digits, '.', '_' or '-', and no '__' in front"
    if not 1 <= request.partitions <= 10_000 or request.min_isr < 1:
        return "a topic must have 1 to 10000 partitions and a min_isr of at least 1"
    if request.partitions > room:
        return f"a cluster has at most {MAX_PARTITIONS} partitions, there is room for {room}"
    if not 1 <= request.replication_factor <= brokers:
        return (
            f"replication factor {request.replication_factor} needs as many live brokers, "
            f"there are {brokers}"
        )
    return ""
