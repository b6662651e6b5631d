"""The coverage of a simulated run: decision points, joint states of the cluster, orders of events.

A decision point is a trace event with the field that says which branch was taken. A joint state is
the shape of all replicas without their numbers: roles, sizes of sets, how old a replica's leader
epoch is, how its log stands to that of the newest leader. Nodes are interchangeable: clusters that
differ in the names of their nodes only are in the same state. A step is a pair of states that
followed each other. An order is three decision points that followed each other, and which of them
were on the same node. States, steps and orders are known by numbers of 64 bits, which are the same
in all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from node.core.broker import Broker
from node.core.log import Log
from node.core.replica import Replica
from node.formats import trace
from node.formats.trace import TraceEvent

_FIELDS: Final[dict[str, tuple[str, str]]] = {
    trace.STARTED: ("clean", ""),
    trace.ROLE: ("role", ""),
    trace.APPEND: ("role", ""),
    trace.TRUNCATED: ("reason", ""),
    trace.HW: ("role", ""),
    trace.ACK: ("acks", ""),
    trace.REFUSED: ("kind", "reason"),
    trace.VOTE: ("pre", ""),
    trace.CONTROLLER: ("state", ""),
    trace.BROKER: ("state", ""),
    trace.PARTITION: ("unclean", ""),
}
_NO_FIELDS: Final = ("", "")
_NO_CHANGE: Final = frozenset({trace.APPEND, trace.ACK})
"""Events that do not change the state as it is counted here."""
_NO_NODE: Final = ("", "self")

_MIX: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1
_OLDEST: Final = 2
"""Leader epochs that are this much behind the newest, or more, count as equally old."""
_MOST_FAILURES: Final = 2
_MOST_TERMS: Final = 3
"""Logs with records of so many leader epochs, or of more, count as equal."""

Point = tuple[str, ...]


class _Shape(NamedTuple):
    """A replica without its numbers. `log` is how its log stands to that of the newest leader."""

    partition: str
    leader: str
    role: str
    isr: int
    maximal_isr: int
    asks_for_isr: bool
    all_committed: bool
    wrote_nothing: bool
    fetches: bool
    failures: int
    terms: int
    age: int
    log: str


class Coverage:
    """Counts the events of each turn. `core(name)` returns a node's running core."""

    def __init__(self, core: Callable[[str], Broker | None]) -> None:
        self._core = core
        self._points: dict[tuple[object, ...], int] = {}
        self._nodes: dict[str, tuple[_Shape, ...]] = {}
        self._roles: dict[tuple[str, str], str] = {}
        self._newest: dict[str, tuple[int, str]] = {}
        self._state = 0
        self._states: set[int] = set()
        self._steps: dict[tuple[int, int], TraceEvent | None] = {}
        self._before = self._last = (0, "")
        self._orders: set[tuple[int, int, int, int]] = set()

    @property
    def points(self) -> frozenset[Point]:
        """The decision points: name of the event, and the fields that tell the branch."""
        return frozenset(
            tuple(str(part) for part in point if part is not None) for point in self._points
        )

    @property
    def states(self) -> frozenset[int]:
        """The joint states that there were."""
        return frozenset(self._states)

    @property
    def steps(self) -> frozenset[int]:
        """Which joint state followed which."""
        return frozenset(map(_number_of_step, self._steps))

    @property
    def moments(self) -> dict[int, TraceEvent]:
        """The event with which each step was first made, in their order; not of steps that the end
        of a process made."""
        return {_number_of_step(step): event for step, event in self._steps.items() if event}

    @property
    def orders(self) -> frozenset[int]:
        """Which three decision points followed each other."""
        return frozenset(map(_number_of_order, self._orders))

    def turn(self, node: str, core: Broker | None, events: Iterable[TraceEvent]) -> None:
        """Add the events of a node's turn."""
        changed: TraceEvent | None = None
        points, (last, last_node) = self._points, self._last
        for event in events:
            name = event["event"]
            first, second = _FIELDS.get(name, _NO_FIELDS)
            point = (
                name,
                event.get(first) if first else None,
                event.get(second) if second else None,
            )
            number = points.get(point)
            if number is None:
                number = points[point] = _number(repr(point))
            # The same one once more adds nothing.
            if number != last or node != last_node:
                self._followed(number, node)
                last, last_node = number, node
            if name not in _NO_CHANGE:
                changed = event
        if changed is not None and core is not None:
            shapes = tuple([self._shape(node, r) for r in core.replicas.values()])
            if len(shapes) > 1:
                shapes = tuple(sorted(shapes))
            if shapes != self._nodes.get(node):
                self._nodes[node] = shapes
                self._moved(changed)

    def ended(self, node: str) -> None:
        """A process has ended."""
        for shape in self._nodes.get(node, ()):
            self._roles.pop((node, shape.partition), None)
        self._nodes[node] = ()
        self._moved(None)

    def _followed(self, number: int, node: str) -> None:
        """A decision point came after the last two."""
        last, last_node = self._last
        before, before_node = self._before
        nodes = (node == last_node) + 2 * (last_node == before_node) + 4 * (node == before_node)
        self._orders.add((before, last, number, nodes))
        self._before, self._last = self._last, (number, node)

    def _shape(self, node: str, r: Replica) -> _Shape:
        partition, epoch, log, leads = r.partition, r.leader_epoch, r.log, r.leader
        leo = log.leo
        newest, leader = self._newest.get(partition, (-1, ""))
        if r.role == "leader" and epoch > newest:
            newest, leader = self._newest[partition] = (epoch, node)
        self._roles[node, partition] = r.role
        fetching, terms = r.fetching, len(log.cache.entries())
        return _Shape(
            partition,
            "self" if leads == node else leads,
            r.role,
            len(r.isr),
            len(r.maximal_isr),
            r.pending_alter is not None,
            r.hw == leo,
            leo <= r.leso,
            fetching.asking is not None,
            fetching.failures if fetching.failures < _MOST_FAILURES else _MOST_FAILURES,
            terms if terms < _MOST_TERMS else _MOST_TERMS,
            min(newest - epoch, _OLDEST) if newest > epoch else 0,
            "same" if leader == node else self._stands(log, partition, leader),
        )

    def _stands(self, log: Log, partition: str, leader: str) -> str:
        """How a log stands to that of the newest leader, as long as that one is up."""
        core = self._core(leader)
        other = None if core is None else core.replicas.get(partition)
        if other is None:
            return ""
        if other.log.chain == log.chain:
            return "same"
        shared = min(log.leo, other.leo)
        if log.hash_at(shared) != other.log.hash_at(shared):
            return "apart"
        return "behind" if log.leo < other.leo else "ahead"

    def _moved(self, event: TraceEvent | None) -> None:
        state = _number(" ".join(sorted([self._node(shapes) for shapes in self._nodes.values()])))
        if state != self._state:
            self._steps.setdefault((self._state, state), event)
            self._states.add(state)
            self._state = state

    def _node(self, shapes: tuple[_Shape, ...]) -> str:
        """The shapes of a node without names: instead of its leader, a replica has the role of that
        node."""
        roles = [
            shape.leader if shape.leader in _NO_NODE else self._roles.get((shape.leader, shape[0]))
            for shape in shapes
        ]
        return _of_node(shapes, tuple(roles))


def _number_of_order(order: tuple[int, int, int, int]) -> int:
    before, last, number, nodes = order
    return (((before * _MIX + last) * _MIX + number) * _MIX + nodes) & _MASK


def _number_of_step(step: tuple[int, int]) -> int:
    before, after = step
    return (before * _MIX + after) & _MASK


@lru_cache(maxsize=1 << 14)
def _of_node(shapes: tuple[_Shape, ...], roles: tuple[str | None, ...]) -> str:
    """The number of a node's shapes, as a word."""
    unnamed = [(shape[0], *shape[2:], role) for shape, role in zip(shapes, roles, strict=True)]
    return f"{_number(repr(unnamed)):x}"


@lru_cache(maxsize=1 << 16)
def _number(text: str) -> int:
    """The number of a state. Two states have the same one in 1 of 2^64 pairs."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
