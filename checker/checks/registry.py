"""The registry of the checks: each check registers itself with one of three decorators.

The first call of `checks` imports every module of `checker.checks`, so a new check is a module here
and its rows in `checker.formats.anomalies`. The decorator lists the anomalies that the check can
report. The catalogue says which property these break, and in which order checks run. `needs` lists
the evidence without which finding no anomaly proves nothing (`checker.evidence.needs`).

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
    """The facts that a check gets: of a partition, of a run, or the findings of all partitions."""

    PARTITION = "all facts of one partition"
    RUN = "the facts of a run that belong to no partition"
    ACROSS = "the findings of all partitions of a run"


GroupJudge = Callable[[Group], Finding]
AcrossJudge = Callable[[Findings], Sequence[Anomaly]]
_Judge = TypeVar("_Judge", GroupJudge, AcrossJudge)


class Check(NamedTuple):
    """A registered check: a pure function `judge`, the property it judges, the anomalies it can
    report, and the evidence without which finding none of them proves nothing."""

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
    """Return a decorator that registers a check of each partition by all facts about it."""
    return _register(Scope.PARTITION, anomalies, needs)


def per_run(*anomalies: str, needs: tuple[Need, ...] = ()) -> Callable[[GroupJudge], GroupJudge]:
    """Return a decorator that registers a check of a run by the facts that name no partition."""
    return _register(Scope.RUN, anomalies, needs)


def across_partitions(*anomalies: str) -> Callable[[AcrossJudge], AcrossJudge]:
    """Return a decorator that registers a check of a run by the findings of the other checks."""
    return _register(Scope.ACROSS, anomalies, ())


def remove(judge: Callable[..., object]) -> None:
    """Unregister the check whose function is `judge`; for tests that register one of their own."""
    _registered[:] = [check for check in _registered if check.judge is not judge]
    _ordered.cache_clear()


def checks(scope: Scope) -> tuple[Check, ...]:
    """Return the checks of one scope, in the order of the catalogue of anomalies."""
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
