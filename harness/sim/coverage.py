"""What a simulated run has touched: decision points hit, and distinct states of the cluster.

A decision point is a trace event with the field that says which way it went. A state is what
every node's replicas look like without their numbers: roles, sizes of sets, who is ahead of whom.
Both are counted, for a search to tell whether it still meets something new.
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
_QUIET: Final = frozenset({trace.APPEND, trace.ACK})
"""Events after which the state is much as before."""

Point = tuple[str, ...]


class Coverage:
    """Told of each turn."""

    def __init__(self) -> None:
        self._points: set[tuple[object, ...]] = set()
        self._nodes: dict[str, tuple[object, ...]] = {}
        self._states: set[tuple[object, ...]] = set()

    @property
    def points(self) -> frozenset[Point]:
        """The decision points hit: name of the event, and the fields that tell which way."""
        return frozenset(
            tuple(str(part) for part in point if part is not None) for point in self._points
        )

    @property
    def states(self) -> int:
        """How many distinct states of the cluster were seen."""
        return len(self._states)

    def turn(self, node: str, core: Broker | None, events: Iterable[TraceEvent]) -> None:
        """A node's turn is done."""
        loud = False
        for event in events:
            name = event["event"]
            first, second = _FIELDS.get(name, _NO_FIELDS)
            self._points.add((name, event.get(first), event.get(second)))
            loud = loud or name not in _QUIET
        if loud and core is not None:
            looks = tuple(_looks(r) for r in core.replicas.values())
            if looks != self._nodes.get(node):
                self._nodes[node] = looks
                self._states.add(tuple(self._nodes.values()))

    def ended(self, node: str) -> None:
        """A process is gone."""
        self._nodes[node] = ("down",)
        self._states.add(tuple(self._nodes.values()))


def _looks(r: Replica) -> tuple[object, ...]:
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
