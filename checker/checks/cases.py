"""Cases of anomalies as checks return them, and the reporter that words them and picks witnesses.

A sentence is a template, in which `n` is the number of cases, `a` and `b` are the first witnesses,
and `partition` is the group's. A format says how a word is written: `{n:record}` counts, `{a:op}`
names an operation, `{a:when}` says when (`{t:seconds}` without `into the storm`), `{a:at}` where,
`{a:from}` which node, `{x:show}` and `{names:list}`."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from checker.checks.findings import Finding, listing, op_name, plural
from checker.evidence.columns import Mask
from checker.evidence.run_meta import RunMeta
from checker.evidence.sorting import I64
from checker.formats.anomalies import KINDS, WITNESS_CAP
from checker.formats.verdict import Anomaly, Verdict, Witness
from harness.formats.history import show_value


def _no_witness(row: Any) -> Iterable[Witness]:
    return ()


@dataclass(frozen=True)
class Cases:
    """Cases of one anomaly, nothing if it has no `rows`: a row each, the most telling first.

    `shown` returns the witnesses of a row, `words` further words of the sentence, for the first
    row. `name`: which, for a function that finds several anomalies. `allowed`: why the promise
    excuses these cases. The count is the number of rows, the offset that of the first witness, the
    time that of the first witness with one, and the partition that of the group, unless given."""

    says: str
    rows: Sequence[Any] | I64 = (0,)
    shown: Callable[[Any], Iterable[Witness]] = _no_witness
    words: Callable[[Any], Mapping[str, object]] | None = None
    name: str = ""
    allowed: str = ""
    count: int | None = None
    offset: int | None = None
    t_us: int | None = None
    partition: str | None = None


@dataclass(frozen=True)
class Examined:
    """A number of facts that were judged."""

    count: int


@dataclass(frozen=True)
class Unknown:
    """The reason for which a check could not judge all of it."""

    why: str


def excused(rows: I64, which: Mask, why: str) -> Iterator[tuple[I64, str]]:
    """Yield the rows that count against the system, and apart those that are excused, with why."""
    yield rows[~which], ""
    yield rows[which], why


class _Wording(string.Formatter):
    """The formats of the words of a sentence."""

    def __init__(self, meta: RunMeta) -> None:
        self.meta = meta

    def format_field(self, value: Any, spec: str) -> str:
        match spec:
            case "op":
                return op_name(value)
            case "when":
                t_us = value.t_us if isinstance(value, Witness) else int(value)
                return f"{self.meta.since_storm(t_us)} into the storm"
            case "seconds":
                return self.meta.since_storm(int(value))
            case "at":
                return f" at offset {value.offset}" if value.offset >= 0 else ""
            case "from":
                return value.node or "a broker"
            case "show":
                return show_value(int(value))
            case "list":
                return listing(value)
        if spec[:1].isalpha():
            return plural(int(value), spec)
        return str(super().format_field(value, spec))


def report(own: str, meta: RunMeta, partition: str, found: Iterable[tuple[str, Any]]) -> Finding:
    """Return what a check of the property `own` found, each thing under the name of its anomaly, as
    one finding."""
    anomalies, examined, unknown, others = [], 0, "", dict[str, Any]()
    for name, item in found:
        match item:
            case Cases():
                if len(item.rows):
                    anomalies.append(_anomaly(name, meta, partition, item))
            case Examined():
                examined += item.count
            case Unknown():
                unknown = unknown or item.why
            case Mapping():
                others |= item
    return Finding(
        property=own, examined=examined, anomalies=tuple(anomalies), unknown=unknown, **others
    )


def _anomaly(name: str, meta: RunMeta, partition: str, cases: Cases) -> Anomaly:
    name = cases.name or name
    rows = cases.rows.tolist() if isinstance(cases.rows, np.ndarray) else cases.rows
    witnesses: list[Witness] = []
    for row in rows:
        witnesses += cases.shown(row)
        if len(witnesses) >= WITNESS_CAP:
            break
    count = int(len(rows) if cases.count is None else cases.count)
    partition = partition if cases.partition is None else cases.partition
    words = dict(zip("ab", witnesses, strict=False)) | {"n": count, "partition": partition}
    if cases.words is not None:
        words |= cases.words(rows[0])
    offset, t_us = cases.offset, cases.t_us
    if offset is None:
        offset = witnesses[0].offset if witnesses else -1
    if t_us is None:
        t_us = next((w.t_us for w in witnesses[:WITNESS_CAP] if w.t_us >= 0), -1)
    return Anomaly(
        property=KINDS[name].property,
        name=name,
        run=meta.run,
        jepsen=KINDS[name].jepsen,
        partition=partition,
        count=count,
        verdict=Verdict.VALID if cases.allowed else Verdict.INVALID,
        allowed=cases.allowed,
        message=_Wording(meta).format(cases.says, **words),
        offset=int(offset),
        t_us=t_us,
        witnesses=tuple(witnesses[:WITNESS_CAP]),
    )
