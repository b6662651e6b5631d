"""Components and shortest paths, against definitions, in all graphs of three nodes, some of six."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import numpy as np

from checker.checks.components import shortest_path, strongly_connected_components

Pairs = list[tuple[int, int]]


def graphs() -> Iterable[tuple[int, Pairs]]:
    every = list(itertools.product(range(3), repeat=2))
    for bits in range(1 << len(every)):
        yield 3, [pair for i, pair in enumerate(every) if bits >> i & 1]
    rng = random.Random(6)
    for _ in range(300):
        edges = rng.randrange(1, 14)
        yield 6, [(rng.randrange(6), rng.randrange(6)) for _ in range(edges)]


def distances(count: int, pairs: Pairs) -> dict[tuple[int, int], int]:
    """Return the number of edges from each node to each node that it leads to, at least one."""
    found: dict[tuple[int, int], int] = {}
    reached = {(a, b) for a, b in pairs}
    for steps in range(1, count + 1):
        for pair in reached:
            found.setdefault(pair, steps)
        reached = {(a, c) for a, b in reached for b_, c in pairs if b == b_}
    return found


def test_nodes_that_all_lead_to_each_other_are_a_component() -> None:
    for count, pairs in graphs():
        apart = distances(count, pairs)
        both = {
            n: {m for m in range(count) if (n, m) in apart and (m, n) in apart} | {n}
            for n in range(count)
        }
        due, number = [-1] * count, 0
        for node in range(count):
            if len(both[node]) > 1 and due[node] < 0:
                for member in both[node]:
                    due[member] = number
                number += 1
        table = np.array(pairs, np.int64).reshape(-1, 2)
        assert strongly_connected_components(count, table[:, 0], table[:, 1]).tolist() == due, pairs


def test_a_path_is_the_shortest_there_is() -> None:
    for count, pairs in graphs():
        apart = distances(count, pairs)
        edges: dict[int, list[tuple[int, int]]] = {}
        for number, (a, b) in enumerate(pairs):
            edges.setdefault(a, []).append((b, number))
        for start, end in itertools.product(range(count), repeat=2):
            path = shortest_path(edges, start, end)
            if start == end:
                assert path == []
            elif (start, end) not in apart:
                assert path is None
            else:
                assert path is not None
                assert len(path) == apart[start, end]
                stations = [start, *(pairs[n][1] for n in path)]
                assert [pairs[n][0] for n in path] == stations[:-1]
                assert stations[-1] == end
