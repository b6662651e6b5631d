"""The state of all groups: the fold of the records of the groups partition.

A record sets the value of a key, or removes it (None). `CoordinatorState.apply` is the only writer,
for a leader that decides and for one that replays its log, so the live state is that of the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from node.core import batch as batches
from node.core.log import Log
from node.formats.wire import NOT_A_HEADER
from node.formats.wire_bounds import Epoch, GroupPartitions, NodeName, Offset, PartitionName

GROUP: Final = "group"
MEMBER: Final = "member"
POSITION: Final = "position"
_READ_BYTES: Final = 1 << 20

Key = tuple[str, ...]
"""(GROUP, name), (MEMBER, name of the group, of the member) or (POSITION, group, partition)."""


class GroupTarget(msgspec.Struct, frozen=True, kw_only=True, tag="group", tag_field="is"):
    """The epoch of a group, which rises with each change of its members, and the partitions that
    each member shall own in it."""

    epoch: Epoch
    target: dict[NodeName, GroupPartitions] = {}


class MemberState(msgspec.Struct, frozen=True, kw_only=True, tag="member", tag_field="is"):
    """A member: the epoch that its last answer stated, and the one before; the partitions that it
    owns, with the epoch in which each was given to it. It must give up those that the target
    lacks."""

    epoch: Epoch
    previous: Epoch = -1
    owned: dict[PartitionName, Epoch] = {}
    subscribed: GroupPartitions = ()


class CommittedPosition(msgspec.Struct, frozen=True, kw_only=True, tag="position", tag_field="is"):
    """The position of a group in a partition, committed by a member in its epoch."""

    offset: Offset
    epoch: Epoch


Value = GroupTarget | MemberState | CommittedPosition | None


class StateRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record of the groups partition: the new value of a key, None to remove it."""

    key: Key
    value: Value


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[StateRecord])


def encode_batch(records: list[StateRecord]) -> bytes:
    """Return the control batch of the records of one decision, not yet stamped."""
    return batches.build(len(records), _encoder.encode(records), control=True)


def decode_payload(payload: bytes) -> list[StateRecord]:
    """Return the records of a control batch; none if it is a leader's own, which opens a term."""
    try:
        return _decoder.decode(payload)
    except NOT_A_HEADER:
        return []


class CoordinatorState:
    """The groups, members and positions by key."""

    def __init__(self) -> None:
        self.values: dict[Key, Any] = {}

    def apply(self, records: Iterable[StateRecord]) -> None:
        """Apply the records of one batch."""
        for record in records:
            if record.value is None:
                self.values.pop(record.key, None)
            else:
                self.values[record.key] = record.value

    def replay(self, log: Log, start: int, end: int) -> None:
        """Apply the records of `log` from offset `start` on and below `end`."""
        while start < end:
            found, after = log.read(start, max_bytes=_READ_BYTES, below=end)
            if not found:
                return
            for data in found:
                self.apply(decode_payload(batches.view(data).payload))
            start = after

    def group(self, name: str) -> GroupTarget:
        """Return the target of a group; that of epoch 0 if there is no such group."""
        found: GroupTarget = self.values.get((GROUP, name), GroupTarget(epoch=0))
        return found

    def members(self, group: str) -> dict[str, MemberState]:
        """Return the members of a group by name, in the order of their names."""
        mine = [key for key in self.values if key[0] == MEMBER and key[1] == group]
        return {key[2]: self.values[key] for key in sorted(mine)}

    def position(self, group: str, partition: str) -> int:
        """Return the position of a group in a partition, -1 if there is none."""
        found = self.values.get((POSITION, group, partition))
        return -1 if found is None else int(found.offset)


def plain(values: Mapping[Key, Any]) -> list[list[Any]]:
    """Return a state as pairs of key and value, in the order of the keys, as files have it."""
    return [[list(key), msgspec.to_builtins(values[key])] for key in sorted(values)]
