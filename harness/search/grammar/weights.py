"""The weights with which the grammar draws: the one table.

A kind of fault that is not listed has a weight too. Every value that a user can set has a weight
above zero. `python -m tests.lab small_bugs --lists U V` measures a change."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

WEIGHTS: Final[Mapping[str, Mapping[str, float]]] = {
    "phrase": {"atom": 4, "then": 7, "during": 11, "repeat": 6, "stale": 4, "only": 2},
    "moment": {"event": 10, "with": 5, "end": 3, "later": 3},
    "first": {"time": 4, "event": 5},
    "kinds": {"1": 1, "2": 2, "3": 4, "4": 4, "6": 3, "9": 1},
    "kind": {
        "kill": 6,
        "stop": 3,
        "power-cut": 6,
        "pause": 5,
        "isolate": 14,
        "cut": 8,
        "link": 24,
        "break": 12,
        "elect-preferred": 14,
        "reassign": 8,
        "set-min-isr": 8,
        "bit-flip": 3,
        "torn-write": 3,
        "disk-emptied": 4,
        "fsync-error": 2,
        "resume": 3,
        "loss": 2,
        "delay": 2,
    },
    "broker": {
        "leader": 10,
        "first": 4,
        "second": 5,
        "third": 4,
        "follower": 3,
        "any": 1,
        "last": 2,
    },
    "else": {"controller": 3, "voters": 3, "clients": 2, "all": 1, "followers": 2, "lagging": 1},
    "threshold": {"session_ms": 5, "lag_ms": 3, "election_max_ms": 3, "fetch_timeout_ms": 1},
    "factor": {"0": 1, "0.1": 2, "0.3": 1, "0.6": 1, "1.3": 6, "1.8": 5, "2.5": 3, "4": 1, "8": 1},
    "down": {"0": 3, "0.1": 3, "0.3": 2, "0.6": 1, "1.3": 4, "1.8": 3, "2.5": 2, "4": 1, "8": 0.3},
    "other": {"rest": 4, "voters": 5, "clients": 2, "leader": 4, "cast": 3},
    "inner": {"leader": 6, "phrase": 3, "order": 2},
    "late": {"hold": 4, "duplicate": 3, "delay": 2},
    "late by": {"0.3": 2, "0.6": 3, "1": 3, "1.5": 2, "2.5": 1},
    "meanwhile": {"append": 5, "hw": 2, "ack": 2, "later": 4},
    "soon": {"1": 1, "20": 2, "40": 2, "60": 3, "100": 3, "200": 1},
    "delay": {"0": 10, "1": 2, "5": 2, "20": 3, "60": 3, "150": 2},
    "causes": {
        "flow": 4,
        "another replica leads": 8,
        "a replica leaves the ISR, or enters it": 5,
        "a process starts again": 6,
    },
    "flow": {"append": 3, "hw": 4, "ack": 2},
    "another replica leads": {
        "role": 9,
        "hw": 3,
        "append": 2,
        "partition": 2,
        "truncated": 2,
        "diverging": 1,
        "vote": 1,
    },
    "a replica leaves the ISR, or enters it": {"proposed": 3, "isr": 3, "partition": 3},
    "a process starts again": {
        "registered": 4,
        "started": 3,
        "role": 3,
        "append": 3,
        "truncated": 1,
    },
    "from": {"last": 7, "earlier": 3, "": 1},
    "nth": {"1": 8, "2": 3, "3": 1},
    "brokers": {"3": 6, "4": 2, "2": 2, "5": 0.5},
    "replication_factor": {"3": 8, "2": 2, "4": 0.7, "5": 0.6, "1": 0.5},
    "min_isr": {"2": 5, "1": 4, "3": 1},
    "voters": {"1": 8, "3": 2, "5": 0.7},
    "partitions": {"1": 8, "2": 1, "3": 0.3},
    "flush": {"sync": 2, "async": 1},
    "flush_interval_ms": {"1000": 1, "200": 1},
    "unclean_election": {"": 12, "1": 1},
    "retention_records": {"0": 14, "1": 0.5, "2": 0.5, "5": 0.5},
    "fetch_max_bytes": {"": 5, "1": 1, "200": 0.5},
    "clients": {"2": 3, "1": 2, "3": 2},
    "consumers": {"1": 6, "2": 2, "0": 1},
    "rate": {"20": 3, "10": 2, "40": 3},
    "batch": {"1": 3, "3": 2},
    "batch_most": {"0": 6, "3": 2, "5": 1, "20": 0.8},
    "spread": {"even": 4, "zipf": 1},
    "acks": {"-1": 20, "1": 1, "0": 1.5},
    "in_flight": {"1": 5, "2": 1, "4": 1},
    "idempotent": {"": 5, "1": 1},
    "members": {"0": 14, "1": 0.3, "2": 0.4, "3": 0.3},
    "timeout_ms": {"200": 3, "100": 2, "600": 2, "1000": 1, "2000": 0.2},
    "timeout_ms of members": {"200": 1, "100": 0.5, "600": 3, "1000": 4, "2000": 3},
    "timings": {"0": 1, "1": 1, "2": 1, "3": 1, "4": 1},
}


UNLISTED: Final = 1.4
"""The weight of a value that a group of the table does not list."""


class Choices:
    """The random choices of one schedule."""

    def __init__(self, rng: random.Random) -> None:
        """Prepare to draw with `rng`."""
        self.rng = rng

    def of(self, group: str, *without: str) -> str:
        """Draw a value of a group of the table, none of `without`."""
        values = {name: weight for name, weight in WEIGHTS[group].items() if name not in without}
        return self.rng.choices(list(values), list(values.values()))[0]

    def number(self, group: str) -> int:
        """Draw a value of a group of whole numbers."""
        return int(self.of(group))

    def some(self, group: str, names: list[str], count: int, power: float = 1.0) -> tuple[str, ...]:
        """Draw up to `count` different names with the weights of a group, raised to a power."""
        left, chosen = list(names), list[str]()
        while left and len(chosen) < count:
            weights = [WEIGHTS[group].get(name, UNLISTED) ** power for name in left]
            chosen.append(self.rng.choices(left, weights)[0])
            left.remove(chosen[-1])
        return tuple(chosen)

    def chance(self, percent: float) -> bool:
        """Return True with a probability of `percent`."""
        return self.rng.random() * 100 < percent
