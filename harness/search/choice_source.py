"""Where the choices of a drawn schedule come from: a random generator, a tape, or Hypothesis.

The generator (`harness.search.generator`) serves all. Choices are small and independent. The
simplest value comes first everywhere, so that Hypothesis simplifies towards it.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

Tape = Mapping[str, Sequence[int]]
"""The choices of one draw, by section."""


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

    def section(self, name: str) -> None:
        """The choices that follow belong to a part of the schedule of that name."""
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

    def section(self, name: str) -> None:
        pass


class TapeChoices:
    """The choices of an earlier draw in the sections `keep`, and drawn ones elsewhere.

    `tape` has all that were made. A schedule whose first sections are kept has the same first
    faults, so its run reaches the same state, and continues in another way from there.
    """

    def __init__(self, rng: random.Random, before: Tape, keep: Collection[str]) -> None:
        self.tape: dict[str, list[int]] = {}
        self._rng = rng
        self._before = {name: before[name] for name in keep if name in before}
        self._here: list[int] = []
        self._left: Iterator[int] = iter(())

    def section(self, name: str) -> None:
        self._here = self.tape.setdefault(name, [])
        self._left = iter(self._before.get(name, ()))

    def integer(self, low: int, high: int) -> int:
        return low + self._below(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        return options[self._below(len(options))]

    def chance(self, percent: int) -> bool:
        return self._below(100) < percent

    def _below(self, limit: int) -> int:
        kept = next(self._left, None)
        choice = self._rng.randrange(limit) if kept is None else kept % limit
        self._here.append(choice)
        return choice


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

    def section(self, name: str) -> None:
        pass
