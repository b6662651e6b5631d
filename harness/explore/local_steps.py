"""The steps of single nodes, each computed once.

A state of the cluster refers to states of nodes and to messages by small numbers. A step of a node
depends on the node's state and the event only, so it is computed once and remembered. Node states
whose canonical values are equal have one number. With `check`, up to `REPRESENTATIVES` other forms
of such a node state are kept; `repeated` steps them again and compares the results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from harness.explore.bounds import Bounds
from harness.explore.node_model import ModelNode, NodeState, NodeTurn, NodeView, view_of
from harness.systems.floodmark.brokers import node_config
from node.core.api import NodeConfig
from node.core.turn import TurnStep
from node.formats import trace

REPRESENTATIVES: Final = 3
TOLD: Final = frozenset(
    {
        *(trace.HW, trace.ROLE, trace.APPEND, trace.TRUNCATED, trace.PARTITION),
        *(trace.ISR, trace.PROPOSED, trace.ACK, trace.VOTE, trace.BROKER, trace.DELETED),
    }
)
"""Events that invariants look at."""

Event = tuple[Any, ...]
"""An event of a node: ("deliver", source, message number), ("expire", names), ("start",),
("kill",), ("power-cut",); or ("crash", step, event): the process ends before that step of the
turn of the event."""


class LocalStep(NamedTuple):
    """The result of a step of one node: the number of its next state, the messages it sends as
    (receiver, message number), the events that invariants look at, whether messages leave before
    the commit (`early`), and the error if the process ended by itself."""

    node: int
    messages: tuple[tuple[str, int], ...]
    events: tuple[dict[str, Any], ...]
    early: bool
    error: str


class LocalSteps:
    """The node states and messages of one exploration, by number, and the steps computed."""

    def __init__(self, bounds: Bounds, *, check: bool = False, reduced: bool = True) -> None:
        cluster = bounds.cluster()
        self.names: tuple[str, ...] = (*cluster.voter_names(), *cluster.broker_names())
        self.configs: dict[str, NodeConfig] = {n: node_config(cluster, n, 1) for n in self.names}
        self.views: list[NodeView] = []
        self.messages: list[tuple[Any, bytes | None]] = []
        self.made = 0
        self._check = check
        self._reduced = reduced
        self._others: dict[int, list[NodeState]] = {}
        self._owners: list[str] = []
        self._states: list[NodeState] = []
        self._keys: dict[bytes, int] = {}
        self._message_numbers: dict[tuple[Any, bytes | None], int] = {}
        self._steps: dict[tuple[int, Event], LocalStep] = {}

    def __len__(self) -> int:
        return len(self._states)

    def first(self, name: str) -> int:
        """Return the number of the state of node `name` before its first start."""
        return self._number(ModelNode(self.configs[name]))

    def step(self, node: int, event: Event) -> LocalStep:
        """Return the step of a node state at an event, computed once and remembered."""
        key = node, event
        known = self._steps.get(key)
        if known is None:
            self.made += 1
            known = self._steps[key] = self._make(self._owners[node], self._states[node], event)
        return known

    def message(self, message: Any, body: bytes | None) -> int:
        key = message, body
        number = self._message_numbers.get(key)
        if number is None:
            number = self._message_numbers[key] = len(self.messages)
            self.messages.append(key)
        return number

    def turn(self, node: int, event: Event) -> NodeTurn:
        """Return the step with its full trace and messages, computed again."""
        return self._turn(self._owners[node], self._states[node], event)

    def repeated(self) -> Iterator[bool]:
        """Repeat all steps from the other forms of merged node states. Yield for each whether its
        result differs from the remembered one. Forms that are found meanwhile are not stepped."""
        forms = {number: tuple(others) for number, others in self._others.items()}
        for (number, event), expected in list(self._steps.items()):
            for other in forms.get(number, ()):
                yield self._make(self._owners[number], other, event) != expected

    def _turn(
        self, owner: str, state: NodeState, event: Event, ends_before: TurnStep | None = None
    ) -> NodeTurn:
        node = ModelNode(self.configs[owner], state, ends_before)
        match event:
            case ("deliver", source, number):
                return node.deliver(source, *self.messages[number])
            case ("expire", names):
                return node.expire(names)
            case ("start",):
                return node.start()
            case ("kill",):
                return node.kill()
            case ("power-cut",):
                return node.power_cut()
            case ("crash", step, inner):
                return self._turn(owner, state, inner, TurnStep(step))
        raise AssertionError(event)

    def _make(self, owner: str, state: NodeState, event: Event) -> LocalStep:
        turn = self._turn(owner, state, event)
        messages = tuple((m.to, self.message(m.message, m.body)) for m in turn.messages)
        events = tuple({"node": owner, **e} for e in turn.events if e["event"] in TOLD)
        return LocalStep(self._number(turn.node), messages, events, turn.early, turn.error)

    def _number(self, node: ModelNode) -> int:
        # Nodes are not reset here, so that they can be compared with the ones merged with them.
        made = node.state() if self._check else None
        if self._reduced:
            node.forget()
        key = node.key()
        number = self._keys.get(key)
        if number is None:
            number = self._keys[key] = len(self._states)
            self._states.append(node.state())
            self._owners.append(node.config.node)
            self.views.append(view_of(node))
        if made is not None and made != self._states[number]:
            others = self._others.setdefault(number, [])
            if len(others) < REPRESENTATIVES and made not in others:
                others.append(made)
        return number
