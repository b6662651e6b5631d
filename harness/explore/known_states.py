"""The states that an exploration has found, each stored as a hash and the path to it.

A new state is not followed if a known one covers it: the two have the same nodes, messages and
memory of the invariants, and in the known one at least the same actions may still happen and the
same late messages may still arrive. The known one was reached with no more actions, so whatever the
new one leads to is reached from it as soon."""

from __future__ import annotations

import operator
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from harness.explore.model import State
from harness.explore.waits import Action


class _Rest(NamedTuple):
    """The parts of a state besides its key: its round, late messages, actions left by kind."""

    round: int
    held: tuple[tuple[int, int, int], ...]
    left: tuple[int, ...]

    def covers(self, other: _Rest) -> bool:
        """Return whether this state allows every continuation of the other, with as few actions."""
        if self.round > other.round or not all(map(operator.ge, self.left, other.left)):
            return False
        mine, theirs = self.held, other.held
        if len(theirs) <= 1:  # nearly always
            return not theirs or theirs[0] in mine
        return mine == theirs or Counter(mine) >= Counter(theirs)


class KnownStates:
    """The states found so far, by number. States that differ only in `_Rest` share a key."""

    def __init__(self, *, reduced: bool = True) -> None:
        self._reduced = reduced
        self._by_key: dict[bytes, tuple[_Rest, ...]] = {}
        # Few differ, so that each is kept once.
        self._rests: dict[_Rest, _Rest] = {}
        self._actions: dict[Action, Action] = {}
        self._before = array("i")
        self._last: list[Action] = []
        self._costs = bytearray()

    def __len__(self) -> int:
        return len(self._before)

    def add(
        self, key: bytes, state: State, round_: int, *, before: int, action: Action, costs: bool
    ) -> int | None:
        """Add the state that `action` leads to from the state number `before`, and return its
        number; None if a known state covers it."""
        rest = self._rest(state, round_)
        found = self._by_key.get(key, ())
        if any(self._covers(known, rest) for known in found):
            return None
        self._by_key[key] = (*(k for k in found if not self._covers(rest, k)), rest)
        self._before.append(before)
        self._last.append(self._actions.setdefault(action, action))
        self._costs.append(costs)
        return len(self) - 1

    def is_covered(self, key: bytes, state: State, round_: int) -> bool:
        """Return whether a state was superseded by a later one that covers it."""
        return self._rest(state, round_) not in self._by_key[key]

    def way_to(self, number: int) -> Iterator[tuple[Action, bool]]:
        """Yield the path to a state, last action first, with whether the bounds count it."""
        while self._before[number] >= 0:
            yield self._last[number], bool(self._costs[number])
            number = self._before[number]

    def _rest(self, state: State, round_: int) -> _Rest:
        rest = _Rest(round_, state.held, state.left)
        return self._rests.setdefault(rest, rest)

    def _covers(self, one: _Rest, other: _Rest) -> bool:
        if not self._reduced:
            return one[1:] == other[1:]
        return one is other or one.covers(other)
