"""The search for the version in which a failure began, or was fixed, if each run may miss it. Pure.

The versions stand in order from the good end to the bad end. A failure proves that a version is
bad; a run without one only makes that less likely. So the knowledge is a probability for each
version of being the first bad one, and for each possible rate of failures; the next run is made
where it is expected to say most about the first (Horstein 1963; Ben-Or and Hassidim 2008)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

SURE: Final = 0.95
_RATES: Final = np.linspace(0.02, 0.98, 49)

Floats = NDArray[np.float64]


class Bisection:
    """The knowledge about `size` versions, of which the last is known to be bad."""

    def __init__(self, size: int, failed: int = 1, of: int = 1) -> None:
        """`failed` of `of` runs on the bad version have failed already."""
        self.size = size
        rates = _RATES**failed * (1 - _RATES) ** (of - failed)
        self._joint: Floats = np.tile(rates / rates.sum() / size, (size, 1))

    def observe(self, version: int, failed: bool) -> None:
        first_bad = np.arange(self.size)[:, None]
        bad = _RATES if failed else 1 - _RATES
        likelihood = np.where(version >= first_bad, bad, 0.0 if failed else 1.0)
        self._joint = self._joint * likelihood
        self._joint /= self._joint.sum()

    @property
    def posterior(self) -> Floats:
        """The probability of each version of being the first bad one."""
        found: Floats = self._joint.sum(axis=1)
        return found

    @property
    def best(self) -> int:
        """The version that is most likely the first bad one."""
        return int(self.posterior.argmax())

    @property
    def is_sure(self) -> bool:
        """Return whether the answer is known with the probability `SURE`."""
        return bool(self.posterior.max() >= SURE)

    def next(self, among: Sequence[int] | None = None) -> int:
        """Return the version whose run lowers the expected entropy most, of those that can run."""
        choices = range(self.size) if among is None else among
        left = self._left()
        return min(choices, key=lambda version: (round(float(left[version]), 12), version))

    def _left(self) -> Floats:
        """Return the entropy that is expected to be left after a run on each version."""
        whole, fails = self.posterior, (self._joint * _RATES).sum(axis=1)
        passes = whole - fails
        fail, fail_total = np.cumsum(_x_log_x(fails)), np.cumsum(fails)
        good = _x_log_x(whole)
        passed = np.cumsum(_x_log_x(passes)) + good.sum() - np.cumsum(good)
        found: Floats = _x_log_x(fail_total) - fail + _x_log_x(1 - fail_total) - passed
        return found


def _x_log_x(values: Floats) -> Floats:
    positive = np.maximum(values, 1e-300)
    found: Floats = np.where(values > 0, values * np.log2(positive), 0.0)
    return found
