"""A sample of each campaign of the laboratory."""

from __future__ import annotations

import pytest

from tests.lab.__main__ import main

pytestmark = pytest.mark.nightly


def test_both_judges_agree_on_drawn_schedules() -> None:
    assert main(["judges", "--schedules", "200"]) == 0
    assert main(["judges", "--schedules", "60", "--bug", "M2"]) == 0


def test_hostile_stores_reach_nothing_outside() -> None:
    assert main(["hostile", "--cases", "340"]) == 0


def test_many_partitions_cost_no_more_than_their_share() -> None:
    assert main(["partitions"]) == 0
