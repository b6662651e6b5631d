"""Each mistake in a history of groups has one sentence, and accuses no system."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.formats.anomalies import DELIVERY, OWNERSHIP
from checker.formats.verdict import Verdict
from tests.support.checker.story import Story


def group(**promise: object) -> Story:
    s = Story()
    s.groups(**promise)
    s.send(10, 2, at=0)
    s.join("m1")
    return s


def said(s: Story, name: str, folder: Path) -> tuple[Verdict, str]:
    """Return the verdict on a property and its reason."""
    properties = s.check(folder).properties
    return next((p.verdict, p.reason) for p in properties if p.property == name)


def test_an_ack_of_an_offset_that_was_never_delivered(tmp_path: Path) -> None:
    s = group()
    s.give("m1", (10, 0))
    s.settle("m1", (11, 1))
    s.drain()
    verdict, reason = said(s, DELIVERY, tmp_path)
    assert verdict is Verdict.UNKNOWN, (
        "neither record is undelivered or forgotten: polls are missing"
    )
    assert reason.endswith(
        "settles a record of log-0 that no poll of group g was given: a history must have every "
        "poll, and an ack names what it got."
    )


@pytest.mark.parametrize("again", [(10, 0), (10, 0, 1)])
def test_an_ack_of_one_delivery_twice_changes_nothing(
    tmp_path: Path, again: tuple[int, ...]
) -> None:
    s = group()
    s.give("m1", (10, 0, 1), (11, 1, 1))
    for record in ((10, 0), again, (11, 1)):
        s.settle("m1", record)
    s.drain()
    assert said(s, DELIVERY, tmp_path) == (Verdict.VALID, "")


def test_a_group_that_does_not_exist(tmp_path: Path) -> None:
    s = group(kind="positions")
    s.member("m1", "position", outcome="fail", error="no such group")
    s.give("m1", (10, 0), (11, 1))
    s.drain()
    assert said(s, OWNERSHIP, tmp_path) == (Verdict.VALID, "")


@pytest.mark.parametrize("rise", [True, False])
def test_an_epoch_that_goes_back(tmp_path: Path, rise: bool) -> None:
    s = group(kind="positions", epochs_rise=rise)
    s.own("m1", epoch=5)
    s.own("m1", epoch=1)
    verdict, reason = said(s, OWNERSHIP, tmp_path)
    assert verdict is (Verdict.INVALID if rise else Verdict.VALID)
    assert ("of m1 was told epoch 1, after epoch 5" in reason) is rise
