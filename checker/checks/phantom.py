"""Values found in a partition to which they were not sent: misrouted if sent to another partition,
else phantom.

The checks of a partition hand over such values, normally none. Only if there are any, the sends of
the whole run are searched for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from checker.checks.cases import Cases
from checker.checks.findings import Findings, Origin, UnknownValue
from checker.checks.registry import Check, Scope
from checker.evidence.columns import Rows
from checker.evidence.sorting import I64
from checker.formats.anomalies import OFFSETS
from checker.formats.verdict import Witness


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


STRAYS = Check(OFFSETS, scope=Scope.ACROSS)


@STRAYS.finds("misrouted", "phantom")
def strays(run: Findings) -> Iterator[Cases]:
    """Find values in partitions to which they were not sent. Find `misrouted`: sent to another
    partition. Find `phantom`: sent by no operation of the run."""

    def shown(each: UnknownValue) -> Iterator[Witness]:
        yield each.witness
        if origin := run.origins.get(each.value):
            yield Witness(
                what=f"send to {origin.partition}",
                op=origin.op,
                process=origin.process,
                client=origin.client,
                t_us=origin.t_us,
                value=each.value,
            )

    def words(each: UnknownValue) -> dict[str, object]:
        return {"it": each, "origin": run.origins.get(each.value)}

    for partition, found in run.by_partition:
        elsewhere = [u for u in found.unknown_values if u.value in run.origins]
        never_sent = [u for u in found.unknown_values if u.value not in run.origins]
        for name, values, what, more in (
            ("misrouted", elsewhere, "sent to another partition: value {it.value}", _SENT),
            ("phantom", never_sent, "that no client sent: value {it.value:show}", ""),
        ):
            if not values:
                continue
            # If there are very many, only some were handed over; the others count as phantoms.
            others = found.unknown_value_count - len(elsewhere) - len(never_sent)
            in_log = values[0].witness.op < 0
            where = "in the log of {a.node}" if in_log else "read by {a:op} {a:when}"
            yield Cases(
                f"{{n:value}} in {{partition}} {what}{{it:at}}, {where}{more}.",
                values,
                shown,
                words,
                name=name,
                partition=partition,
                count=len(values) + others * (name == "phantom"),
                offset=values[0].offset,
                t_us=values[0].witness.t_us,
            )


_SENT = ", was sent to {origin.partition} by operation {origin.op} of {origin.client}"
