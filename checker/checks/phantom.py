"""Values found in a partition to which they were not sent: misrouted if sent to another partition,
else phantom.

The checks of a partition hand over such values, normally none. Only if there are any, the sends of
the whole run are searched for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from checker.checks.findings import (
    Finding,
    Findings,
    Origin,
    Place,
    UnknownValue,
    anomaly,
    op_name,
    plural,
)
from checker.checks.registry import across_partitions
from checker.evidence.columns import Rows
from checker.evidence.run_meta import RunMeta
from checker.evidence.sorting import I64
from checker.formats.anomalies import WITNESS_CAP
from checker.formats.verdict import Anomaly, Witness
from harness.formats.history import show_value


def wrote(values: Sequence[int], start: I64, count: I64) -> I64:
    """Return the rows that have any of `values`; row i has `count[i]` values from `start[i]` on."""
    wanted = np.sort(np.array(values, np.int64))
    reach = np.searchsorted(wanted, start + count) > np.searchsorted(wanted, start)
    return np.flatnonzero(reach)


def origins(values: Sequence[int], sends: Rows) -> dict[int, Origin]:
    """Return for each of `values` the send that wrote it, if it is among `sends`."""
    sends = sends.take(wrote(values, sends.numbers("value"), sends.numbers("count")))
    first, count, op = (sends.numbers(name) for name in ("value", "count", "op"))
    order = np.lexsort((op, first))
    place = np.searchsorted(first[order], np.array(values, np.int64), side="right") - 1
    made: dict[int, Origin] = {}
    if not len(order):
        return made
    for value, at in zip(values, order[place].tolist(), strict=True):
        if first[at] <= value < first[at] + count[at]:
            made[value] = _origin(sends, at)
    return made


def _origin(sends: Rows, row: int) -> Origin:
    numbers = ("op", "process", "invoke_us", "value")
    op, process, t_us, first = (int(sends.numbers(name)[row]) for name in numbers)
    words = map(sends.words, ("partition", "client"))
    partition, client = (own.words[int(own.codes[row])] for own in words)
    return Origin(partition, op, process, client, t_us, first)


def joined_origins(parts: Iterable[Mapping[int, Origin]]) -> dict[int, Origin]:
    """Join the origins that were found in parts of a run's sends. If several sends claim a value,
    the one whose first value is the highest counts, and of those the later operation."""
    found = [pair for part in parts for pair in part.items()]
    return dict(sorted(found, key=lambda pair: (pair[1].first, pair[1].op)))


@across_partitions("phantom", "misrouted")
def judge(run: Findings) -> list[Anomaly]:
    """Find values in partitions to which they were not sent. `misrouted`: sent to another
    partition. `phantom`: sent by no operation of the run."""
    made: list[Anomaly] = []
    for partition, found in run.by_partition:
        made += _of_partition(run.meta, partition, found, run.origins)
    return made


def _of_partition(
    meta: RunMeta, partition: str, found: Finding, known: Mapping[int, Origin]
) -> list[Anomaly]:
    place = Place(meta.run, partition)
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
        made.append(_anomaly(place, "misrouted", message, elsewhere, known, len(elsewhere)))
    # If there are very many, only some were handed over; the others count as phantoms.
    count = found.unknown_value_count - len(elsewhere)
    if never_sent:
        first = never_sent[0]
        message = (
            f"{plural(count, 'value')} in {partition} that no client sent: "
            f"value {show_value(first.value)} at offset {first.offset}, "
            f"{_seen(meta, first.witness)}."
        )
        made.append(_anomaly(place, "phantom", message, never_sent, {}, count))
    return made


def _seen(meta: RunMeta, witness: Witness) -> str:
    if witness.op >= 0:
        return f"read by {op_name(witness)} {meta.since_storm(witness.t_us)} into the storm"
    return f"in the log of {witness.node}"


def _anomaly(
    place: Place,
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
    return anomaly(
        place,
        name,
        message,
        witnesses,
        count=count,
        offset=values[0].offset,
        t_us=values[0].witness.t_us,
    )
