"""Processes that expand states for an explorer, each with tables of its own.

A worker is a fork of the explorer and lives until the exploration ends, so it keeps what it
remembers. Nodes and messages have other numbers in each process. What one process sends another
therefore begins with all that its tables have got since the last time. The receiver adds it, and
then knows what each number of the sender is here.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

import psutil

from harness.explore.local_steps import News, Renumbered
from harness.explore.moves import Moves, State
from harness.explore.waits import Action
from harness.sim.invariant_checker import Violation
from node.formats.errors import FloodmarkError
from node.runtime.children import settle_in
from node.runtime.reap import REAP_S

WORKER_SLICE: Final = 200
"""States that a worker gets at once."""
WORKER_S: Final = 3600.0
"""How long a worker may take for these, which takes it less than a second."""
IDLE_S: Final = 3600.0
"""How long a worker waits for the next ones."""
ENDED: Final = "a worker of the exploration ended by itself; with --cores 1 there are none"

FoundEdge = tuple[Action, State, Violation | None, bool]
"""The fields of an `Edge`."""


class Translation:
    """What the numbers of another process are here. It began with the same tables."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves
        self._told = moves.local.size
        self._numbers = Renumbered(list(range(self._told.nodes)), list(range(self._told.messages)))

    def news(self) -> News:
        """What the tables have got here since the last time, also what came from the other one:
        only so does it know the numbers of that."""
        made = self._moves.local.news(self._told)
        self._told = self._moves.local.size
        return made

    def learn(self, news: News) -> None:
        """Take in what the other one found."""
        self._moves.local.add(news, self._numbers)

    def state(self, state: State) -> State:
        """A state of the other process. Held messages keep their order, which an action may name
        them by."""
        nodes, messages = self._numbers
        return state._replace(
            nodes=tuple(nodes[n] for n in state.nodes),
            queue=tuple((a, b, messages[m]) for a, b, m in state.queue),
            held=tuple((a, b, messages[m]) for a, b, m in state.held),
            memory=self._moves.judge.known(state.memory),
        )


def in_order(state: State) -> State:
    """The same state, its held messages in the order of their numbers here."""
    return state._replace(held=tuple(sorted(state.held))) if len(state.held) > 1 else state


class _Expander:
    """One process, as the explorer sees it."""

    def __init__(self, moves: Moves) -> None:
        fork = multiprocessing.get_context("fork")
        self._translation = Translation(moves)
        self._ours, theirs = fork.Pipe()
        self._process = fork.Process(target=_serve, args=(moves, theirs, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()
        self._seen = psutil.Process(self._process.pid)

    def ask(self, states: Sequence[State]) -> None:
        """Let it expand these states. Raises FloodmarkError."""
        asked = pickle.dumps((self._translation.news(), states), 5)
        try:
            self._ours.send_bytes(asked)
        except ConnectionError:
            raise FloodmarkError(ENDED) from None

    def answer(self) -> list[list[FoundEdge]]:
        """What each of the states that it was asked for leads to. Raises FloodmarkError."""
        try:
            if not self._ours.poll(WORKER_S):
                raise FloodmarkError(
                    f"a worker of the exploration took over {WORKER_S:g} s; "
                    "with --cores 1 there are none"
                )
            news, found = pickle.loads(self._ours.recv_bytes())
        except (EOFError, ConnectionError):
            raise FloodmarkError(ENDED) from None
        self._translation.learn(news)
        here = self._translation.state
        return [[(a, in_order(here(s)), v, c) for a, s, v, c in edges] for edges in found]

    @property
    def cpu_s(self) -> float:
        """Processor time so far."""
        times = self._seen.cpu_times()
        return float(times.user + times.system)

    @property
    def memory_mb(self) -> int:
        """Resident now, what it shares with others included."""
        return int(self._seen.memory_info().rss) >> 20

    def close(self) -> None:
        """End the process."""
        self._ours.close()
        self._process.kill()
        self._process.join(REAP_S)


class Expanders:
    """As many processes as there are cores."""

    def __init__(self, moves: Moves, cores: int) -> None:
        self._workers = [_Expander(moves) for _ in range(cores)]

    def expanded(
        self, states: Sequence[tuple[int, State]]
    ) -> Iterator[tuple[int, list[FoundEdge]]]:
        """The number of each state with all that can happen in it, in the order of the states. A
        worker that has answered gets its next states before its answer is looked at."""
        slices = [states[at : at + WORKER_SLICE] for at in range(0, len(states), WORKER_SLICE)]
        turns = list(zip(slices, itertools.cycle(self._workers), strict=False))
        ahead = len(self._workers)
        for part, worker in turns[:ahead]:
            worker.ask([state for _, state in part])
        for at, (part, worker) in enumerate(turns):
            found = worker.answer()
            if at + ahead < len(turns):
                worker.ask([state for _, state in slices[at + ahead]])
            for (number, _), edges in zip(part, found, strict=True):
                yield number, edges

    @property
    def cpu_s(self) -> float:
        """Processor time of all."""
        return sum(worker.cpu_s for worker in self._workers)

    @property
    def memory_mb(self) -> int:
        """Resident memory of all."""
        return sum(worker.memory_mb for worker in self._workers)

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.close()


def _serve(moves: Moves, explorer: Connection, parent: int) -> None:
    """In a worker: expand states until the explorer ends it."""
    settle_in(parent, "")
    translation = Translation(moves)
    while explorer.poll(IDLE_S):
        news, states = pickle.loads(explorer.recv_bytes())
        translation.learn(news)
        found: list[list[Any]] = [
            [tuple(edge) for edge in moves.edges(translation.state(state))] for state in states
        ]
        explorer.send_bytes(pickle.dumps((translation.news(), found), 5))
