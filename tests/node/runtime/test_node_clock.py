"""The clock that a node measures its timeouts with, faster or slower than the host's."""

from __future__ import annotations

import pytest

from node.runtime.breakpoints import NEVER_US, NodeClock


def test_by_default_it_is_the_clock_of_the_host() -> None:
    for us in (0, 1, 10**15, NEVER_US):
        assert (NodeClock().read(us), NodeClock().when(us)) == (us, us)


def test_it_goes_on_from_where_it_is_when_its_rate_changes() -> None:
    slow = NodeClock().at_rate(50, 1000)
    assert [slow.read(us) for us in (1000, 1100, 2000)] == [1000, 1050, 1500]
    right = slow.at_rate(100, 2000)
    assert [right.read(us) for us in (2000, 2100)] == [1500, 1600]
    assert [right.at_rate(200, 2100).read(us) for us in (2100, 2110)] == [1600, 1620]


@pytest.mark.parametrize("percent", [10, 33, 67, 100, 125, 200, 1000])
def test_a_deadline_comes_at_the_first_time_at_which_it_is_over(percent: int) -> None:
    clock = NodeClock().at_rate(percent, 777)
    for own_us in range(777, 1400, 7):
        at_us = clock.when(own_us)
        assert clock.read(at_us) >= own_us > clock.read(at_us - 1)


def test_never_stays_never() -> None:
    assert NodeClock().at_rate(200, 5).when(NEVER_US) == NEVER_US
