"""Statistics of the time until something happens, where some were not watched until it did. Pure.

A search that ends with its budget and has found nothing says that the time is longer: it is
censored. E. L. Kaplan and P. Meier, "Nonparametric Estimation from Incomplete Observations" (1958);
N. Mantel, "Evaluation of Survival Data and Two New Rank Order Statistics" (1966).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Time(NamedTuple):
    """How long one was watched, in any unit; `happened` is False where it is censored."""

    length: float
    happened: bool


class LogRank(NamedTuple):
    """What a log-rank test adds up over the times at which something happened in either group:
    how often it happened in the first group beyond what was to be expected, and the variance."""

    excess: float
    variance: float

    @property
    def p(self) -> float:
        """How probable so large a difference is where there is none; 1 without any event."""
        if self.variance <= 0:
            return 1.0
        return math.erfc(math.sqrt(self.excess**2 / self.variance / 2))


def survival(times: Iterable[Time]) -> list[tuple[float, float]]:
    """Kaplan-Meier: (time, share of those to which it has not happened by then)."""
    left = sorted(times)
    curve, share = [], 1.0
    while left:
        at, alive = left[0].length, len(left)
        here = [time for time in left if time.length == at]
        happened = sum(time.happened for time in here)
        if happened:
            share *= 1 - happened / alive
            curve.append((at, share))
        left = left[len(here) :]
    return curve


def median(times: Iterable[Time]) -> float:
    """The time by which it has happened to half of them; infinite where it has not."""
    # A share of exactly one half is not always exact: 1/3 * 3/2.
    return next((at for at, share in survival(times) if share <= 0.5 + 1e-9), math.inf)


def mean(times: Sequence[Time]) -> float:
    """All the time that was watched for each time that it happened: the mean time, if it is equally
    probable at any moment. Where it never happened, all the time: the mean is longer."""
    happened = sum(time.happened for time in times)
    return sum(time.length for time in times) / max(happened, 1)


def log_rank(first: Iterable[Time], second: Iterable[Time]) -> LogRank:
    """Compares two groups. A positive excess: it happens sooner in the first."""
    groups = (sorted(first), sorted(second))
    moments = sorted({time.length for group in groups for time in group if time.happened})
    excess = variance = 0.0
    for at in moments:
        alive = [sum(time.length >= at for time in group) for group in groups]
        happened = [sum(t.happened and t.length == at for t in group) for group in groups]
        all_alive, all_happened = sum(alive), sum(happened)
        share = alive[0] / all_alive
        excess += happened[0] - all_happened * share
        if all_alive > 1:
            left = (all_alive - all_happened) / (all_alive - 1)
            variance += all_happened * share * (1 - share) * left
    return LogRank(excess, variance)


def stratified(parts: Iterable[LogRank]) -> LogRank:
    """The sum of the tests of several rows: each is compared with itself only."""
    whole = list(parts)
    return LogRank(sum(part.excess for part in whole), sum(part.variance for part in whole))


def geometric_mean(ratios: Sequence[float]) -> float:
    """Of positive numbers; 1 of none."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0
