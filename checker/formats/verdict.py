"""Verdicts and anomalies of runs: `results.json`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

import msgspec

from node.formats.bounds import LargeCount, Number, Offset, OptionalTime, Value


class Verdict(StrEnum):
    """The verdict of a check, a run or a suite of runs. `worst` orders them.

    NOT_EXAMINED is of properties only: there was nothing to judge, and nothing had been promised.
    """

    NOT_EXAMINED = "not-examined"
    VALID = "valid"
    NOT_EXERCISED = "not-exercised"
    UNKNOWN = "unknown"
    INVALID = "invalid"


_ORDER: Final = (
    Verdict.NOT_EXAMINED,
    Verdict.VALID,
    Verdict.NOT_EXERCISED,
    Verdict.UNKNOWN,
    Verdict.INVALID,
)
EXIT_CODES: Final = {
    Verdict.VALID: 0,
    Verdict.INVALID: 1,
    Verdict.UNKNOWN: 2,
    Verdict.NOT_EXERCISED: 2,
    Verdict.NOT_EXAMINED: 2,
}


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """`invalid` beats `unknown` beats `not-exercised` beats `valid`, and that beats `not-examined`;
    valid when there are none."""
    return max(verdicts, key=_ORDER.index, default=Verdict.VALID)


class Witness(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One fact an anomaly rests on: an operation, a trace event, or a place in a replica's log."""

    what: str
    op: Number = -1
    process: Number = -1
    client: str = ""
    node: str = ""
    t_us: OptionalTime = -1
    offset: Offset = -1
    value: Value = -1
    epoch: Number = -1
    hash: str = ""


class Anomaly(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One kind of finding on one partition: how often, and the first few in full.

    `name` is the anomaly's name in docs/checks.md, `property` the property it breaks. `verdict`
    is what policy made of it: invalid, or valid when the run's promise allows it (`allowed` then
    says why). `jepsen` is the class that Jepsen's Kafka checker would report it under, "" where it
    has none. `offset` and `t_us` point at the first occurrence, for the window of the page.
    """

    property: str
    name: str
    run: str = ""
    jepsen: str = ""
    partition: str = ""
    count: LargeCount = 1
    verdict: Verdict = Verdict.INVALID
    allowed: str = ""
    message: str = ""
    offset: Offset = -1
    t_us: OptionalTime = -1
    witnesses: tuple[Witness, ...] = ()


class PropertyResult(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One property of one run: its verdict, what was looked at, and why if it was not valid."""

    property: str
    verdict: Verdict
    examined: LargeCount = 0
    reason: str = ""


class RunResult(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`results.json` of one run."""

    run: str
    verdict: Verdict
    sentence: str
    properties: tuple[PropertyResult, ...] = ()
    anomalies: tuple[Anomaly, ...] = ()
    measures: dict[str, Any] = {}
    problems: tuple[str, ...] = ()
    format: Number = 1
