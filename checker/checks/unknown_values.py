"""Values found in a partition that were not sent to it: misrouted if sent elsewhere, else phantom.

The one check that crosses partitions. Kernels hand over such values (normally none at all), and
only then are the sends of the whole run searched for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from checker.checks.findings import Finding, UnknownValue, plural, who
from checker.evidence.facts import I64
from checker.formats.anomalies import KINDS, WITNESS_CAP
from checker.formats.verdict import Anomaly, Witness
from checker.ingest.run_meta import RunMeta
from harness.formats.history import show_value


class Origin(NamedTuple):
    """Where a value was really sent."""

    partition: str
    op: int
    process: int
    client: str
    t_us: int


def origins(
    values: Sequence[int], start: I64, count: I64, about: Sequence[Origin]
) -> dict[int, Origin]:
    """For each value the send it belongs to; `start` and `count` are the runs of values sent."""
    order = np.lexsort((np.array([origin.op for origin in about], np.int64), start))
    wanted = np.array(values, np.int64)
    place = np.searchsorted(start[order], wanted, side="right") - 1
    found = {}
    for value, at in zip(values, place.tolist(), strict=True):
        if at >= 0 and value < start[order[at]] + count[order[at]]:
            found[value] = about[int(order[at])]
    return found


def wrote(values: Sequence[int], start: I64, count: I64) -> I64:
    """Which of many runs of values sent hold any of these values."""
    wanted = np.sort(np.array(values, np.int64))
    reach = np.searchsorted(wanted, start + count) > np.searchsorted(wanted, start)
    return np.flatnonzero(reach)


def judge(
    meta: RunMeta, partition: str, found: Finding, known: Mapping[int, Origin]
) -> list[Anomaly]:
    """Phantoms and misrouted values of one partition; `known` says where values were sent."""
    never_sent = [u for u in found.unknown_values if u.value not in known]
    elsewhere = [u for u in found.unknown_values if u.value in known]
    made = []
    if elsewhere:
        origin, first = known[elsewhere[0].value], elsewhere[0]
        message = (
            f"{plural(len(elsewhere), 'value')} in {partition} sent to another partition: value "
            f"{first.value} at offset {first.offset}, {_seen(meta, first.witness)}, was sent to "
            f"{origin.partition} by operation {origin.op} of {origin.client}."
        )
        made.append(
            _anomaly(meta, partition, "misrouted", message, elsewhere, known, len(elsewhere))
        )
    # Of very many only a part was handed over; the others count as phantoms.
    count = found.unknown_value_count - len(elsewhere)
    if never_sent:
        first = never_sent[0]
        message = (
            f"{plural(count, 'value')} in {partition} never sent by anybody: "
            f"value {show_value(first.value)} at offset {first.offset}, "
            f"{_seen(meta, first.witness)}."
        )
        made.append(_anomaly(meta, partition, "phantom", message, never_sent, {}, count))
    return made


def _seen(meta: RunMeta, witness: Witness) -> str:
    if witness.op >= 0:
        return f"read by {who(witness)} {meta.since_storm(witness.t_us)} into the storm"
    return f"in the log of {witness.node}"


def _anomaly(
    meta: RunMeta,
    partition: str,
    name: str,
    message: str,
    values: Sequence[UnknownValue],
    known: Mapping[int, Origin],
    count: int,
) -> Anomaly:
    witnesses = []
    for each in values[:WITNESS_CAP]:
        witnesses.append(each.witness)
        if origin := known.get(each.value):
            sent = Witness(
                what=f"send to {origin.partition}",
                op=origin.op,
                process=origin.process,
                client=origin.client,
                t_us=origin.t_us,
                value=each.value,
            )
            witnesses.append(sent)
    return Anomaly(
        property=KINDS[name].property,
        name=name,
        run=meta.run,
        jepsen=KINDS[name].jepsen,
        partition=partition,
        count=count,
        message=message,
        offset=values[0].offset,
        t_us=values[0].witness.t_us,
        witnesses=tuple(witnesses[:WITNESS_CAP]),
    )
