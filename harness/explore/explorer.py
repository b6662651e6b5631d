"""A search of all states of a cluster within the bounds, breadth first, in rounds.

Round k holds the states that are reached with k actions that the bounds count. Within a round,
forced steps and the ends of long waits (not counted) are followed breadth first too. A violation of
round k that takes k+1 actions is reported only after the round. So the first violation that is
reported is one with the fewest actions, and among those one with the fewest steps.

A new state is not followed if a known one covers it: the two have the same nodes, messages and
memory of the invariants, and in the known one at least the same actions may still happen and the
same late messages may still arrive. The known one was reached with no more actions, so whatever the
new one leads to is reached from it as soon."""

from __future__ import annotations

import hashlib
import itertools
import operator
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import msgspec
import psutil

from harness.explore.bounds import Bounds
from harness.explore.model import STEP, Edge, Model, State
from harness.explore.waits import Action
from harness.sim.invariant_checker import Violation
from harness.sim.run import no_collections

Outcome = Literal["violation", "none", "time", "memory", "stopped"]
SLICE: Final = 200
"""The number of states that are expanded between two checks of time and memory."""
MOST_VIOLATIONS: Final = 1000
"""The largest number of violations of one length that are remembered."""
_encoder: Final = msgspec.msgpack.Encoder()


class Counterexample(msgspec.Struct, frozen=True, kw_only=True):
    """A path from the first state to a violation. Forced steps are listed only if another action
    was possible at their place. `counted` is the number of actions that the bounds count."""

    actions: tuple[Any, ...]
    invariant: str
    property: str
    sentence: str
    counted: int


