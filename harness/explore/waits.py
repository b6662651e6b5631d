"""The waits of nodes, and the order in which they end while no message is under way.

Short waits end in the order of their length. The cluster is *at rest* if no short wait would change
anything. Results depend only on the nodes and the cut links, and are cached by them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from harness.explore.local_steps import Event, LocalSteps
from harness.explore.node_model import ReplicaView
from node.formats.errors import FloodmarkError
from node.formats.trace import METADATA_PARTITION

LONGEST: Final = 10_000
"""The number of steps in a row after which a chain counts as endless, an error of the model."""
_SOON: Final = (
    *("retry", "alter", "announce", "recovery", "wait", "heartbeat", "timeout"),
    *("checkpoint", "flush"),
)
"""Waits that end by themselves, shortest first; of a fetch `retry`, or `timeout` of its answer."""

Action = tuple[Any, ...]
"""An action: its kind, followed by what it is about. ("expire", node, waits) ends waits."""
Nodes = tuple[int, ...]
Cuts = tuple[tuple[int, int], ...]


class ExplorerDefect(FloodmarkError):
    """A cluster that cannot be explored, which is a defect of the explorer."""

    def __str__(self) -> str:
        return f"cannot explore: {super().__str__()}; please report that with these bounds"


class _AfterWait(NamedTuple):
    """The action that ends waits, and the node states when all that follows has arrived."""

    action: Action
    nodes: Nodes

    @property
    def name(self) -> str:
        """The name of the wait, equal at all nodes."""
        return str(self.action[2][-1])


class Waits:
    """The timeouts, retries and pauses of all nodes of a cluster, and which of them ends next."""

    def __init__(self, local: LocalSteps) -> None:
        self._local = local
        self._names = local.names
        self._number = {name: at for at, name in enumerate(local.names)}
        self._next: dict[tuple[Nodes, Cuts], Action | None] = {}
        # States that count as rest although waits lead on, and all states that lead to a circle.
        self._circular: set[tuple[Nodes, Cuts]] = set()
        self._to_circles: set[tuple[Nodes, Cuts]] = set()
        # The answers of `_changes_of_circle`.
        self._ends: dict[tuple[Nodes, Cuts], tuple[_AfterWait, ...]] = {}

    def next(self, nodes: Nodes, cuts: Cuts) -> Action | None:
        """Return the action that ends the wait due next; None if the cluster is at rest. A state in
        which ends of waits only lead around in a circle counts as rest."""
        key = nodes, cuts
        if key not in self._next:
            self._look_ahead(nodes, cuts)
        return self._next[key]

    def is_circular(self, nodes: Nodes, cuts: Cuts) -> bool:
        """Return whether timeouts still end in this state, but lead only around in a circle."""
        return (nodes, cuts) in self._circular

    def _look_ahead(self, nodes: Nodes, cuts: Cuts) -> None:
        """Find the wait that ends next in this state and in the ones that follow, until the cluster
        is at rest. If the waits lead around in a circle, the ones that are not part of it end
        first, the shortest first; the cluster is at rest if none of these has an effect. The result
        for a state that leads into a circle is cached for that state only: another state of the
        circle may leave it elsewhere, and the result must not depend on which of them was asked for
        first."""
        recurring: set[str] = set()
        while (chain := self._chain(nodes, cuts, recurring)) is None:
            pass
        if not recurring:
            for at, ended in chain.items():
                self._next[at, cuts] = None if ended is None else ended.action
            return
        first = chain[nodes]
        self._next[nodes, cuts] = None if first is None else first.action
        self._to_circles.add((nodes, cuts))
        if first is None and self._changes_of_circle(nodes, cuts):
            self._circular.add((nodes, cuts))

    def _chain(
        self, nodes: Nodes, cuts: Cuts, recurring: set[str]
    ) -> dict[Nodes, _AfterWait | None] | None:
        """Return the states that follow one another up to rest or to a known state, each with the
        wait that ends in it. Return None if they lead around in a circle, whose waits are then
        named in `recurring`."""
        chain: dict[Nodes, _AfterWait | None] = {}
        while (key := (nodes, cuts)) not in self._next or key in self._to_circles:
            if nodes in chain:
                states = list(chain)
                round_ = (chain[each] for each in states[states.index(nodes) :])
                recurring.update(ended.name for ended in round_ if ended is not None)
                return None
            found = self._changes_of_circle(nodes, cuts) if recurring else self._changes(*key)
            changes = (ended for ended in found if ended.name not in recurring)
            chain[nodes] = ended = next(changes, None)
            if ended is None:
                break
            nodes = ended.nodes
        return chain

    def _changes_of_circle(self, nodes: Nodes, cuts: Cuts) -> tuple[_AfterWait, ...]:
        """Return the waits whose end has an effect, cached: a circle asks repeatedly."""
        key = nodes, cuts
        if key not in self._ends:
            self._ends[key] = tuple(self._changes(nodes, cuts))
        return self._ends[key]

    def _changes(self, nodes: Nodes, cuts: Cuts) -> Iterator[_AfterWait]:
        """Yield the waits whose end has an effect, the shortest first."""
        for action in self.soon(nodes, cuts):
            after = self._quiet(nodes, cuts, *action[1:])
            if after != nodes:
                yield _AfterWait(action, after)

    def _quiet(self, nodes: Nodes, cuts: Cuts, at: int, waits: tuple[str, ...]) -> Nodes:
        """Return the state after these waits have ended, with no message under way."""
        now = list(nodes)
        queue: deque[tuple[int, int, int]] = deque()
        event: Event = ("expire", waits)
        for _ in range(LONGEST):
            made = self._local.step(now[at], event)
            now[at] = made.node
            for to, message in made.messages:
                other = self._number.get(to)
                if other is not None and not is_cut(cuts, at, other):
                    queue.append((at, other, message))
            while queue and not self._local.views[now[queue[0][1]]].up:
                queue.popleft()
            if not queue:
                return tuple(now)
            source, at, message = queue.popleft()
            event = ("deliver", self._names[source], message)
        raise ExplorerDefect("nodes answer each other without end while the clock stands still")

    def soon(self, nodes: Nodes, cuts: Cuts) -> list[Action]:
        """Return the ends of short waits, shortest first: one per kind and node."""
        found: dict[tuple[int, int], tuple[str, ...]] = {}
        for at, node in enumerate(nodes):
            timers = self._local.views[node].timers
            for name in timers:
                kind, _, about = name.partition("/")
                waits: tuple[str, ...] = (name,)
                if kind == "fetch":
                    kind = "timeout" if self.replica(nodes, at, about).asking else "retry"
                    if kind == "timeout":
                        if self.is_held(nodes, cuts, at, about):
                            continue
                        patience = f"patience/{about}"
                        if patience in timers:
                            waits = (patience, name)
                if kind in _SOON:
                    place = _SOON.index(kind), at
                    found[place] = (*found.get(place, ()), *waits)
        return [("expire", at, waits) for (_, at), waits in sorted(found.items())]

    # -- what nodes know of each other

    def replica(self, nodes: Nodes, at: int, partition: str) -> ReplicaView:
        """Return the view of the replica of a partition at the running node with the index `at`."""
        view = self._local.views[nodes[at]]
        assert view.quorum is not None
        return view.quorum.r if partition == METADATA_PARTITION else view.replicas[partition]

    def is_held(self, nodes: Nodes, cuts: Cuts, at: int, partition: str) -> bool:
        """Return whether the leader holds this node's fetch until its own wait is over."""
        if not self.hears(nodes, cuts, at, partition):
            return False
        leader = self._number[self.replica(nodes, at, partition).leader]
        return self._names[at] in self.replica(nodes, leader, partition).waiting

    def hears(self, nodes: Nodes, cuts: Cuts, at: int, partition: str) -> bool:
        """Return whether the follower's leader runs, is reachable, and does lead."""
        other = self._number.get(self.replica(nodes, at, partition).leader)
        if other is None or is_cut(cuts, at, other):
            return False
        view = self._local.views[nodes[other]]
        if not view.up or (partition != METADATA_PARTITION and partition not in view.replicas):
            return False
        return self.replica(nodes, other, partition).role == "leader"


def is_cut(cuts: Cuts, one: int, other: int) -> bool:
    """Return whether two nodes (by index) are cut off from each other."""
    return bool(cuts) and ((min(one, other), max(one, other)) in cuts)
