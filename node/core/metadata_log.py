"""The metadata partition as records: folded into an image, and told in the trace."""

from __future__ import annotations

from node.core import batch as batches
from node.core.context import Context
from node.core.image import BrokerRecord, Image, PartitionRecord, Record, decode_records
from node.core.log import Log
from node.formats.trace import BROKER, PARTITION

_READ_BYTES = 1 << 20


def fold(log: Log, image: Image, start: int, end: int) -> list[Record]:
    """Apply the records of whole batches from `start` to `end` to `image`; returns them."""
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


def trace_committed(ctx: Context, record: Record) -> None:
    """What the controller tells about a change that has committed."""
    if isinstance(record, BrokerRecord):
        state = "fenced" if record.fenced else "stopping" if record.stopping else "unfenced"
        ctx.trace(BROKER, broker=record.broker, broker_epoch=record.broker_epoch, state=state)
    elif isinstance(record, PartitionRecord):
        ctx.trace(
            PARTITION,
            record.partition,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            isr=list(record.isr),
            elr=list(record.elr),
            last_known_elr=list(record.last_known_elr),
            replicas=list(record.replicas),
            unclean=record.unclean,
            adding=list(record.adding),
            removing=list(record.removing),
            min_isr=record.min_isr,
        )
