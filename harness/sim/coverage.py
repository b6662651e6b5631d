"""The coverage of a simulated run: decision points, and distinct states of the cluster.

A decision point is a trace event with the field that says which branch was taken. A state is the
shape of all replicas without their numbers: roles, sizes of sets, which log is ahead. A search
counts both to see whether it still finds anything new.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

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

Point = tuple[str, ...]


class Coverage:
    """Counts the events of each turn."""

    def __init__(self) -> None:
        self._points: set[tuple[object, ...]] = set()
        self._nodes: dict[str, tuple[object, ...]] = {}
        self._states: set[tuple[object, ...]] = set()

    @property
    def points(self) -> frozenset[Point]:
        """The decision points: name of the event, and the fields that tell the branch."""
        return frozenset(
            tuple(str(part) for part in point if part is not None) for point in self._points
        )

    @property
    def states(self) -> int:
        """How many distinct states of the cluster there were."""
        return len(self._states)

    def turn(self, node: str, core: Broker | None, events: Iterable[TraceEvent]) -> None:
        """Add the events of a node's turn."""
        changed = False
        for event in events:
            name = event["event"]
            first, second = _FIELDS.get(name, _NO_FIELDS)
            self._points.add((name, event.get(first), event.get(second)))
            changed = changed or name not in _NO_CHANGE
        if changed and core is not None:
            shapes = tuple(_shape(r) for r in core.replicas.values())
            if shapes != self._nodes.get(node):
                self._nodes[node] = shapes
                self._states.add(tuple(self._nodes.values()))

    def ended(self, node: str) -> None:
        """A process has ended."""
        self._nodes[node] = ("down",)
        self._states.add(tuple(self._nodes.values()))


def _shape(r: Replica) -> tuple[object, ...]:
    fetching = r.fetching
    return (
        r.role,
        len(r.isr),
        len(r.maximal_isr),
        r.pending_alter is not None,
        r.hw == r.leo,
        r.leo <= r.leso,
        fetching.asking is not None,
        min(fetching.failures, 2),
        r.leader,
    )
