"""The checker against the slow definitions, on one story."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec
from hypothesis import HealthCheck, settings

from checker.formats.anomalies import CATALOGUE, OF_GROUPS, Needs
from checker.formats.verdict import RunResult, Verdict
from harness.formats.history import GROUP_STATES
from harness.formats.run_info import GroupPromise
from tests.support.checker import group_definitions
from tests.support.checker.defined import everything, whole
from tests.support.checker.definitions import EXCUSED
from tests.support.checker.story import Story

# What the first tier draws; `make nightly-tests` draws as many as its profile says.
FIRST_TIER_EXAMPLES = 25
EXERCISE = frozenset(kind.name for kind in CATALOGUE if kind.needs is Needs.EXERCISE)


def budget(first_tier: int = FIRST_TIER_EXAMPLES) -> settings:
    """Return the settings of a property of whole histories: a fixed sample, or the nightly one."""
    nightly = not settings().derandomize
    return settings(
        max_examples=settings().max_examples if nightly else first_tier,
        deadline=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
            HealthCheck.function_scoped_fixture,
        ],
    )


def agreed(s: Story) -> Counter[str]:
    """Return the findings of the checker in a story, and check that they agree with the definitions
    in every respect."""
    with tempfile.TemporaryDirectory() as folder:
        found = s.check(Path(folder))
    assert compared(found, s) == ""
    return _counts(found)


def compared(found: RunResult, s: Story) -> str:
    """Say in what a result differs from the definitions; "" if in nothing."""
    return due(s).differs(found)


class Due(NamedTuple):
    """All that the checker is to say of a story by the slow definitions."""

    counts: Counter[str]
    allowed: Counter[str] | None
    """The anomalies that are allowed for their own sake; None if the promise says more of them."""
    unknown: set[str]
    whole: bool

    def differs(self, found: RunResult) -> str:
        """Say in what a result differs; "" if in nothing."""
        allowed = Counter[str]()
        for anomaly in found.anomalies:
            if anomaly.name in EXCUSED and anomaly.allowed:
                allowed[anomaly.name] += anomaly.count
        if (counts := _counts(found)) != self.counts:
            more, less = dict(counts - self.counts), dict(self.counts - counts)
            return f"the checker finds {more} too much and {less} too little"
        if self.allowed is not None and allowed != self.allowed:
            return f"the checker excuses {dict(allowed)}, the definitions {dict(self.allowed)}"
        if self.whole and _unknown(found) != (unknown := self.unknown - _invalid(found)):
            return f"unknown to the checker: {_unknown(found)}, to the definitions: {unknown}"
        if not self.whole and found.verdict not in (Verdict.UNKNOWN, Verdict.INVALID):
            return f"{found.verdict}, though the history is not whole"
        return next((problem for problem in found.problems if "failed" in problem), "")


class DueOfGroups(NamedTuple):
    """The anomalies of groups that the checker is to find in a story."""

    names: set[str]

    def differs(self, found: RunResult) -> str:
        """Say in what a result differs; "" if in nothing."""
        known = {k.name for k in CATALOGUE if k.property in OF_GROUPS} | {
            "group-stuck",
            "few-deliveries",
        }
        own = {a.name for a in found.anomalies if a.name in known}
        problem = next((problem for problem in found.problems if "failed" in problem), "")
        return problem or (f"found {own}, and not {self.names}" if own != self.names else "")


def due(s: Story) -> Due | DueOfGroups:
    """Return what the definitions say of a story."""
    if s.run["promise"].get("groups"):
        promise = msgspec.convert(s.run["promise"]["groups"], GroupPromise)
        names, _ = group_definitions.judge(s.lines(), promise)
        names |= group_definitions.few(s.lines(), promise)
        return DueOfGroups(names | group_definitions.of_states(s.extra.get(GROUP_STATES, b"")))
    found, excused = everything(s)
    strict = s.run["promise"].get("durable_acks", True) and "isolation" not in s.run["promise"]
    return Due(
        Counter({name: n for name, n in found.items() if not name.endswith(" unknown")}),
        excused if strict else None,
        {n.removesuffix(" unknown") for n in found if n.endswith(" unknown")},
        whole(s),
    )


def _counts(found: RunResult) -> Counter[str]:
    counts = Counter[str]()
    for anomaly in found.anomalies:
        counts[anomaly.name] += anomaly.count
    return counts


def _unknown(found: RunResult) -> set[str]:
    return {p.property for p in found.properties if p.verdict is Verdict.UNKNOWN}


def _invalid(found: RunResult) -> set[str]:
    return {p.property for p in found.properties if p.verdict is Verdict.INVALID}
