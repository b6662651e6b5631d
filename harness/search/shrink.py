"""Cuts a failing schedule down to what its failure needs: our own delta debugging.

Greedy and deterministic: the same schedule and the same judge give the same result. A smaller
candidate is taken only when it still fails *in the same way* (the judge says so): one failure
class stays one class. In order of importance: fewest faults, then operations, brokers and
clients, then the plainest faults and the shortest times. Passes repeat until none of them helps.
Whatever the budget, in the end each fault that is left is needed: without it nothing fails alike.

Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), for the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from msgspec.structs import replace

from harness.search.shrink_passes import (
    fewer_by_chance,
    fewer_operations,
    joined_faults,
    lower_names,
    plainer_faults,
    possible,
    smaller_clusters,
    smaller_workloads,
    without_each_fault,
)
from nemesis.formats.schedule import Fault, Schedule

T = TypeVar("T")

Anew = Callable[[Schedule, int], Iterator[Schedule]]
"""Smaller schedules without the fault of that number, that go on otherwise."""
FailsAlike = Callable[[Schedule], bool]
"""Whether a schedule still fails in the way that is being shrunk."""

DEFAULT_TRIES: Final = 2_000


@dataclass(slots=True)
class Shrinking:
    """One shrink in progress: the smallest failing schedule so far, and what it cost.

    `anew` proposes schedules that go on otherwise where a fault is left out, see `anew.py`.
    `tries` counts runs of the judge; at `max_tries` the shrink stops with what it has
    (`exhausted`), but for faults that are not needed. Candidates judged once are not judged again.
    """

    smallest: Schedule
    fails_alike: FailsAlike
    max_tries: int = DEFAULT_TRIES
    anew: Anew | None = None
    tries: int = 0
    _known: dict[str, bool] = field(default_factory=dict)

    @property
    def exhausted(self) -> bool:
        """Whether the budget ended the shrink before it was done."""
        return self.tries >= self.max_tries

    def run(self) -> Schedule:
        """Shrink until no pass makes it smaller. Returns the smallest found."""
        while True:
            before = self.smallest
            self._fewer_faults()
            self._take_any(joined_faults)
            self._take_any(lower_names)
            self._take_any(fewer_operations)
            self._take_any(smaller_workloads)
            self._take_any(smaller_clusters)
            self._take_any(plainer_faults)
            if self.smallest == before:
                self._take_any(fewer_by_chance)
                self._go_on_otherwise()
            if self.smallest == before or self.exhausted:
                self._only_needed_faults()
                return self.smallest

    def _only_needed_faults(self) -> None:
        """Leave out each fault that the failure does without, budget or not: one that is left in
        for want of tries would be taken for a cause."""
        while any(self._try(fewer, beyond=True) for fewer in without_each_fault(self.smallest)):
            pass

    def _fewer_faults(self) -> None:
        """Delta debugging over the list of faults, whole chunks first."""

        def fails(faults: Sequence[Fault]) -> bool:
            return self._try(_with_faults(self.smallest, faults))

        minimize_list(list(self.smallest.faults), fails)

    def _go_on_otherwise(self) -> None:
        """Leave out each fault in turn, and end in another way."""
        at = 0
        while self.anew is not None and at < len(self.smallest.faults) and not self.exhausted:
            if not any(self._try(candidate) for candidate in self.anew(self.smallest, at)):
                at += 1

    def _take_any(self, propose: Callable[[Schedule], Iterator[Schedule]]) -> None:
        """One sweep over the proposals: after one that still fails, those of the smaller schedule
        from the same place on. What was refused before is left to the next sweep: to begin again
        each time would judge nearly everything again."""
        proposals, at = list(propose(self.smallest)), 0
        while at < len(proposals) and not self.exhausted:
            if self._try(proposals[at]):
                proposals = list(propose(self.smallest))
            else:
                at += 1

    def _try(self, candidate: Schedule, *, beyond: bool = False) -> bool:
        """Judge a candidate once, `beyond` the budget if need be; it becomes the smallest when it
        fails alike."""
        if candidate == self.smallest:
            return False
        key = candidate.digest()
        if key not in self._known:
            if (self.exhausted and not beyond) or not possible(candidate):
                return False
            self.tries += 1
            self._known[key] = self.fails_alike(candidate)
        if self._known[key]:
            self.smallest = candidate
        return self._known[key]


def minimize_list(items: list[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """The items that remain when no chunk can be left out: ddmin's complements, then singles.

    `fails(items)` is taken for granted; the result is 1-minimal as far as `fails` was true to it.
    """
    chunk = max(1, len(items) // 2)
    while items:
        at, removed = 0, False
        while at < len(items):
            rest = items[:at] + items[at + chunk :]
            if fails(rest):
                items, removed = rest, True
            else:
                at += chunk
        if chunk == 1 and not removed:
            break
        chunk = max(1, chunk // 2) if not removed else min(chunk, max(1, len(items) // 2))
    return items


def _with_faults(schedule: Schedule, faults: Sequence[Fault]) -> Schedule:
    return replace(schedule, faults=tuple(faults))
