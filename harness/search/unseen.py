"""How probable it is that the next schedule shows a joint state that no schedule before it showed.

The estimate is that of Good and Turing with whole schedules left out one at a time: the share of
schedules that met a state which no other one met. I. J. Good, "The Population Frequencies of
Species and the Estimation of Population Parameters" (1953); for fuzzing Böhme, "STADS" (2018).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MOST_STATES: Final = 4_000_000
"""The number of states that are remembered; with more the estimate stays what it was."""
_SEVERAL: Final = -1
_RELATED: Final = -2


class UnseenStates:
    """Counts the states of schedules. The estimate is from those that were drawn independently and
    alike (`add`); of all others only the states are known (`add_related`)."""

    def __init__(self) -> None:
        self.schedules = 0
        self._met_by: dict[int, int] = {}
        self._own: dict[int, int] = {}

    @property
    def distinct(self) -> int:
        """How many states were met."""
        return len(self._met_by)

    @property
    def probability(self) -> float:
        """That the next schedule shows a state never seen; 1 before the first."""
        return len(self._own) / self.schedules if self.schedules else 1.0

    def add(self, states: Iterable[int]) -> None:
        """The states that one more schedule met."""
        if len(self._met_by) >= MOST_STATES:
            return
        number = self.schedules
        self.schedules += 1
        own = 0
        for state in states:
            before = self._met_by.setdefault(state, number)
            if before == _RELATED:
                self._met_by[state] = before = number
            if before == number:
                own += 1
            elif before != _SEVERAL:
                self._met_by[state] = _SEVERAL
                self._give_up(before)
        if own:
            self._own[number] = own

    def add_related(self, states: Iterable[int]) -> None:
        """The states that a schedule met which was made from another one. It meets most of the same
        states, so that as a draw of its own it would make new states look too improbable."""
        if len(self._met_by) < MOST_STATES:
            for state in states:
                self._met_by.setdefault(state, _RELATED)

    def _give_up(self, number: int) -> None:
        """A state of that schedule was met by another one too."""
        self._own[number] -= 1
        if not self._own[number]:
            del self._own[number]
