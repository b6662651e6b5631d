"""Counts how many schedules of a search still show something new, and how well that was predicted.

    python -m tests.support.new_states [--protocol kafka] [--schedules 10000] [--seed 0]

Prints a row of the table "New states" of docs/speed.md at each checkpoint, once the schedules after
it have shown how good its prediction was: *unseen* is what Good-Turing says of the next schedule,
the last column is the share of as many further schedules (at most 1,000) that showed a joint state
which none of the first had.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from typing import NamedTuple

from harness.search.attempt import attempt
from harness.search.choice_source import RandomChoices
from harness.search.generator import draw_schedule
from harness.search.unseen import UnseenStates

CHECKPOINTS = (100, 200, 300, 500, 750, 1000, 1500, *range(2000, 10_001, 1000))
MOST_FURTHER = 1000


class Checkpoint(NamedTuple):
    """What had been seen after so many schedules, and what Good-Turing said of the next one."""

    schedules: int
    states: int
    steps: int
    orders: int
    unseen: float


def table_row(at: Checkpoint, newest: Sequence[int]) -> str:
    """One row; `newest` has of each schedule the number of the one that first met the newest of its
    states."""
    further = newest[at.schedules : at.schedules + min(at.schedules, MOST_FURTHER)]
    seen = sum(first >= at.schedules for first in further) / len(further)
    return (
        f"| {at.schedules:,} | {at.states:,} | {at.steps:,} | {at.orders:,} "
        f"| {at.unseen:.3f} | {seen:.3f} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.new_states")
    parser.add_argument("--protocol", default="kafka")
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    unseen, first_met = UnseenStates(), dict[int, int]()
    steps, orders = set[int](), set[int]()
    newest: list[int] = []
    waiting: list[Checkpoint] = []
    for number in range(given.schedules):
        rng = random.Random(f"new/{given.seed}/{number}")
        outcome = attempt(draw_schedule(RandomChoices(rng), given.protocol))
        unseen.add(outcome.states)
        steps |= outcome.steps
        orders |= outcome.orders
        met = (first_met.setdefault(state, number) for state in outcome.states)
        newest.append(max(met, default=-1))
        done = number + 1
        if done in CHECKPOINTS:
            made = Checkpoint(done, len(first_met), len(steps), len(orders), unseen.probability)
            waiting.append(made)
            print(f"{made}, {time.process_time():.0f} s of a core", flush=True)
        while waiting and done >= waiting[0].schedules + min(waiting[0].schedules, MOST_FURTHER):
            print(table_row(waiting.pop(0), newest), flush=True)


if __name__ == "__main__":
    main()
