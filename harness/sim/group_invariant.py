"""Invariants of the coordinator of groups, checked at every step: its live state is what its log
makes, and a partition has one owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from checker.formats.verdict import Witness
from harness.sim.invariant_checker import InvariantChecker
from node.core.broker import Broker
from node.core.groups.state import MEMBER, CoordinatorState
from node.core.replica import Replica
from node.formats import trace
from node.formats.trace import GROUPS_PARTITION, TraceEvent

_CHANGES: Final = frozenset({trace.APPEND, trace.GROUP_STATE})


class GroupInvariant:
    """A check of each turn's trace events. `broker(name)` returns a node's running core."""

    def __init__(self, broker: Callable[[str], Broker | None], checker: InvariantChecker) -> None:
        self._broker = broker
        self._checker = checker
        # By node: its live state, what its log made, and up to where.
        self._made: dict[str, tuple[CoordinatorState, CoordinatorState, int]] = {}

    def turn(self, node: str, events: Iterable[TraceEvent]) -> None:
        """Check a coordinator whose state a node's turn may have changed."""
        if any(e.get("partition") == GROUPS_PARTITION and e["event"] in _CHANGES for e in events):
            broker = self._broker(node)
            r = None if broker is None else broker.replicas.get(GROUPS_PARTITION)
            if broker is not None and broker.coordinator is not None and r is not None:
                live = broker.coordinator.state
                if live is not None and r.log.damage is None:
                    self._check(node, r, live)

    def _check(self, node: str, r: Replica, live: CoordinatorState) -> None:
        known = self._made.get(node)
        if known is None or known[0] is not live or known[2] > r.leo:
            known = (live, CoordinatorState(), r.log.start)
        _, made, end = known
        made.replay(r.log, end, r.leo)
        self._made[node] = (live, made, r.leo)
        differing = sorted(
            key
            for key in {*made.values, *live.values}
            if made.values.get(key) != live.values.get(key)
        )
        if differing:
            what = " ".join(differing[0])
            self._violated(
                "groups-as-in-log",
                node,
                r,
                f"{node} has another state of groups than its log makes, at first in {what}",
            )
        elif self._checker.committed_stays and (twice := _owned_twice(made)):
            self._violated("one-owner", node, r, f"{' and '.join(twice)} both own a partition")

    def _violated(self, invariant: str, node: str, r: Replica, sentence: str) -> None:
        witness = Witness(what="log end", node=node, offset=-1, epoch=r.leader_epoch)
        self._checker.violated(invariant, GROUPS_PARTITION, sentence, [witness])


def _owned_twice(state: CoordinatorState) -> list[str]:
    """Return the first two members of a group that own the same partition; none if none do."""
    owners: dict[tuple[str, str], str] = {}
    for key in sorted(key for key in state.values if key[0] == MEMBER):
        for partition in state.values[key].owned:
            other = owners.setdefault((key[1], partition), key[2])
            if other != key[2]:
                return [other, key[2]]
    return []
