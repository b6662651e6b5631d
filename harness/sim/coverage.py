"""The coverage of a simulated run: decision points, and joint states of the cluster.

A decision point is a trace event with the field that says which branch was taken. A joint state is
the shape of all replicas without their numbers: roles, sizes of sets, which log is ahead. Nodes are
interchangeable: clusters that differ in the names of their nodes only are in the same state. A step
is a pair of states that followed each other. States and steps are known by numbers of 64 bits,
which are the same in all processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from node.core.broker import Broker
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

_MIX: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1

Point = tuple[str, ...]


class _Shape(NamedTuple):
    """A replica without its numbers."""

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


class Coverage:
    """Counts the events of each turn."""

    def __init__(self) -> None:
        self._points: set[tuple[object, ...]] = set()
        self._nodes: dict[str, tuple[_Shape, ...]] = {}
        self._state = 0
        self._states: set[int] = set()
        self._steps: set[tuple[int, int]] = set()

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
        return frozenset((before * _MIX + after) & _MASK for before, after in self._steps)

    def turn(self, node: str, core: Broker | None, events: Iterable[TraceEvent]) -> None:
        """Add the events of a node's turn."""
        changed = False
        for event in events:
            name = event["event"]
            first, second = _FIELDS.get(name, _NO_FIELDS)
            self._points.add((name, event.get(first), event.get(second)))
            changed = changed or name not in _NO_CHANGE
        if changed and core is not None:
            shapes = tuple(sorted(_shape(r) for r in core.replicas.values()))
            if shapes != self._nodes.get(node):
                self._nodes[node] = shapes
                self._moved()

    def ended(self, node: str) -> None:
        """A process has ended."""
        self._nodes[node] = ()
        self._moved()

    def _moved(self) -> None:
        state = _number(_joint(self._nodes))
        if state != self._state:
            self._steps.add((self._state, state))
            self._states.add(state)
            self._state = state


def _joint(nodes: dict[str, tuple[_Shape, ...]]) -> tuple[str, ...]:
    """The shapes without names: instead of its leader, a replica has the role of that node."""
    roles = {
        (node, shape.partition): shape.role for node, shapes in nodes.items() for shape in shapes
    }

    def leader(node: str, shape: _Shape) -> str:
        return "self" if shape.leader == node else roles.get((shape.leader, shape.partition), "")

    each = ([(*shape, leader(node, shape)) for shape in shapes] for node, shapes in nodes.items())
    return tuple(sorted(repr([(shape[0], *shape[2:]) for shape in shapes]) for shapes in each))


@lru_cache(maxsize=1 << 16)
def _number(state: tuple[str, ...]) -> int:
    """The number of a joint state. Two states have the same one in 1 of 2^64 pairs."""
    return int.from_bytes(blake2b("\n".join(state).encode(), digest_size=8).digest(), "big")


def _shape(r: Replica) -> _Shape:
    fetching = r.fetching
    return _Shape(
        r.partition,
        r.leader,
        r.role,
        len(r.isr),
        len(r.maximal_isr),
        r.pending_alter is not None,
        r.hw == r.leo,
        r.leo <= r.leso,
        fetching.asking is not None,
        min(fetching.failures, 2),
    )
