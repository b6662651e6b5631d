"""Checks register themselves: one can be added from outside, and each says what it can report."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import isfunction
from pathlib import Path

import numpy as np
import pytest

from checker.checks.cases import Cases
from checker.checks.registry import Check, Scope, checks, remove
from checker.engine.judge import judge_group
from checker.evidence.facts import Sends
from checker.evidence.group import Group, groups_of
from checker.formats import anomalies
from checker.formats.anomalies import CATALOGUE, KINDS, OFFSETS, RANK, AnomalyKind, Needs
from checker.formats.verdict import Verdict
from checker.ingest.ingest import ingest, sources
from tests.support.checker.goldens import GOLDENS
from tests.support.checker.story import Story


@contextmanager
def odd_offsets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Yield a check that a test alone adds: its row of the catalogue and its function."""
    kind = AnomalyKind("odd-offset", OFFSETS, Needs.NOTHING)
    monkeypatch.setitem(KINDS, kind.name, kind)
    monkeypatch.setitem(RANK, kind.name, len(CATALOGUE))

    check = Check(OFFSETS, examined=lambda group: len(group.of(Sends)))

    @check.finds(kind.name)
    def odd(group: Group) -> Iterator[Cases]:
        sends = group.of(Sends)
        rows = np.flatnonzero(sends.offset % 2 == 1)
        yield Cases("{n:send} to odd offsets of {partition}.", rows)

    try:
        yield
    finally:
        remove(check)


def test_a_check_is_added_by_registering_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    s = Story()
    s.agree(*s.busy())
    before = checks(Scope.PARTITION)
    with odd_offsets(monkeypatch):
        result = s.check(tmp_path / "with")
    assert result.verdict is Verdict.INVALID
    assert [found.name for found in result.anomalies] == ["odd-offset"]
    assert checks(Scope.PARTITION) == before
    assert s.check(tmp_path / "without").verdict is Verdict.VALID


def test_an_anomaly_must_be_in_the_catalogue() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        Check(OFFSETS).finds("nowhere")(lambda group: iter(()))


def test_each_anomaly_has_its_definition_at_the_code() -> None:
    """In the docstring of one function: "Find `lost`: ..."."""
    checks(Scope.RUN)
    modules = [m for name, m in sys.modules.items() if name.startswith("checker.checks.")]
    functions = {f for module in modules for f in vars(module).values() if isfunction(f)}
    said = [f.__doc__ or "" for f in functions if f.__module__.startswith("checker.checks.")]
    found = Counter(name for text in said for name in re.findall("`([a-z0-9-]+)`:", text))
    assert found == Counter(kind.name for kind in CATALOGUE)


def test_each_anomaly_is_reported_by_one_check_of_its_property() -> None:
    every = [
        (check, name) for scope in Scope for check in checks(scope) for name in check.anomalies
    ]
    assert sorted(name for _, name in every) == sorted(kind.name for kind in CATALOGUE)
    for check, name in every:
        assert KINDS[name].property == check.property
    assert {check.property for check, _ in every} == set(anomalies.PROPERTIES)


@pytest.mark.parametrize("name", GOLDENS)
def test_checks_report_what_they_say_they_can(name: str, tmp_path: Path) -> None:
    folder = GOLDENS[name].story(True).write(tmp_path)
    facts = [batch for source in sources(0, folder) for batch in ingest(source, None).facts]
    for group in groups_of(facts):
        own = checks(Scope.PARTITION if group.partition else Scope.RUN)
        for check, found in zip(own, judge_group(group).findings, strict=True):
            assert found.property == check.property
            assert {each.name for each in found.anomalies} <= set(check.anomalies)
