"""Where the choices of a drawn schedule come from: a random generator, or Hypothesis.

The generator (`harness.search.generator`) serves both. Choices are small and independent. The
simplest value comes first everywhere, so that Hypothesis simplifies towards it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class ChoiceSource(Protocol):
    """Makes one choice after another."""

    def integer(self, low: int, high: int) -> int:
        """A number in low..high; `low` is the simplest."""
        ...

    def pick(self, options: Sequence[T]) -> T:
        """One of `options`; the first is the simplest."""
        ...

    def chance(self, percent: int) -> bool:
        """True `percent` of the time; False is simpler."""
        ...


class RandomChoices:
    """Uniform choices from a seeded generator."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def integer(self, low: int, high: int) -> int:
        return self._rng.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        return options[self._rng.randrange(len(options))]

    def chance(self, percent: int) -> bool:
        return self._rng.randrange(100) < percent


class HypothesisChoices:
    """Choices by Hypothesis, which remembers what led to interesting runs and tries near them."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def integer(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))

    def pick(self, options: Sequence[T]) -> T:
        return options[self._data.draw(st.integers(0, len(options) - 1))]

    def chance(self, percent: int) -> bool:
        return self._data.draw(st.integers(0, 99)) >= 100 - percent
