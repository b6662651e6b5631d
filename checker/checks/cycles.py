"""Cycles of dependencies between transactions: G0 and G1c, also with process and real-time order.

T1 -ww-> T2: a record of T2 directly follows a record of T1 in the log. T1 -wr-> T2: T2 read a
record of T1. In the order of a process, T1 comes before T2 if the process invoked it first; in real
time, if T1 ended before T2 was invoked. A cycle means that no order of the transactions explains
the history. The classes are Adya's phenomena, as in Jepsen's Kafka checker. Cycles are found as
strongly connected components, so the work is linear and no result depends on the speed of the
machine.

If every operation does one thing to one partition, the checks of that partition find each such
cycle as `realtime-order`, `future-read` or `nonmonotonic-send`. Then this check has nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from checker.checks.cases import Cases
from checker.checks.components import shortest_path, strongly_connected_components
from checker.checks.findings import ALLOWED_UNCOMMITTED, Findings, Graph, op_name
from checker.checks.registry import Check, Scope
from checker.evidence.contents import Columnar
from checker.evidence.facts import Outcome
from checker.evidence.sorting import I64
from checker.formats.anomalies import OFFSETS
from checker.formats.verdict import Witness

_WW, _WR, _DIRTY, _PROCESS, _TIME = range(5)
_ISOLATION: Final = "transactions of a log do not keep the sends of others out from between theirs"
_TRIED: Final = 64


@dataclass(frozen=True)
class _Edges(Columnar):
    """Numbered edges: kind, nodes, and for ww and wr the partition and offset of the record."""

    kind: I64
    source: I64
    target: I64
    partition: I64
    offset: I64


class DependencyGraph:
    """The dependencies between all operations of a run that share records: operations are nodes
    from 0 on, edges are ww, wr, process order and real time. Real time takes further nodes, one for
    each moment at which an operation ended, in a chain. An operation has an edge to the moment of
    its end, and from the last moment before its invocation. So there are as many edges as
    operations, not as pairs of operations."""

    def __init__(self, graphs: Sequence[tuple[str, Graph]]) -> None:
        about = {op[0]: op for _, graph in graphs for op in graph.ops}
        self.about = [about[number] for number in sorted(about)]
        self.partitions = [partition for partition, _ in graphs]
        node = {number: place for place, number in enumerate(sorted(about))}
        parts = []
        for kind, name in ((_WW, "ww"), (_WR, "wr"), (_DIRTY, "dirty")):
            for place, (_, graph) in enumerate(graphs):
                rows = [
                    (kind, node[a], node[b], place, offset) for a, b, offset in getattr(graph, name)
                ]
                parts.append(np.array(rows, np.int64).reshape(-1, 5))
        self.nodes = len(self.about)
        # Clocks that go back and processes that do two things at a time give no order.
        if all(graph.in_order for _, graph in graphs):
            parts.append(self._process())
        if all(graph.timed for _, graph in graphs):
            parts.append(self._time())
        self.edges = _Edges(*np.concatenate(parts).T)

    def _process(self) -> I64:
        """Return an edge from each operation to the next one of its process."""
        process = np.array([op[1] for op in self.about], np.int64)
        order = np.lexsort((np.array([op[6] for op in self.about], np.int64), process))
        same = np.flatnonzero(process[order][1:] == process[order][:-1])
        return _plain(_PROCESS, order[same], order[same + 1])

    def _time(self) -> I64:
        """Return edges, by a chain of moments, from ended operations to those invoked later."""
        count = len(self.about)
        t0 = np.array([op[3] for op in self.about], np.int64)
        t1 = np.array([op[4] for op in self.about], np.int64)
        outcome = np.array([op[5] for op in self.about], np.int64)
        ended = np.flatnonzero(outcome != Outcome.INFO)
        moments = np.unique(t1[ended])
        self.nodes = count + len(moments)
        chain = count + np.arange(len(moments))
        into = count + np.searchsorted(moments, t1[ended])
        last = np.searchsorted(moments, t0, side="left") - 1
        begun = np.flatnonzero(last >= 0)
        return np.concatenate(
            (
                _plain(_TIME, ended, into),
                _plain(_TIME, chain[:-1], chain[1:]),
                _plain(_TIME, count + last[begun], begun),
            )
        )


def _plain(kind: int, source: I64, target: I64) -> I64:
    unknown = np.full(len(source), -1)
    return np.stack((np.full(len(source), kind), source, target, unknown, unknown), axis=1)


# The kinds of edges that a cycle may have and must have, its name, and why it is allowed. First
# come those that count against the system, among them first those that need the weakest order. What
# is left of each class without a kind that it must have is in no cycle, or a class above it.
CYCLE_CLASSES: Final = (
    ({_WR}, (_WR,), "g1c", ""),
    ({_WR, _PROCESS}, (_WR, _PROCESS), "g1c-process", ""),
    ({_WR, _TIME}, (_WR, _TIME), "g1c-realtime", ""),
    ({_WR, _DIRTY}, (_DIRTY,), "g1c", ALLOWED_UNCOMMITTED),
    ({_WR, _DIRTY, _PROCESS}, (_DIRTY, _PROCESS), "g1c-process", ALLOWED_UNCOMMITTED),
    ({_WR, _DIRTY, _TIME}, (_DIRTY, _TIME), "g1c-realtime", ALLOWED_UNCOMMITTED),
    ({_WW}, (_WW,), "g0", ""),
    ({_WW, _WR}, (_WR,), "g1c", _ISOLATION),
    ({_WW, _WR, _DIRTY}, (_DIRTY,), "g1c", _ISOLATION),
    ({_WW, _PROCESS}, (_WW, _PROCESS), "g0-process", ""),
    ({_WW, _WR, _PROCESS}, (_WR, _PROCESS), "g1c-process", _ISOLATION),
    ({_WW, _WR, _DIRTY, _PROCESS}, (_DIRTY, _PROCESS), "g1c-process", _ISOLATION),
    ({_WW, _TIME}, (_WW, _TIME), "g0-realtime", ""),
    ({_WW, _WR, _TIME}, (_WR, _TIME), "g1c-realtime", _ISOLATION),
    ({_WW, _WR, _DIRTY, _TIME}, (_DIRTY, _TIME), "g1c-realtime", _ISOLATION),
)


CYCLES = Check(OFFSETS, scope=Scope.ACROSS)


@CYCLES.finds("g1c", "g1c-process", "g1c-realtime", "g0", "g0-process", "g0-realtime")
def cycles(run: Findings) -> Iterator[Cases]:
    """Find cycles of operations, at most one in a strongly connected component. `g0`: of ww edges.
    `g0-process`: of ww edges and the order of a process. `g0-realtime`: of ww edges and real time.
    `g1c`: with wr edges. `g1c-process`: with wr edges and the order of a process. `g1c-realtime`:
    with wr edges and real time. Cycles of `g0` are allowed, and so are those of `g1c` that have ww
    edges."""
    graphs = [(partition, found.graph) for partition, found in run.by_partition if found.graph]
    graphs.sort(key=lambda pair: pair[0])
    if not any(graph.ops for _, graph in graphs):
        return
    graph = DependencyGraph(graphs)
    named: dict[int, list[frozenset[int]]] = {}
    for kinds, musts, name, allowed in CYCLE_CLASSES:
        found = sorted(
            _cycles(graph, kinds, musts, named), key=lambda c: (len(c.kind), c.source.tolist())
        )
        if found:
            yield _of_class(graph, name, found, allowed)


def _cycles(
    graph: DependencyGraph,
    kinds: set[int],
    musts: tuple[int, ...],
    named: dict[int, list[frozenset[int]]],
) -> Iterator[_Edges]:
    """Yield one short cycle of each component that is not within one that has a name already, and
    enter the component in `named` under each of its operations. A larger component gets a name of
    its own, because it shows more operations that cannot be put in any order."""
    edges = graph.edges.take(np.isin(graph.edges.kind, list(kinds)))
    component = strongly_connected_components(graph.nodes, edges.source, edges.target)
    # Nodes that are in no cycle (-1) come first, and are left out by the bounds.
    inside = edges.take(component[edges.source] == component[edges.target])
    of = component[inside.source]
    order = np.argsort(of, kind="stable")
    bounds = np.searchsorted(of[order], np.arange(of.max() + 2 if len(of) else 1))
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        own = inside.take(order[begin:end])
        nodes = np.unique(own.source)
        nodes = nodes[nodes < len(graph.about)]
        members = frozenset(nodes.tolist())
        if any(members <= known for known in named.get(min(members), ())):
            continue
        new = members - named.keys()
        for each in members:
            named.setdefault(each, []).append(members)
        yield _short_cycle(own, musts, new)


def _short_cycle(own: _Edges, musts: tuple[int, ...], new: frozenset[int]) -> _Edges:
    """Return a short cycle through an edge of a kind that must be in it: the shortest over the
    first few such edges, preferably one with an operation that no smaller component has."""
    edges: dict[int, list[tuple[int, int]]] = {}
    for number, (a, b) in enumerate(zip(own.source.tolist(), own.target.tolist(), strict=True)):
        edges.setdefault(a, []).append((b, number))
    target = own.target.tolist()
    best: tuple[bool, bool, int] | None = None
    cycle: list[int] = []
    for must in dict.fromkeys(musts):
        for number in np.flatnonzero(own.kind == must)[:_TRIED].tolist():
            back = shortest_path(edges, target[number], int(own.source[number]))
            if back is None:
                continue
            made = [number, *back]
            lacks = {*musts} - {*own.kind[made].tolist()}
            rank = (new.isdisjoint(target[each] for each in made), bool(lacks), len(made))
            if best is None or rank < best:
                best, cycle = rank, made
    return own.take(np.array(cycle, np.int64))


def _of_class(graph: DependencyGraph, name: str, cycles: Sequence[_Edges], allowed: str) -> Cases:
    first = cycles[0]
    data = np.flatnonzero(first.offset >= 0)
    touched = sorted({graph.partitions[p] for p in first.partition[data].tolist()})
    (start, *_) = (n for n in first.source.tolist() if n < len(graph.about))
    return Cases(
        "{n:cycle} of transactions that no order explains: {steps}.",
        cycles,
        lambda cycle: [
            _witness(graph, node) for node in cycle.source.tolist() if node < len(graph.about)
        ],
        lambda cycle: {"steps": "; ".join(_words(graph, cycle))},
        name=name,
        allowed=allowed,
        partition=touched[0] if len(touched) == 1 else "",
        offset=first.offset[data[0]],
        t_us=_witness(graph, start).t_us,
    )


def _witness(graph: DependencyGraph, node: int) -> Witness:
    op, process, client, t0, t1, *_ = graph.about[node]
    return Witness(
        what="transaction", op=op, process=process, client=client, t_us=t1 if t1 >= 0 else t0
    )


def _words(graph: DependencyGraph, cycle: _Edges) -> Iterator[str]:
    """Format each step of a cycle; a path through moments is one step."""
    left = -1
    for kind, a, b, place, offset in zip(
        cycle.kind.tolist(),
        cycle.source.tolist(),
        cycle.target.tolist(),
        cycle.partition.tolist(),
        cycle.offset.tolist(),
        strict=True,
    ):
        if a < len(graph.about):
            left = a
        if b >= len(graph.about):
            continue
        first, then = op_name(_witness(graph, left)), op_name(_witness(graph, b))
        if kind == _WW:
            yield f"{then} wrote offset {offset} of {graph.partitions[place]}, right after {first}"
        elif kind in (_WR, _DIRTY):
            yield f"{then} read offset {offset} of {graph.partitions[place]}, written by {first}"
        elif kind == _PROCESS:
            yield f"{first} came before {then} in its process"
        else:
            yield f"{first} ended before {then} was invoked"
