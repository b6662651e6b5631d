"""The source of random choices for drawing schedules: a seeded generator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class RandomChoices:
    """A source of uniform choices, seeded by the generator that it gets."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def integer(self, low: int, high: int) -> int:
        return self._rng.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        return options[self._rng.randrange(len(options))]

    def chance(self, percent: int) -> bool:
        """Return True with a probability of `percent`."""
        return self._rng.randrange(100) < percent
