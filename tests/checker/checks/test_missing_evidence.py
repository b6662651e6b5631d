"""Evidence taken out of histories, unit by unit: no verdict gets better, none becomes invalid, and
all that is said of what is left is as defined."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checker.formats.verdict import Verdict, worst
from tests.support.checker.agreed import EXERCISE, compared
from tests.support.checker.goldens import GOLDENS
from tests.support.checker.missing_evidence import tampered
from tests.support.checker.story import Story, against

SAMPLE = 10
"""One tampered run of so many is in the sample, in two halves; the nightly tier judges all."""


def correct() -> Iterator[tuple[str, Story]]:
    """Yield runs in which nothing counts against the system."""
    for name, golden in GOLDENS.items():
        yield name, golden.story(bad=False)


def judge(tmp_path: Path, step: int, first: int) -> int:
    """Judge every n-th tampered run, and return how many that were."""
    number = tried = 0
    for name, whole in correct():
        before = None
        for taken, s in tampered(whole):
            number += 1
            if number % step != first:
                continue
            tried += 1
            if before is None:
                before = whole.check(tmp_path / f"{number}-whole").verdict
            result = s.check(tmp_path / f"{number}")
            after = result.verdict
            assert after is not Verdict.INVALID, (name, taken.what)
            assert worst([before, after]) is after, (name, taken.what, before, after)
            if taken.damage:
                assert after is Verdict.UNKNOWN, (name, taken.what)
            elif s.run["partitions"]:
                assert compared(result, s) == "", (name, taken.what)
    return tried


@pytest.mark.parametrize("first", [0, SAMPLE])
def test_a_sample_of_units(tmp_path: Path, first: int) -> None:
    assert judge(tmp_path, 2 * SAMPLE, first) > 15


@pytest.mark.nightly
def test_every_unit(tmp_path: Path) -> None:
    assert judge(tmp_path, 1, 0) > 300


@pytest.mark.nightly
def test_without_a_unit_what_shows_an_anomaly_is_never_valid(tmp_path: Path) -> None:
    for name in GOLDENS.keys() - EXERCISE:
        whole = GOLDENS[name].story(bad=True)
        before = against(whole.check(tmp_path / name))
        for number, (taken, s) in enumerate(tampered(whole)):
            result = s.check(tmp_path / f"{name}-{number}")
            assert result.verdict in (Verdict.INVALID, Verdict.UNKNOWN), (name, taken.what)
            assert against(result).keys() <= before.keys(), (name, taken.what)
