"""Verdicts and anomalies of runs: `results.json`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

import msgspec

from node.formats.bounds import LargeCount, Number, Offset, OptionalTime, Value


class Verdict(StrEnum):
    """The verdict on a property, a run or a suite of runs, from the best to the worst. Only a
    property can be NOT_EXAMINED: there was no evidence to judge it by, and the run had promised
    none."""

    NOT_EXAMINED = "not-examined"
    VALID = "valid"
    NOT_EXERCISED = "not-exercised"
    UNKNOWN = "unknown"
    INVALID = "invalid"


SEVERITY: Final = tuple(reversed(Verdict))
"""The verdicts, the worst first."""
EXIT_CODES: Final = {
    Verdict.VALID: 0,
    Verdict.INVALID: 1,
    Verdict.UNKNOWN: 2,
    Verdict.NOT_EXERCISED: 2,
    Verdict.NOT_EXAMINED: 2,
}


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of some verdicts. Of none, return `valid`."""
    return min(verdicts, key=SEVERITY.index, default=Verdict.VALID)


class Witness(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One fact that an anomaly rests on: an operation, a trace event, or a place in a replica's
    log. -1 and "" stand for what is unknown or does not apply."""

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
    """An anomaly in one partition: how often it was found, and the first few cases as witnesses.
    `name` is its name in docs/checks.md, `property` the property that it breaks, `count` the number
    of cases. `verdict` is invalid, or valid if the run's promise allows it (`allowed` then says
    why). `jepsen` is the class under which Jepsen's Kafka checker would report it, "" if none.
    `offset` and `t_us` are those of the first case. `partition` is "" if several are concerned."""

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
    """The verdict on a property of a run, the facts examined, and why it is not valid."""

    property: str
    verdict: Verdict
    examined: LargeCount = 0
    reason: str = ""


class RunResult(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The content of `results.json`: the verdict on one run."""

    run: str
    verdict: Verdict
    sentence: str
    properties: tuple[PropertyResult, ...] = ()
    anomalies: tuple[Anomaly, ...] = ()
    measures: dict[str, Any] = {}
    problems: tuple[str, ...] = ()
    format: Number = 1

    @property
    def broken(self) -> dict[str, str]:
        """The broken properties, each with the class of its first anomaly, "?" if unknown."""
        found = {p.property: "?" for p in self.properties if p.verdict is Verdict.INVALID}
        against = [a for a in self.anomalies if a.verdict is Verdict.INVALID]
        return found | {a.property: a.name for a in reversed(against)}
