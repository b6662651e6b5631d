"""Explores everything within the bounds: breadth first, in rounds of equally many actions.

Round k holds the states that k counted actions lead to. Within a round, steps and long waits are
followed breadth first too. A violation that takes one action more than its round is put off until
the round has ended. So the first violation is one with the fewest actions, and of these one with
the fewest steps. A large frontier is expanded in slices, by as many processes as there are cores,
and what they find is added in the order of the slices. The result does not depend on the number of
processes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import pickle
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
import psutil

from harness.explore.bounds import Bounds
from harness.explore.expanders import WORKER_SLICE, Expanders, FoundEdge
from harness.explore.known_states import KnownStates
from harness.explore.moves import STEP, Moves, State
from harness.explore.requests import ExplorationLimits
from harness.explore.waits import Action
from harness.sim import compiled
from harness.sim.invariant_checker import Violation
from harness.sim.run import no_collections
from node.formats.errors import UsageError

Outcome = Literal["violation", "none", "time", "memory", "stopped"]
SLICE: Final = 200
"""States that are expanded between two looks at time and memory."""
PARALLEL_FROM: Final = 2 * SLICE
"""Smaller frontiers are expanded by this process."""
AHEAD: Final = 8
"""Slices of each worker between two looks at time and memory."""
MOST_VIOLATIONS: Final = 1000
"""So many are remembered of one length."""
FORMAT: Final = 4
_encoder: Final = msgspec.msgpack.Encoder()


class Counterexample(msgspec.Struct, frozen=True, kw_only=True):
    """A path from the beginning to a violation: its actions, forced steps left out where there is
    no choice."""

    actions: tuple[Any, ...]
    invariant: str
    property: str
    sentence: str
    counted: int


class Exploration(msgspec.Struct, frozen=True, kw_only=True):
    """The result. `edges` are the actions and steps that led from a state to another, `nodes` the
    states of single nodes, `steps` the steps of single nodes that were made. `rounds` is the number
    of counted actions that were tried on one path, `depth` the longest way within a round.

    Of a check: `rechecked` is the number of other forms of merged nodes, `repeated` of the steps
    that were made again from these, `differences` of those that came to something else, `unchecked`
    of those that a limit left.
    """

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
    rechecked: int = 0
    repeated: int = 0
    differences: int = 0
    unchecked: int = 0
    counterexamples: tuple[Counterexample, ...] = ()


class _Edge(NamedTuple):
    """An action that violates something, and the number of the state that it happens in."""

    before: int
    action: Action
    violation: Violation
    costs: bool


_Numbered = tuple[int, State]


class _Frontier(NamedTuple):
    """Where an exploration stands: the round, states of it that are still to be expanded at this
    depth and at the next, and those of the next round."""

    round: int
    depth: int
    now: list[_Numbered]
    deeper: list[_Numbered]
    next_round: list[_Numbered]


class Explorer:
    """One exploration, which can be stopped, kept in a file and continued."""

    def __init__(
        self,
        bounds: Bounds,
        *,
        inner: bool = False,
        check: bool = False,
        reduced: bool = True,
        cores: int = 1,
    ) -> None:
        """Without `reduced` states that can do no more than another are followed too."""
        self.moves = Moves(bounds, inner=inner, check=check, reduced=reduced)
        self.bounds = bounds
        self._inner = inner
        self._check = check
        # The states of a check are compared in this process, which must have made them.
        self._cores = 1 if check else cores
        self._workers: Expanders | None = None
        self._known = KnownStates(reduced=reduced)
        # By the state after it: violations with as many actions as the round has, and one more.
        self._bad: dict[State, _Edge] = {}
        self._bad_next: dict[State, _Edge] = {}
        self._edges = 0
        self._deepest = 0
        self._spent_s = 0.0
        self._digest = b""
        self._frontier: _Frontier | None = None

    def run(
        self,
        limits: ExplorationLimits,
        *,
        stop: Callable[[], bool] = lambda: False,
        told: Callable[[str], None] = lambda line: None,
        keep: Path | None = None,
    ) -> Exploration:
        """Explore until the end, the first violation, or a limit. With `keep`, what is known is
        written there when a limit or `stop` ends it, and at the end of each round."""
        began_s, wall_s, before_s = self._cpu_s(), time.monotonic(), self._spent_s
        if self._frontier is None:
            first = self.moves.boot()
            self._known.add(self.moves.key(first), first, 0, before=-1, action=STEP, costs=False)
            self._frontier = _Frontier(0, 0, [(0, first)], [], [])
        outcome: Outcome | None = None
        # What it makes stays, and has no cycles: to look for them would take long.
        with no_collections(), self._ended_workers():
            while outcome is None:
                outcome = self._round(limits, lambda: before_s + self._cpu_s() - began_s, stop)
                self._spent_s = before_s + self._cpu_s() - began_s
                told(self._status())
                if keep is not None:
                    self._keep(keep)
            rechecked = self.moves.local.merged
            repeated = differences = unchecked = 0
            if self._check:
                late = functools.partial(
                    self._limit, limits, lambda: before_s + self._cpu_s() - began_s, stop
                )
                repeated, differences, unchecked = self._rechecked(late, told)
            memory_mb = self._memory_mb()
        return Exploration(
            bounds=self.bounds,
            outcome=outcome,
            states=len(self._known),
            edges=self._edges,
            nodes=len(self.moves.local),
            steps=self.moves.local.made,
            rounds=self._frontier.round,
            depth=self._deepest,
            cpu_s=before_s + self._cpu_s() - began_s,
            wall_s=time.monotonic() - wall_s,
            memory_mb=memory_mb,
            digest=self._digest.hex(),
            rechecked=rechecked,
            repeated=repeated,
            differences=differences,
            unchecked=unchecked,
            counterexamples=tuple(self._counterexamples(limits.more)),
        )

    def _rechecked(
        self, late: Callable[[], Outcome | None], told: Callable[[str], None]
    ) -> tuple[int, int, int]:
        """Make the steps again from other forms of merged nodes, until it is late. How many were
        made, how many of these differ, and how many are left."""
        whole = self.moves.local.repeatable
        repeated = differences = 0
        steps = self.moves.local.repeated()
        while late() is None and (some := list(itertools.islice(steps, SLICE))):
            repeated += len(some)
            differences += sum(some)
            told(f"checked {repeated:,} of {whole:,} steps, {differences} differ")
        return repeated, differences, whole - repeated

    # -- rounds

    def _round(
        self, limits: ExplorationLimits, spent_s: Callable[[], float], stop: Callable[[], bool]
    ) -> Outcome | None:
        """Go on with this round to its end. Returns how the exploration ended, None if it did
        not."""
        assert self._frontier is not None
        number, depth, now, deeper, next_round = self._frontier
        some = SLICE if self._cores == 1 else AHEAD * WORKER_SLICE * self._cores
        while now or deeper:
            if not now:
                if self._bad:
                    break
                now, deeper, depth = deeper, [], depth + 1
                self._deepest = max(self._deepest, depth)
            for before, edges in self._expanded(now[:some]):
                self._add(before, edges, number, deeper, next_round)
            now = now[some:]
            self._frontier = _Frontier(number, depth, now, deeper, next_round)
            if (late := self._limit(limits, spent_s, stop)) is not None:
                return late
        self._bad = self._bad or self._bad_next
        if self._bad:
            return "violation"
        # What takes an action less may have been found later.
        now = [
            (n, s)
            for n, s in next_round
            if not self._known.is_covered(self.moves.key(s), s, number + 1)
        ]
        if not now:
            return "none"
        self._frontier = _Frontier(number + 1, 0, now, [], [])
        return None

    def _limit(
        self, limits: ExplorationLimits, spent_s: Callable[[], float], stop: Callable[[], bool]
    ) -> Outcome | None:
        if stop():
            return "stopped"
        if limits.seconds and spent_s() >= limits.seconds:
            return "time"
        if limits.memory_mb and self._memory_mb() >= limits.memory_mb:
            return "memory"
        return None

    def _add(
        self,
        before: int,
        edges: list[FoundEdge],
        round_: int,
        deeper: list[_Numbered],
        next_round: list[_Numbered],
    ) -> None:
        """Take in all that can happen in a state."""
        for action, after, violation, costs in edges:
            self._edges += 1
            if violation is not None:
                # The state may be known: what is violated is shown by the way to it.
                found = self._bad_next if costs else self._bad
                if len(found) < MOST_VIOLATIONS:
                    found.setdefault(after, _Edge(before, action, violation, costs))
                continue
            key = self.moves.key(after)
            number = self._known.add(
                key, after, round_ + costs, before=before, action=action, costs=costs
            )
            if number is None:
                continue
            whole = _encoder.encode((self._digest, key, after.held, after.left, action))
            self._digest = hashlib.blake2b(whole, digest_size=8).digest()
            (next_round if costs else deeper).append((number, after))

    # -- expansion

    def _expanded(self, states: list[_Numbered]) -> Iterator[tuple[int, list[FoundEdge]]]:
        """The number of each state with all that can happen in it."""
        if self._cores == 1 or len(states) < PARALLEL_FROM:
            for number, state in states:
                yield (
                    number,
                    [(e.action, e.state, e.violation, e.costs) for e in self.moves.edges(state)],
                )
            return
        if self._workers is None:
            self._workers = Expanders(self.moves, self._cores)
        yield from self._workers.expanded(states)

    @contextlib.contextmanager
    def _ended_workers(self) -> Iterator[None]:
        """In this context there may be workers; none outlives it."""
        try:
            yield
        finally:
            if self._workers is not None:
                self._workers.close()
                self._workers = None

    def _cpu_s(self) -> float:
        """Processor time of this process, of its workers, and of those that ended."""
        own, ended = (
            resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        alive = 0.0 if self._workers is None else self._workers.cpu_s
        return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime + alive

    def _memory_mb(self) -> int:
        """Resident now: what this process once had for something else does not count."""
        own = int(psutil.Process().memory_info().rss) >> 20
        return own if self._workers is None else own + self._workers.memory_mb

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
        assert self._frontier is not None
        return (
            f"{self._frontier.round} actions: {len(self._known):,} states, "
            f"{len(self.moves.local):,} of nodes, {self._spent_s:.0f} s, {self._memory_mb():,} MiB"
        )

    # -- a file to continue from

    def _keep(self, file: Path) -> None:
        """Write down everything, whole or not at all."""
        new = file.with_suffix(".new")
        with new.open("wb") as out:
            pickle.dump(self._head(), out, 5)
            pickle.dump(tuple(getattr(self, name) for name in _KEPT), out, 5)
        new.replace(file)

    def _head(self) -> tuple[Any, ...]:
        """What must be the same for an exploration to be continued."""
        return FORMAT, compiled.key(), self.bounds, self._inner, self._check

    @classmethod
    def continued(
        cls, file: Path, bounds: Bounds, *, inner: bool, check: bool, cores: int
    ) -> Explorer:
        """The exploration that a file has. Raises UsageError when it is one of something else."""
        made = cls(bounds, inner=inner, check=check, cores=cores)
        another = "name another file with --checkpoint"
        try:
            with file.open("rb") as kept:
                if pickle.load(kept) != made._head():
                    raise UsageError(
                        f"{file}: is of other bounds or of other sources of floodmark; {another}"
                    )
                values = pickle.load(kept)
        except UsageError:
            raise
        except Exception as error:  # A damaged pickle can raise anything.
            raise UsageError(f"{file}: cannot be continued: {error}; {another}") from None
        for name, value in zip(_KEPT, values, strict=True):
            setattr(made, name, value)
        return made


_KEPT: Final = (
    *("moves", "_known", "_bad", "_bad_next", "_edges", "_deepest"),
    *("_spent_s", "_digest", "_frontier"),
)
"""What a file to continue from has of an exploration."""
