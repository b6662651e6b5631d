"""What Spark's workers do with the facts of one group; free of imports of Spark itself."""

from __future__ import annotations

import pyarrow as pa

from checker.engine.judge import judge_group, not_splittable
from checker.engine.offset_ranges import WHOLE, downsampled, splittable
from checker.evidence.arrow_blob import SCHEMA, arrow_blobs, packed, unpacked
from checker.evidence.facts import Kind
from checker.evidence.group import group_of


def downsample(key: tuple[pa.Scalar, ...], facts: pa.Table) -> pa.Table:
    """The reads of one range of offsets, downsampled; what is whole goes on as it is."""
    run, partition, part = (word.as_py() for word in key)
    if part == WHOLE:
        return facts
    reads = unpacked(facts)[Kind.READ]
    return pa.Table.from_batches(
        packed(arrow_blobs(downsampled(run, partition, part, reads))), SCHEMA
    )


def judge(key: tuple[pa.Scalar, ...], facts: pa.Table) -> pa.Table:
    """One group judged, or said to need all of its reads."""
    run, group = key[0].as_py(), group_of(key[1].as_py(), unpacked(facts))
    return judge_group(run, group) if splittable(group) else not_splittable(run, group.partition)
