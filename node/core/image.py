"""The cluster's metadata: the records of the metadata partition, applied to one image.

The records name leaders, epochs, ISR and replicas of partitions, never offsets of data records: the
controller knows no high watermark and no log end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from node.core import batch as batches
from node.core.log import Log
from node.formats.errors import WireError
from node.formats.wire import NOT_A_HEADER
from node.formats.wire_bounds import (
    MAX_EPOCH,
    BrokerName,
    Copies,
    Incarnation,
    NodeName,
    Nodes,
    Offset,
    StoredEpoch,
    StoredPartitionName,
    Version,
)

NO_LEADER: Final = ""


class BrokerRecord(msgspec.Struct, frozen=True, kw_only=True, tag="broker", tag_field="record"):
    """A broker as the controller sees it. `broker_epoch` is the metadata offset of the record that
    registered its present process; fencing keeps it, only a new registration replaces it."""

    broker: BrokerName
    broker_epoch: Offset
    incarnation: Incarnation
    fenced: bool = True
    stopping: bool = False


class PartitionRecord(
    msgspec.Struct, frozen=True, kw_only=True, tag="partition", tag_field="record"
):
    """The whole state of a partition after a change; `partition_epoch` rises with each one.

    `replicas` is ordered (the first is preferred as leader). Eligible leader replicas (`elr`) have
    every committed record although they left the ISR while it was below MinISR; `last_known_elr`
    are members that left the ELR because they may have lost data (KIP-966). While a reassignment is
    under way, `target` has the new replicas in order, `adding` those that were no replicas before
    it and `removing` those that will be none after it. `unclean`: the leader came from outside ISR
    and ELR, and has not proposed an ISR yet."""

    partition: StoredPartitionName
    replicas: Nodes
    isr: Nodes
    elr: Nodes = ()
    last_known_elr: Nodes = ()
    leader: NodeName = NO_LEADER
    leader_epoch: StoredEpoch = 0
    partition_epoch: Version = 0
    min_isr: Copies = 1
    unclean: bool = False
    target: Nodes = ()
    adding: Nodes = ()
    removing: Nodes = ()


class LeaderRecord(msgspec.Struct, frozen=True, kw_only=True, tag="leader", tag_field="record"):
    """The first record of every term of the metadata partition; records of older terms commit with
    it."""

    term: StoredEpoch
    leader: NodeName


Record = BrokerRecord | PartitionRecord | LeaderRecord

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Record])
_READ_BYTES: Final = 1 << 20


def encode_records(records: list[Record]) -> bytes:
    """Return the payload of a metadata batch."""
    return _encoder.encode(records)


def decode_records(payload: bytes) -> list[Record]:
    """Return the records of a metadata batch."""
    return _decoder.decode(payload)


def check_payload(payload: bytes) -> None:
    """Refuse the payload of a metadata batch that no replica could apply later. Raises
    WireError."""
    try:
        records = _decoder.decode(payload)
    except NOT_A_HEADER as error:
        raise WireError(f"metadata records not understood: {error}") from None
    for record in records:
        if isinstance(record, PartitionRecord) and record.leader_epoch > MAX_EPOCH:
            raise WireError(f"{record.partition}: leader epoch {record.leader_epoch} > {MAX_EPOCH}")


def epochs_from_offsets(records: list[Record], base_offset: int, image: Image) -> list[Record]:
    """Return the records with metadata offsets as epochs, for a protocol that wants this: partition
    epoch, and leader epoch if it is new, are the offset of the record itself (the first gets
    `base_offset`)."""
    made: list[Record] = []
    for offset, record in enumerate(records, base_offset):
        if isinstance(record, PartitionRecord):
            known = image.partitions.get(record.partition)
            same = known is not None and known.leader_epoch == record.leader_epoch
            record = replace(
                record, partition_epoch=offset, leader_epoch=record.leader_epoch if same else offset
            )
        made.append(record)
    return made


class Image:
    """The brokers and partitions of a cluster by name, in the order of the metadata log."""

    def __init__(self) -> None:
        self.brokers: dict[str, BrokerRecord] = {}
        self.partitions: dict[str, PartitionRecord] = {}

    def apply(self, record: Record) -> None:
        """Apply one record. Partition records carry whole states, so applying one twice does no
        harm."""
        if isinstance(record, BrokerRecord):
            self.brokers[record.broker] = record
        elif isinstance(record, PartitionRecord):
            known = self.partitions.get(record.partition)
            assert known is None or record.partition_epoch > known.partition_epoch, record
            self.partitions[record.partition] = record

    def is_active(self, broker: str) -> bool:
        """Return whether a broker may lead: registered, not fenced, not stopping."""
        known = self.brokers.get(broker)
        return known is not None and not known.fenced and not known.stopping

    def broker_epoch(self, broker: str) -> int:
        """Return the epoch of the broker's registered process, -1 if unknown."""
        known = self.brokers.get(broker)
        return -1 if known is None else known.broker_epoch

    def active(self, brokers: Iterable[str]) -> list[str]:
        """Return the active ones of `brokers`, in the order given."""
        return [b for b in brokers if self.is_active(b)]


def fold(log: Log, image: Image, start: int, end: int) -> list[Record]:
    """Apply the records of the batches of `log` from offset `start` to `end` to `image`; return
    them."""
    records: list[Record] = []
    while start < end:
        found, after = log.read(start, max_bytes=_READ_BYTES, below=end)
        assert found, (start, end)
        for data in found:
            records += decode_records(batches.view(data).payload)
        start = after
    for record in records:
        image.apply(record)
    return records
