"""Survival statistics, against values from the literature."""

from __future__ import annotations

import math

import pytest

from tests.lab.survival import (
    LogRank,
    Time,
    geometric_mean,
    log_rank,
    mean,
    median,
    stratified,
    survival,
)

pytestmark = pytest.mark.nightly

# Weeks of remission of leukaemia patients: Freireich et al. (1963), as in Cox (1972).
TREATED = [
    *[Time(t, True) for t in (6, 6, 6, 7, 10, 13, 16, 22, 23)],
    *[Time(t, False) for t in (6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35)],
]
PLACEBO = [
    Time(t, True) for t in (1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23)
]


def test_the_curve_is_the_published_one() -> None:
    published = (
        *((6, 0.857), (7, 0.807), (10, 0.753), (13, 0.690), (16, 0.627), (22, 0.538)),
        (23, 0.448),
    )
    assert [(at, round(share, 3)) for at, share in survival(TREATED)] == list(published)
    assert median(TREATED) == 23
    assert median(PLACEBO) == 8


def test_the_log_rank_test_is_the_published_one() -> None:
    """Expected 10.7 events of the placebo group, 21 were seen: chi square 16.79."""
    result = log_rank(PLACEBO, TREATED)
    assert round(21 - result.excess, 2) == 10.75
    assert result.excess**2 / result.variance == pytest.approx(16.79, abs=0.01)
    assert result.p == pytest.approx(4.17e-5, rel=0.01)
    assert log_rank(TREATED, PLACEBO).excess == pytest.approx(-result.excess)


def test_nothing_that_happened_says_nothing() -> None:
    never = [Time(5, False)] * 3
    assert survival(never) == []
    assert median(never) == math.inf
    assert log_rank(never, never) == LogRank(0, 0)
    assert log_rank(never, never).p == 1
    assert mean(never) == 15


def test_a_median_on_the_edge_counts() -> None:
    assert median([Time(1, True), Time(2, True)]) == 1
    assert median([Time(2, True), Time(1, False), Time(3, True)]) == 2


def test_the_mean_counts_censored_time() -> None:
    assert mean([Time(10, True), Time(30, False), Time(20, True)]) == 30


def test_strata_add_up() -> None:
    one = log_rank(PLACEBO, TREATED)
    both = stratified([one, one])
    assert both.excess == 2 * one.excess
    assert both.p < one.p
    assert stratified([]).p == 1


def test_a_geometric_mean() -> None:
    assert geometric_mean([4, 1, 2]) == pytest.approx(2)
    assert geometric_mean([]) == 1
