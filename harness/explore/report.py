"""The report of an exploration: what was explored, under which reductions, and what was found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from harness.explore.bounds import Bounds
from harness.explore.explorer import Counterexample, Exploration

REDUCTIONS: Final = (
    "messages arrive in the order in which they were sent, but those that are delayed",
    "a wait ends only when no message is under way; a long one (session, lag, election) only for "
    "somebody silent, when no shorter wait changes anything",
    "an action on a node comes just before a step of that node, or at rest; processes start, links "
    "fail and commands are given at rest",
    "waits that change nothing are interrupted only by records and by faults of messages",
    "fields of a node that decide nothing have one value, and messages that nobody will hear are "
    "no part of a state",
    "a state that can do no more than a known one is not followed",
    "nodes and states count as one when their canonical values have the same hash of 128 bits",
)
"""Assumptions of every exploration; docs/explore.md has the reasons."""

_ENDED: Final = {
    "none": "none within the bounds",
    "time": "open at the time bound",
    "memory": "open at the memory bound",
    "stopped": "open: stopped",
}
_SHOWN: Final = {"kill": 2, "release": 1}
"""How many words of such an action say something to a person."""


def lines(result: Exploration, first: Counterexample | None) -> Iterator[str]:
    """Yield the lines that tell a person the result, with the path to a violation."""
    yield result.bounds.words()
    yield (
        f"{result.states:,} states, {result.edges:,} transitions, {result.nodes:,} states of nodes "
        f"({result.steps:,} steps); {result.rounds} actions deep, {result.depth} steps between two"
    )
    yield (
        f"{result.cpu_s:.1f} s of processor time, {result.wall_s:.1f} s, {result.memory_mb:,} MiB; "
        f"digest {result.digest}"
    )
    yield from (f"reduced: {words}" for words in REDUCTIONS)
    if first is not None:
        yield f"violated: {first.invariant} ({first.property}): {first.sentence}"
        yield from (
            f"  {number}. {words}"
            for number, words in enumerate(sentences(result.bounds, first), 1)
        )
    else:
        yield f"counterexample: {_ENDED[result.outcome]}"


def sentences(bounds: Bounds, found: Counterexample) -> Iterator[str]:
    """Yield the actions of a counterexample, a line each; forced steps in a row share one."""
    names = (*bounds.cluster().voter_names(), *bounds.cluster().broker_names())
    steps = 0
    for action in found.actions:
        if action[0] == "step":
            steps += 1
            continue
        if steps:
            yield f"{steps} more {'step' if steps == 1 else 'steps'} without a choice"
            steps = 0
        yield _words(names, action)


def _words(names: tuple[str, ...], about: Any) -> str:
    """Return an action as its kind and what it is about: `expire n2 fetch/log-0`."""
    if not isinstance(about, tuple | list):
        return names[about] if isinstance(about, int) else str(about)
    return " ".join(_words(names, each) for each in about[: _SHOWN.get(about[0])])
