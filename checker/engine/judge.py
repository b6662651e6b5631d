"""Judging of one group (the facts about a partition, or about a whole run) by all checks. If a
check raises an error, only its own property becomes unknown.

The same functions judge a group in this process and in a task of Spark; they import no Spark.
"""

from __future__ import annotations

import contextlib

import msgspec

from checker.checks.exercise import tried_faults
from checker.checks.findings import Finding, failed
from checker.checks.registry import Check, Scope, checks
from checker.evidence.facts import NoteFacts, ProblemFacts
from checker.evidence.group import Group
from checker.evidence.needs import missing, withheld
from checker.formats.anomalies import FROM_ABSENCE
from checker.output.assemble import GroupResult
from checker.output.curves import Curves, curves
from harness.formats.history import GROUP_PREFIX
from node.formats.trace import METADATA_PARTITION


def judge_group(group: Group, *, measured: bool = False) -> GroupResult:
    """Judge one group by all checks, in a fixed order. With `measured`, also compute its curves."""
    scope = Scope.PARTITION if group.partition else Scope.RUN
    problems = group.of(ProblemFacts)
    damage = problems.damage
    return GroupResult(
        group.partition,
        tuple(_finding(check, group) for check in checks(scope)),
        tuple(map(str, [*problems.text[damage], *problems.text[~damage]])),
        tuple(map(str, group.of(NoteFacts).text)),
        () if group.partition else tuple(tried_faults(group)),
        _curves(group) if measured else None,
        bool(damage.any()),
    )


def _finding(check: Check, group: Group) -> Finding:
    try:
        found = check.judge(group)
        assert isinstance(found, Finding)
        if lack := missing(group, check.needs):
            found = msgspec.structs.replace(found, unknown=lack)
    except Exception as error:  # A broken check is one unknown property, not a lost verdict.
        where = f" on {group.partition}" if group.partition else ""
        found = failed(check.property, where, error)
    found = _known(found, group)
    return found if group.history_whole else _without_absence(found)


def _known(found: Finding, group: Group) -> Finding:
    """Return the finding without the anomalies that the history says too little for."""
    reasons = {a.name: withheld(group, a.name) for a in found.anomalies if not a.allowed}
    doubtful = [name for name, reason in reasons.items() if reason]
    if not doubtful:
        return found
    kept = tuple(a for a in found.anomalies if a.allowed or not reasons[a.name])
    unknown = (
        found.unknown or f"what looks like {doubtful[0]} proves nothing: {reasons[doubtful[0]]}"
    )
    return msgspec.structs.replace(found, anomalies=kept, unknown=unknown)


def _without_absence(found: Finding) -> Finding:
    """Return the finding without anomalies of absence: a missing line may be in a hole."""
    kept = tuple(a for a in found.anomalies if a.name not in FROM_ABSENCE)
    dropped = sorted({a.name for a in found.anomalies} - {a.name for a in kept})
    if found.unknown_values:
        dropped.append("phantom")
    if not dropped:
        return found
    return msgspec.structs.replace(
        found,
        anomalies=kept,
        unknown_values=(),
        unknown_value_count=0,
        unknown=found.unknown
        or f"what looks like {' and '.join(dropped)} may be a hole in the history",
    )


def _curves(group: Group) -> Curves | None:
    """Return the curves of a partition. None if they fail: no measure is worth a verdict."""
    special = ("", METADATA_PARTITION)
    if group.partition in special or group.partition.startswith(GROUP_PREFIX):
        return None
    with contextlib.suppress(Exception):
        return curves(group)
    return None
