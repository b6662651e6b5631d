"""`floodmark bench curve`: what keys cost is told as a ratio of pairs by turns."""

from __future__ import annotations

from harness.bench.broker import CurveCost, curve_table


def test_the_cost_of_keys_is_the_median_and_range_of_pairs() -> None:
    costs = [CurveCost(rate, cpu, 1.5) for rate, cpu in ((5.0, 8.0), (-1.0, 2.0), (7.5, 6.0))]
    head, *rows, rate, cpu = curve_table(costs).splitlines()
    assert head.split()[:3] == ["pair", "batches/s", "processor"]
    assert [row.split() for row in rows] == [
        ["1", "0.950", "1.080"],
        ["2", "1.010", "1.020"],
        ["3", "0.925", "1.060"],
    ]
    assert rate == (
        "keys (CURVE) cost 5.0 % of the batches per second, 8 clients (-1.0 to 7.5 in 3 pairs)"
    )
    assert cpu == (
        "keys (CURVE) cost 6.0 % more processor time a batch, 8 clients (2.0 to 8.0 in 3 pairs)"
    )
