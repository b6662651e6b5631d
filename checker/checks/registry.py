"""The registry of the checks. A check is the anomalies of one property that the same evidence
shows; each is found by a function under its name.

    LOSS = Check(LOST_WRITES, needs=(Need.HISTORY, Need.LOGS))

    @LOSS.finds("lost")
    def lost(group: Group) -> Iterator[Cases]: ...

The first call of `checks` imports every module of `checker.checks`, so a new check is a module here
and its rows in `checker.formats.anomalies`, which say in which order checks run. `needs` lists the
evidence without which finding no anomaly proves nothing (`checker.evidence.needs`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, cached_property
from typing import Any

import checker.checks
from checker.checks.cases import Examined, report
from checker.checks.findings import Finding, Findings
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.formats.anomalies import KINDS, RANK


class Scope(Enum):
    """The facts that a check gets: of a partition, of a run, or the findings of all partitions."""

    PARTITION = "all facts of one partition"
    RUN = "the facts of a run that belong to no partition"
    ACROSS = "the findings of all partitions of a run"


Find = Callable[[Any], Iterator[Any]]
"""A function from a group, or from the findings of all, to `Cases` and what else is found."""


@dataclass(eq=False)
class Check:
    """The anomalies of one property that the same evidence shows. `examined` counts what they are
    judged by, unless the functions that find them say so."""

    property: str
    needs: tuple[Need, ...] = ()
    scope: Scope = Scope.PARTITION
    examined: Callable[[Group], int] = lambda group: 0
    finders: list[tuple[tuple[str, ...], Find]] = field(default_factory=list)

    def finds(self, *names: str) -> Callable[[Find], Find]:
        """Return a decorator that registers a function which finds the anomalies `names`. Raises
        KeyError for a name that the catalogue does not have under this property."""

        def add(find: Find) -> Find:
            if wrong := [n for n in names if n not in KINDS or KINDS[n].property != self.property]:
                raise KeyError(f"formats/anomalies.py has no row {wrong[0]} of {self.property}")
            self.finders.append((names, find))
            if self not in _registered:
                _registered.append(self)
            _ordered.cache_clear()
            return find

        return add

    @cached_property
    def anomalies(self) -> tuple[str, ...]:
        """The anomalies that the check can find, in the order of the catalogue."""
        return tuple(sorted((n for names, _ in self.finders for n in names), key=RANK.__getitem__))

    def judge(self, known: Group | Findings) -> Finding:
        """Return all that the functions of the check find."""
        return report(self.property, known.meta, known.partition, self._found(known))

    def _found(self, known: Group | Findings) -> Iterator[tuple[str, Any]]:
        if isinstance(known, Group):
            yield "", Examined(self.examined(known))
        for names, find in self.finders:
            yield from ((names[0] if names else "", each) for each in find(known))


_registered: list[Check] = []


def remove(check: Check) -> None:
    """Unregister a check; for tests that register one of their own."""
    _registered.remove(check)
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
