"""The checks of this room, found by themselves: a check registers with one of three decorators.

A module of `checker.checks` is imported when the checks are first asked for, so a new check is its
module and its rows in `checker.formats.anomalies`. The decorator lists the anomalies that the check
can report; they name its property, and their place in the catalogue orders the checks. It also
lists what the check needs to say that none of them occurred (`checker.evidence.needs`).

    @per_partition("lost", "vanished", needs=(Need.HISTORY, Need.LOGS))
    def judge(group: Group) -> Finding: ...
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypeVar

import checker.checks
from checker.checks.findings import Finding, Findings
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.formats.anomalies import KINDS, RANK
from checker.formats.verdict import Anomaly


class Scope(Enum):
    """The unit that a check is a function of."""

    PARTITION = "all facts of one partition"
    RUN = "the facts of a run that belong to no partition"
    ACROSS = "the findings of all partitions of a run"


GroupJudge = Callable[[Group], Finding]
AcrossJudge = Callable[[Findings], Sequence[Anomaly]]
_Judge = TypeVar("_Judge", GroupJudge, AcrossJudge)


class Check(NamedTuple):
    """A registered check: a pure function, the property it judges, the anomalies it can report, and
    the evidence without which their absence proves nothing."""

    scope: Scope
    property: str
    judge: Callable[..., Any]
    anomalies: tuple[str, ...]
    needs: tuple[Need, ...] = ()


_registered: list[Check] = []


def _register(
    scope: Scope, anomalies: tuple[str, ...], needs: tuple[Need, ...]
) -> Callable[[_Judge], _Judge]:
    """Return a decorator that registers a check. Raises KeyError for a name the catalogue lacks."""

    def add(judge: _Judge) -> _Judge:
        own = KINDS[anomalies[0]].property
        _registered.append(Check(scope, own, judge, anomalies, needs))
        _ordered.cache_clear()
        return judge

    return add


def per_partition(
    *anomalies: str, needs: tuple[Need, ...] = ()
) -> Callable[[GroupJudge], GroupJudge]:
    """Register a check that judges each partition by all of its facts."""
    return _register(Scope.PARTITION, anomalies, needs)


def per_run(*anomalies: str, needs: tuple[Need, ...] = ()) -> Callable[[GroupJudge], GroupJudge]:
    """Register a check that judges a run by the facts that belong to no partition."""
    return _register(Scope.RUN, anomalies, needs)


def across_partitions(*anomalies: str) -> Callable[[AcrossJudge], AcrossJudge]:
    """Register a check that judges a run by what the other checks found in its partitions."""
    return _register(Scope.ACROSS, anomalies, ())


def remove(judge: Callable[..., object]) -> None:
    """Undo a registration; for tests that register a check of their own."""
    _registered[:] = [check for check in _registered if check.judge is not judge]
    _ordered.cache_clear()


def checks(scope: Scope) -> tuple[Check, ...]:
    """Return the checks of one scope, in the order of the catalogue."""
    _discover()
    return _ordered(scope)


@cache
def _ordered(scope: Scope) -> tuple[Check, ...]:
    own = [check for check in _registered if check.scope is scope]
    return tuple(sorted(own, key=lambda check: RANK[check.anomalies[0]]))


@cache
def _discover() -> None:
    """Import every module of the room, upon which its checks register."""
    for module in pkgutil.iter_modules(checker.checks.__path__):
        importlib.import_module(f"{checker.checks.__name__}.{module.name}")
