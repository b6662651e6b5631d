"""Strongly connected components of a directed graph, and a shortest path in one.

Pure functions over pairs of node numbers. The work is linear in nodes and edges.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from checker.evidence.sorting import I64

_UNSEEN: Final = -1


def strongly_connected_components(count: int, source: I64, target: I64) -> I64:
    """Return for each of `count` nodes the number of its strongly connected component, or -1 if the
    component has no other node. Edge i leads from node `source[i]` to node `target[i]`. Components
    are numbered from 0, by their lowest nodes."""
    component = _components(count, source, target)
    _, first, sizes = np.unique(component, return_index=True, return_counts=True)
    number = np.full(len(first), -1, np.int64)
    several = np.flatnonzero(sizes > 1)
    several = several[np.argsort(first[several])]
    number[several] = np.arange(len(several))
    found: I64 = number[component]
    return found


def _components(count: int, source: I64, target: I64) -> I64:
    """Run Tarjan's algorithm without recursion; return a number a node, equal in a component."""
    order = np.argsort(source, kind="stable")
    after = target[order].tolist()
    begin = np.searchsorted(source[order], np.arange(count + 1)).tolist()
    index = [_UNSEEN] * count
    low = [0] * count
    component = [_UNSEEN] * count
    stack: list[int] = []
    clock = done = 0
    cursor = begin[:-1]
    for root in range(count):
        if index[root] != _UNSEEN:
            continue
        path = [root]
        index[root] = low[root] = clock
        clock += 1
        stack.append(root)
        while path:
            node = path[-1]
            if cursor[node] < begin[node + 1]:
                neighbour = after[cursor[node]]
                cursor[node] += 1
                if index[neighbour] == _UNSEEN:
                    index[neighbour] = low[neighbour] = clock
                    clock += 1
                    stack.append(neighbour)
                    path.append(neighbour)
                elif component[neighbour] == _UNSEEN and index[neighbour] < low[node]:
                    low[node] = index[neighbour]
                continue
            path.pop()
            if path and low[node] < low[path[-1]]:
                low[path[-1]] = low[node]
            if low[node] == index[node]:
                while True:
                    member = stack.pop()
                    component[member] = done
                    if member == node:
                        break
                done += 1
    return np.array(component, np.int64)


def shortest_path(
    edges: Mapping[int, Sequence[tuple[int, int]]], start: int, end: int
) -> list[int] | None:
    """Return the numbers of the edges of a shortest path from `start` to `end`, None if there is no
    path. `edges` maps a node to pairs of a neighbour and the number of the edge to it."""
    came: dict[int, tuple[int, int]] = {start: (-1, -1)}
    queue = deque([start])
    while queue and end not in came:
        node = queue.popleft()
        for neighbour, number in edges.get(node, ()):
            if neighbour not in came:
                came[neighbour] = (node, number)
                queue.append(neighbour)
    if end not in came:
        return None
    path = []
    node = end
    while node != start:
        node, number = came[node]
        path.append(number)
    return path[::-1]
