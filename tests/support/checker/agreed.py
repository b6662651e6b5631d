"""The checker against the slow definitions, on one story."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, settings

from checker.formats.anomalies import CATALOGUE, OF_GROUPS, Needs
from checker.formats.verdict import RunResult, Verdict
from harness.formats.group_state import GROUP_STATES
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
    if s.run["promise"].get("groups"):
        return _compared_of_groups(found, s)
    due, excused = everything(s)
    unknown = {name.removesuffix(" unknown") for name in due if name.endswith(" unknown")}
    wanted = Counter({name: n for name, n in due.items() if not name.endswith("unknown")})
    allowed = Counter[str]()
    for anomaly in found.anomalies:
        if anomaly.name in EXCUSED and anomaly.allowed:
            allowed[anomaly.name] += anomaly.count
    if (counts := _counts(found)) != wanted:
        return f"found {dict(counts - wanted)} too much and {dict(wanted - counts)} too little"
    strict = s.run["promise"].get("durable_acks", True) and "isolation" not in s.run["promise"]
    if strict and allowed != excused:
        return f"allowed {dict(allowed)}, and not {dict(excused)}"
    if whole(s) and _unknown(found) != unknown - _invalid(found):
        return f"unknown: {_unknown(found)}, and not {unknown - _invalid(found)}"
    if not whole(s) and found.verdict not in (Verdict.UNKNOWN, Verdict.INVALID):
        return f"{found.verdict}, though the history is not whole"
    return next((problem for problem in found.problems if "failed" in problem), "")


def _compared_of_groups(found: RunResult, s: Story) -> str:
    """Say in what the anomalies of groups differ from their definitions."""
    promise = msgspec.convert(s.run["promise"]["groups"], GroupPromise)
    due, _ = group_definitions.judge(s.lines(), promise)
    due |= group_definitions.few(s.lines(), promise)
    due |= group_definitions.of_states(s.extra.get(GROUP_STATES, b""))
    known = {k.name for k in CATALOGUE if k.property in OF_GROUPS} | {
        "group-stuck",
        "few-deliveries",
    }
    own = {a.name for a in found.anomalies if a.name in known}
    problem = next((problem for problem in found.problems if "failed" in problem), "")
    return problem or (f"found {own}, and not {due}" if own != due else "")


def _counts(found: RunResult) -> Counter[str]:
    counts = Counter[str]()
    for anomaly in found.anomalies:
        counts[anomaly.name] += anomaly.count
    return counts


def _unknown(found: RunResult) -> set[str]:
    return {p.property for p in found.properties if p.verdict is Verdict.UNKNOWN}


def _invalid(found: RunResult) -> set[str]:
    return {p.property for p in found.properties if p.verdict is Verdict.INVALID}
