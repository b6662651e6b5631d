"""What Spark's workers do with the facts of one group; free of imports of Spark itself."""

from __future__ import annotations

import pyarrow as pa

from checker.engine.judge import judge_group, not_sound
from checker.engine.offset_ranges import WHOLE, sound, thinned
from checker.evidence.arrow_blob import SCHEMA, packed, parcels, unpacked
from checker.evidence.facts import Kind
from checker.evidence.group import group_of


def thin(key: tuple[pa.Scalar, ...], facts: pa.Table) -> pa.Table:
    """The reads of one range of offsets, thinned; what is whole goes on as it is."""
    run, partition, part = (word.as_py() for word in key)
    if part == WHOLE:
        return facts
    reads = unpacked(facts)[Kind.READ]
    return pa.Table.from_batches(packed(parcels(thinned(run, partition, part, reads))), SCHEMA)


def judge(key: tuple[pa.Scalar, ...], facts: pa.Table) -> pa.Table:
    """One group judged, or said to need all of its reads."""
    run, group = key[0].as_py(), group_of(key[1].as_py(), unpacked(facts))
    return judge_group(run, group) if sound(group) else not_sound(run, group.partition)
