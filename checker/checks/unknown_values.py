"""Values found in a partition that nobody sent to it: misrouted if sent elsewhere, else phantom.

The one check that crosses partitions. Kernels hand over such values (normally none at all), and
only then are the sends of the whole run searched for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from checker.checks.findings import Finding, Unclaimed, plural, who
from checker.evidence.facts import I64
from checker.formats.anomalies import KINDS, WITNESS_CAP
from checker.formats.verdict import Anomaly, Witness
from checker.ingest.run_meta import RunMeta
from harness.formats.history import show_value


class Home(NamedTuple):
    """Where a value was really sent."""

    partition: str
    op: int
    process: int
    client: str
    t_us: int


def homes(values: Sequence[int], start: I64, count: I64, about: Sequence[Home]) -> dict[int, Home]:
    """For each value the send it belongs to; `start` and `count` are the runs of values sent."""
    order = np.lexsort((np.array([home.op for home in about], np.int64), start))
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
    meta: RunMeta, partition: str, found: Finding, known: Mapping[int, Home]
) -> list[Anomaly]:
    """Phantoms and misrouted values of one partition; `known` says where values were sent."""
    strangers = [u for u in found.unclaimed if u.value not in known]
    stray = [u for u in found.unclaimed if u.value in known]
    made = []
    if stray:
        home, first = known[stray[0].value], stray[0]
        message = (
            f"{plural(len(stray), 'value')} in {partition} sent to another partition: value "
            f"{first.value} at offset {first.offset}, {_seen(meta, first.witness)}, was sent to "
            f"{home.partition} by operation {home.op} of {home.client}."
        )
        made.append(_anomaly(meta, partition, "misrouted", message, stray, known, len(stray)))
    # Of very many only a part was handed over; the others count as phantoms.
    count = found.unclaimed_count - len(stray)
    if strangers:
        first = strangers[0]
        message = (
            f"{plural(count, 'value')} in {partition} never sent by anybody: "
            f"value {show_value(first.value)} at offset {first.offset}, "
            f"{_seen(meta, first.witness)}."
        )
        made.append(_anomaly(meta, partition, "phantom", message, strangers, {}, count))
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
    values: Sequence[Unclaimed],
    known: Mapping[int, Home],
    count: int,
) -> Anomaly:
    witnesses = []
    for each in values[:WITNESS_CAP]:
        witnesses.append(each.witness)
        if home := known.get(each.value):
            sent = Witness(
                what=f"send to {home.partition}",
                op=home.op,
                process=home.process,
                client=home.client,
                t_us=home.t_us,
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