class Exploration(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an exploration. `edges` is the number of transitions between states of the
    cluster, `nodes` the number of different states of single nodes, `steps` the number of steps of
    single nodes. `rounds` is the largest number of counted actions that was tried on one path,
    `depth` the length of the longest path within a round."""

    bounds: Bounds
    outcome: Outcome
    states: int
    edges: int
    nodes: int
    steps: int
    rounds: int
    depth: int
    cpu_s: float
    wall_s: float
    memory_mb: int
    digest: str
    counterexamples: tuple[Counterexample, ...] = ()


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


class _Edge(NamedTuple):
    """An action that violates an invariant, and the number of the state in which it happens."""

    before: int
    action: Action
    violation: Violation
    costs: bool


_Numbered = tuple[int, State]


class Explorer:
    """One exploration within some bounds, to be run once. `_bad` and `_bad_next` have violations by
    the state after them; those in `_bad_next` take one action more than the round."""

    def __init__(self, bounds: Bounds, *, check: bool = False, reduced: bool = True) -> None:
        """With `check`, other forms of merged node states are kept, to be stepped again. Without
        `reduced`, a state is followed even if a known one covers it."""
        self.bounds = bounds
        self.model = Model(bounds, check=check, reduced=reduced)
        self._known = KnownStates(reduced=reduced)
        self._bad: dict[State, _Edge] = {}
        self._bad_next: dict[State, _Edge] = {}
        self._edges = 0
        self._rounds = 0
        self._deepest = 0
        self._digest = b""
        self._began_s = time.process_time()

    def run(
        self,
        seconds: float = 0.0,
        memory_mb: int = 0,
        *,
        more: int = 6,
        stop: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = lambda line: None,
    ) -> Exploration:
        """Explore until all states are known, a violation is found, processor time or resident
        memory reach a limit (0: no limit), or `stop` returns True. After the first violation, up to
        `more` others of the same round are collected. The last argument is called with a line on
        the progress after each round."""
        self._began_s, wall_s = time.process_time(), time.monotonic()
        first = self.model.boot()
        self._known.add(self.model.key(first), first, 0, before=-1, action=STEP, costs=False)
        states = [(0, first)]
        outcome: Outcome | None = None
        # Objects made here stay, and are in no cycles; the garbage collector would search them in
        # vain.
        with no_collections():
            while outcome is None:
                outcome, states = self._round(
                    states, partial(self._limit, seconds, memory_mb, stop)
                )
                tell(self._status())
            resident_mb = self._memory_mb()
        return Exploration(
            bounds=self.bounds,
            outcome=outcome,
            states=len(self._known),
            edges=self._edges,
            nodes=len(self.model.local),
            steps=self.model.local.made,
            rounds=self._rounds,
            depth=self._deepest,
            cpu_s=self._spent_s(),
            wall_s=time.monotonic() - wall_s,
            memory_mb=resident_mb,
            digest=self._digest.hex(),
            counterexamples=tuple(self._counterexamples(more)),
        )

    # -- rounds

    def _round(
        self, now: list[_Numbered], limit: Callable[[], Outcome | None]
    ) -> tuple[Outcome | None, list[_Numbered]]:
        """Follow the states of a round to its end. Return the outcome, or the next states."""
        depth = 0
        deeper: list[_Numbered] = []
        next_round: list[_Numbered] = []
        while now or (deeper and not self._bad):
            if not now:
                now, deeper, depth = deeper, [], depth + 1
                self._deepest = max(self._deepest, depth)
            for before, state in now[:SLICE]:
                self._add(before, self.model.edges(state), deeper, next_round)
            now = now[SLICE:]
            if (late := limit()) is not None:
                return late, []
        self._bad = self._bad or self._bad_next
        if self._bad:
            return "violation", []
        # A path with one action less may have been found later.
        now = [
            (n, s)
            for n, s in next_round
            if not self._known.is_covered(self.model.key(s), s, self._rounds + 1)
        ]
        if not now:
            return "none", []
        self._rounds += 1
        return None, now

    def _limit(self, seconds: float, memory_mb: int, stop: Callable[[], bool]) -> Outcome | None:
        if stop():
            return "stopped"
        if seconds and self._spent_s() >= seconds:
            return "time"
        if memory_mb and self._memory_mb() >= memory_mb:
            return "memory"
        return None

    def _add(
        self,
        before: int,
        edges: Iterator[Edge],
        deeper: list[_Numbered],
        next_round: list[_Numbered],
    ) -> None:
        """Add the states that all possible actions in a state lead to."""
        for action, after, violation, costs in edges:
            self._edges += 1
            if violation is not None:
                # The state may be known; the violation is one of the path to it.
                bad = self._bad_next if costs else self._bad
                if len(bad) < MOST_VIOLATIONS:
                    bad.setdefault(after, _Edge(before, action, violation, costs))
                continue
            key = self.model.key(after)
            number = self._known.add(
                key, after, self._rounds + costs, before=before, action=action, costs=costs
            )
            if number is None:
                continue
            whole = _encoder.encode((self._digest, key, after.held, after.left, action))
            self._digest = hashlib.blake2b(whole, digest_size=8).digest()
            (next_round if costs else deeper).append((number, after))

    def _spent_s(self) -> float:
        return time.process_time() - self._began_s

    def _memory_mb(self) -> int:
        """Return the resident memory now, in MiB; earlier peaks do not count."""
        return int(psutil.Process().memory_info().rss) >> 20

    # -- results

    def _counterexamples(self, most: int) -> Iterator[Counterexample]:
        for before, last, violation, costs in itertools.islice(self._bad.values(), most):
            way = [(last, costs), *self._known.way_to(before)]
            yield Counterexample(
                actions=tuple(action for action, _ in reversed(way)),
                invariant=violation.invariant,
                property=violation.property,
                sentence=violation.sentence,
                counted=sum(counts for _, counts in way),
            )

    def _status(self) -> str:
        nodes, memory_mb = len(self.model.local), self._memory_mb()
        return (
            f"{self._rounds} actions: {len(self._known):,} states, {nodes:,} of nodes, "
            f"{self._spent_s():.0f} s, {memory_mb:,} MiB"
        )
