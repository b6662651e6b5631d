"""The states of a whole cluster while the clock stands still, and what can happen in each.

A *forced* step is bound to come: the oldest message under way arrives, or, if none is
under way, the shortest wait ends (of retries, heartbeats and the like). Every other step is an
*action*: one of those that the bounds count (a crash, a cut link), or the end of a session or an
election timeout. `docs/explore.md` says why no other order needs to be tried within the bounds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from harness.clients.workload import MIN_RECORD_BYTES, encode_batch
from harness.explore.bounds import BUDGETS, Bounds
from harness.explore.invariants import Invariants
from harness.explore.local_steps import Event, LocalStep, LocalSteps
from harness.explore.node_model import NodeView, ReplicaView
from harness.explore.waits import LONGEST, Action, ExplorerDefect, Waits, is_cut
from harness.sim.invariant_checker import Violation
from harness.systems.floodmark.brokers import topic_of
from nemesis.faults.admin import rotated
from node.core.batch import Produced
from node.core.turn import TurnStep
from node.formats.messages import (
    CONSUMER,
    AnyMessage,
    ElectLeader,
    FetchRequest,
    ProduceRequest,
    ReassignReplicas,
)
from node.formats.trace import METADATA_PARTITION
from node.formats.wire import ADMIN

PARTITION: Final = "log-0"
CLIENT: Final = "c1"
_AT: Final = {name: at for at, name in enumerate(BUDGETS)}
_CRASHES: Final = _AT["crashes"]
_INTERRUPTING: Final = tuple(
    _AT[n] for n in ("records", "retries", "losses", "doubles", "delays", "crashes")
)
"""While one of these is left, rounds without a change matter: messages may be under way then."""

Sent = tuple[int, int, int]
"""A message under way: sender, receiver and number of the message."""
STEP: Final[Action] = ("step",)
"""The forced step."""
_encoder: Final = msgspec.msgpack.Encoder()
_MOST_RECORDS: Final = 16
"""More records than bounds can have: first attempts have smaller numbers."""
STORM: Final[Action] = ("storm",)
FINAL: Final[Action] = ("final",)
"""The end of the start, and of a path, among the steps of a path that is replayed."""
MOST_SILENCES: Final = 40
"""The number of waits that end while a cluster is left alone."""
STRETCH: Final = 12
"""The number of forced steps before a state is looked up: many states lead to the same chain."""
_Judged = tuple[int, Violation | None]
"""The memory of the invariants after a step, and the violation that the step showed."""
LOST: Final[Event] = ("lost",)
"""The result instead of a step if a message came to a node that is down or cut off."""


class State(NamedTuple):
    """A state of the cluster: its nodes by number, the messages under way in the order in which
    they were sent, the messages held back to arrive late, the pairs of nodes that are cut off from
    each other, how often each kind of action may still happen, and what the invariants remember."""

    nodes: tuple[int, ...]
    queue: tuple[Sent, ...]
    held: tuple[Sent, ...]
    cuts: tuple[tuple[int, int], ...]
    left: tuple[int, ...]
    memory: int


Stepped = tuple[State, Violation | None]
"""A state, and the violation that the step to it showed."""


class NodeStep(NamedTuple):
    """A step of a node: its index in the cluster, its state's number before, and the event."""

    at: int
    node: int
    event: Event


class Edge(NamedTuple):
    """An action, the state after it, and its violation. `costs`: whether the bounds count it."""

    action: Action
    state: State
    violation: Violation | None
    costs: bool


class Model:
    """A cluster within some bounds: its first state, and the actions possible in each state."""

    def __init__(self, bounds: Bounds, *, check: bool = False, reduced: bool = True) -> None:
        self.bounds = bounds
        self.local = LocalSteps(bounds, check=check, reduced=reduced)
        self.invariants = Invariants(bounds)
        self.names = self.local.names
        self.number = {name: at for at, name in enumerate(self.names)}
        self.voters = range(bounds.voters)
        self.brokers = range(bounds.voters, len(self.names))
        self._waits = Waits(self.local)
        self._reduced = reduced
        self._seen: Callable[[int, int, Event], None] | None = None
        # The same nodes with the same memory make the same step while other messages are under way.
        self._judged: dict[tuple[int, tuple[int, ...], int, Event], _Judged] = {}

    # -- the beginning

    def boot(self) -> State:
        """Return the first state: all nodes run, n1 leads, and nothing is under way or due."""
        none = (0,) * len(BUDGETS)
        state = State(
            tuple(map(self.local.first, self.names)), (), (), (), none, self.invariants.first()
        )
        for at in range(len(self.names)):
            state, _ = self._after(state, at, ("start",), state.queue)
        state = self._led(self._at_rest(state), METADATA_PARTITION, self.voters)
        request = topic_of(self.bounds.cluster())
        controller = self._controllers(state)[0]
        state, _ = self._after(state, controller, self._sent(ADMIN, request), ())
        state = self._at_rest(state)
        if self.bounds.voted:
            state = self._led(state, PARTITION, self.brokers)
        # The memory of the invariants stays, but nothing that happened so far counts as an action.
        return state._replace(left=self.bounds.budget())

    def _led(self, state: State, partition: str, members: range) -> State:
        """Let the first member lead the partition."""
        first = members[0]
        for _ in range(2):  # one election, and a look at what came of it
            if self._replica(state, first, partition).role == "leader":
                return state
            event = ("expire", (f"election/{partition}",))
            state = self._at_rest(self._after(state, first, event, ())[0])
        raise ExplorerDefect(f"no node comes to lead {partition}")

    def _at_rest(self, state: State) -> State:
        """Return the state after all forced steps, when the cluster is at rest."""
        for _ in range(LONGEST):
            forced = self._forced(state)
            if forced is None:
                return state
            state, violation = self._forced_step(state, forced)
            assert violation is None, violation
        raise ExplorerDefect("forced steps of the cluster never end")

    def key(self, state: State) -> bytes:
        """Return a hash of 16 bytes of a state: its nodes, messages to receive, cut links and the
        memory of the invariants. States that differ only in what may happen still share it."""
        nodes, queue, _, cuts, _, memory = state
        if queue and self._reduced:
            queue = tuple([each for each in queue if self._is_heard(state, each)])
        whole = _encoder.encode((nodes, queue, cuts, memory))
        return hashlib.blake2b(whole, digest_size=16).digest()

    def _is_heard(self, state: State, sent: Sent) -> bool:
        """Return whether the receiver of a message is up and reachable. It cannot become so while
        the message is under way, because processes start and links heal only at rest."""
        return self._view(state, sent[1]).up and not is_cut(state.cuts, sent[0], sent[1])

    # -- what can happen

    def edges(self, state: State) -> Iterator[Edge]:
        """Yield every possible action with its result, which includes the forced steps."""
        forced = self._forced(state)
        for action in self._actions(state, forced):
            after, violation = self.apply(state, action)
            if after != state or violation is not None:
                costs = action[0] not in ("expire", "release", "heal")
                yield Edge(action, *self._followed(after, violation), costs)
        if forced is not None:
            yield Edge(STEP, *self._followed(*self._forced_step(state, forced)), False)

    def apply(self, state: State, action: Action) -> Stepped:
        """Return the state and violation right after an action, before forced steps."""
        if action == STEP:
            forced = self._forced(state)
            assert forced is not None
            return self._forced_step(state, forced)
        return self._acted(state, action)

    def replayed(self, actions: Iterable[Action]) -> Iterator[NodeStep | Action]:
        """Yield the steps of a path: those of the start; each action, then the steps of nodes that
        it causes; and those of a cluster that is healed, left alone, and read. `STORM` and `FINAL`
        stand between the three."""
        steps: list[NodeStep] = []
        state, _ = self._noting(steps, lambda: (self.boot(), None))
        yield from (*steps, STORM)
        for action in actions:
            steps = []
            if action != STEP:
                yield action
            state, violation = self._noting(steps, self.apply, state, action)
            state, violation = self._noting(steps, self._followed, state, violation)
            yield from steps
        yield FINAL
        steps = []
        self._noting(steps, self._left_alone, state)
        yield from steps

    def violates(self, actions: Iterable[Action]) -> bool:
        """Return whether a path from the first state is possible and ends with a violation."""
        state, violation = self.boot(), None
        for action in actions:
            possible = {edge.action for edge in self.edges(state)}
            if violation is not None or action not in possible:
                return False
            state, violation = self._followed(*self.apply(state, action))
        return violation is not None

    def _left_alone(self, state: State) -> tuple[State, None]:
        """Return the state after links are healed, nodes are started, all waits have ended, and
        the leader was sent one more record, and was read. Violations meanwhile do not count."""
        state = state._replace(cuts=(), held=())
        for at in range(len(self.names)):
            if not self._view(state, at).up:
                state, _ = self._after(state, at, ("start",), state.queue)
        for event in (self._record(self.bounds.records + 1), self._consume()):
            state = self._rested(state)
            for at in self.brokers:
                if self._view(state, at).up and self._leads(self._view(state, at)):
                    state, _ = self._after(state, at, event, state.queue)
        return self._rested(state), None

    def _rested(self, state: State) -> State:
        """Return the state after all messages and waits, whatever is violated."""
        silences = iter(range(MOST_SILENCES))
        for _ in range(LONGEST):
            forced = self._forced(state) or next(self._silences(state), None)
            if forced is None or (forced[0] == "expire" and next(silences, None) is None):
                break
            state, _ = self._forced_step(state, forced)
        return state

    def _noting(self, steps: list[NodeStep], make: Callable[..., Stepped], *what: Any) -> Stepped:
        self._seen = lambda at, node, event: steps.append(NodeStep(at, node, event))
        try:
            state, violation = make(*what)
        finally:
            self._seen = None
        return state, violation

    def _followed(self, state: State, violation: Violation | None) -> Stepped:
        """Return the state after the forced steps up to the next choice or violation, or after
        `STRETCH` of them. The steps do not end at a message to a dead process: the key of a state
        leaves such messages out, so the state after it would be taken for a known one."""
        for made in range(LONGEST):
            forced = None if violation is not None else self._forced(state)
            if forced is None or next(self._actions(state, forced), None) is not None:
                return state, violation
            unheard = state.queue and not self._is_heard(state, state.queue[0])
            if made >= STRETCH and not unheard:
                return state, violation
            state, violation = self._forced_step(state, forced)
        raise ExplorerDefect("forced steps of the cluster never end")

    # -- forced steps

    def _forced(self, state: State) -> Action | None:
        if state.queue:
            return ("deliver",)
        return self._waits.next(state.nodes, state.cuts)

    def _forced_step(self, state: State, forced: Action) -> Stepped:
        if forced[0] == "deliver":
            source, to, message = state.queue[0]
            rest = state.queue[1:]
            if not self._is_heard(state, state.queue[0]):
                if self._seen is not None:
                    self._seen(to, state.nodes[to], LOST)
                return state._replace(queue=rest), None
            return self._after(state, to, ("deliver", self.names[source], message), rest)
        return self._expire(state, *forced[1:])

    # -- actions

    def _actions(self, state: State, forced: Action | None) -> Iterator[Action]:
        """Yield all actions but the forced step: at rest all that are possible; otherwise those on
        the node of the forced step, because all others can as well happen later."""
        if forced is not None and not (state.held or any(state.left)):
            return
        if forced is not None and forced[0] == "deliver":
            if not self._is_heard(state, state.queue[0]):
                # No node makes a step. With a choice here, the state after it would pass for known:
                # the keys of both leave the message out.
                return
            yield from self._on_message(state)
            yield from self._in_between(state, state.queue[0][1])
            return
        if forced is not None:
            yield from self._in_between(state, forced[1])
            if state.left[_CRASHES]:
                yield ("crash", forced)
            return
        for at in range(len(self.names)):
            yield from self._on_node(state, at)
            if state.left[_AT["restarts"]] and not self._view(state, at).up:
                yield ("start", at)
        yield from self._on_links(state)
        yield from self._on_controller(state)
        waits = list(self._silences(state))
        circular = self._waits.is_circular(state.nodes, state.cuts)
        if circular or any(state.left[at] for at in _INTERRUPTING):
            waits += self._waits.soon(state.nodes, state.cuts)
        yield from waits
        if state.left[_CRASHES]:
            yield from (("crash", wait) for wait in waits)

    def _on_message(self, state: State) -> Iterator[Action]:
        """Return the actions on the oldest message under way."""
        left = state.left
        if left[_AT["losses"]]:
            yield ("lose",)
        if left[_AT["doubles"]]:
            yield ("double",)
        if left[_AT["delays"]]:
            yield ("delay",)
        if left[_CRASHES]:
            yield ("crash", ("deliver",))

    def _in_between(self, state: State, at: int) -> Iterator[Action]:
        """Return the actions on a node that is about to make a step."""
        if not self.bounds.calm:
            yield from self._on_node(state, at)
            return
        yield from self._late(state, at)
        # At rest everything is synced.
        if state.left[_AT["power_cuts"]] and at in self.brokers and self._view(state, at).up:
            yield ("power-cut", at)

    def _late(self, state: State, at: int) -> Iterator[Action]:
        """Return the deliveries of late messages to a node."""
        for number, sent in enumerate(state.held):
            # A late message to a node without a process never arrives.
            if sent[1] == at and (self._is_heard(state, sent) or not self._reduced):
                yield ("release", number)

    def _on_node(self, state: State, at: int) -> Iterator[Action]:
        """Return the actions on a node, and those of clients at that node."""
        left, view = state.left, self._view(state, at)
        yield from self._late(state, at)
        if not view.up:
            return
        if at in self.voters:
            if left[_AT["voter_kills"]]:
                yield ("kill", at, "voter_kills")
            return
        if left[_AT["kills"]]:
            yield ("kill", at, "kills")
        if left[_AT["power_cuts"]]:
            yield ("power-cut", at)
        if self._leads(view):
            if left[_AT["records"]]:
                yield ("send", at)
                if left[_CRASHES]:
                    yield ("send-crash", at)
            if left[_AT["retries"]] and self._sent_records(state):
                yield ("again", at)
            if left[_AT["reads"]]:
                yield ("read", at)

    def _on_links(self, state: State) -> Iterator[Action]:
        for pair in state.cuts:
            yield ("heal", pair)
        for at in self.brokers:
            if state.left[_AT["fencings"]] and (0, at) not in state.cuts:
                yield ("fence", at)
            if state.left[_AT["cuts"]]:
                for other in range(at + 1, len(self.names)):
                    if (at, other) not in state.cuts:
                        yield ("cut", (at, other))

    def _on_controller(self, state: State) -> Iterator[Action]:
        """Return the commands of an operator."""
        if not (state.left[_AT["elections"]] or state.left[_AT["moves"]]):
            return
        for at in self._controllers(state)[:1]:
            if state.left[_AT["elections"]]:
                for broker in self.brokers:
                    yield ("elect", at, self.names[broker])
            if state.left[_AT["moves"]]:
                yield ("move", at)

    def _silences(self, state: State) -> Iterator[Action]:
        """Yield the ends of long waits for a silent node, if no shorter wait matters."""
        for at in range(len(self.names)):
            view = self._view(state, at)
            for name in view.timers:
                kind, _, about = name.partition("/")
                if self._is_over(state, at, view, kind, about):
                    yield ("expire", at, (name,))

    def _is_over(self, state: State, at: int, view: NodeView, kind: str, about: str) -> bool:
        if kind == "session":
            assert view.registered is not None
            broker = self._view(state, self.number[about])
            silent = not broker.up or is_cut(state.cuts, at, self.number[about])
            return silent or broker.ctx.broker_epoch != view.registered[about]
        if kind == "lag":
            partition, _, follower = about.partition("/")
            r = self._replica(state, at, partition)
            return follower not in r.waiting or follower not in r.at_end
        if kind == "majority":
            r = self._replica(state, at, about)
            there = sum(name in r.waiting for name in r.voters)
            return there + 1 <= len(r.voters) // 2
        if kind in ("election", "silence"):
            where = state.nodes, state.cuts, at, about
            heard = kind == "silence" and self._waits.hears(*where)
            return not heard and not self._waits.is_held(*where)
        return kind == "reports"

    # -- what an action does

    def _acted(self, state: State, action: Action) -> Stepped:
        match action:
            case ("expire", at, waits):
                return self._expire(state, at, waits)
            case ("release", number):
                return self._release(state, number)
            case ("lose",):
                return self._spent(state, "losses")._replace(queue=state.queue[1:]), None
            case ("double",):
                return self._held(self._spent(state, "doubles")), None
            case ("delay",):
                state = self._held(self._spent(state, "delays"))
                return state._replace(queue=state.queue[1:]), None
            case ("crash", forced):
                return self._crash(state, forced)
            case ("kill", at, budget):
                return self._did(state, budget, at, ("kill",))
            case ("power-cut", at):
                return self._did(state, "power_cuts", at, ("power-cut",))
            case ("start", at):
                return self._did(state, "restarts", at, ("start",))
            case ("send", at):
                return self._did(state, "records", at, self._produce(state))
            case ("send-crash", at):
                event = self._crash_in(state.nodes[at], self._produce(state))
                return self._did(self._spent(state, "crashes"), "records", at, event)
            case ("again", at):
                retry = self.bounds.retries - state.left[_AT["retries"]] + 1
                event = self._record(self._sent_records(state), attempt=retry)
                return self._did(state, "retries", at, event)
            case ("read", at):
                return self._did(state, "reads", at, self._consume())
        return self._operated(state, action)

    def _operated(self, state: State, action: Action) -> Stepped:
        """Return the state after an action on links, or a command of an operator."""
        match action:
            case ("fence", at):
                pairs = [(voter, at) for voter in self.voters]
                cuts = tuple(sorted({*state.cuts, *pairs}))
                return self._spent(state, "fencings")._replace(cuts=cuts), None
            case ("cut", pair):
                cuts = tuple(sorted((*state.cuts, pair)))
                return self._spent(state, "cuts")._replace(cuts=cuts), None
            case ("heal", pair):
                return self._heal(state, pair)
            case ("elect", at, broker):
                event = self._sent(ADMIN, ElectLeader(partition=PARTITION, first=broker))
                return self._commanded(state, "elections", at, event)
            case ("move", at):
                brokers = tuple(self.names[b] for b in self.brokers)
                replicas = rotated(brokers[: self.bounds.copies], brokers)
                request = ReassignReplicas(partition=PARTITION, replicas=replicas)
                return self._commanded(state, "moves", at, self._sent(ADMIN, request))
        raise AssertionError(action)

    def _did(self, state: State, budget: str, at: int, event: Event) -> Stepped:
        """Return the state after a step of a node that the bounds count."""
        return self._after(self._spent(state, budget), at, event, state.queue)

    def _held(self, state: State) -> State:
        """Return the state with a copy of the oldest message under way that arrives late."""
        return state._replace(held=tuple(sorted((*state.held, state.queue[0]))))

    def _expire(self, state: State, at: int, waits: tuple[str, ...]) -> Stepped:
        return self._after(state, at, ("expire", waits), state.queue)

    def _release(self, state: State, number: int) -> Stepped:
        source, to, message = state.held[number]
        held = (*state.held[:number], *state.held[number + 1 :])
        state = state._replace(held=held)
        if not self._view(state, to).up or is_cut(state.cuts, source, to):
            return state, None
        return self._after(state, to, ("deliver", self.names[source], message), state.queue)

    def _crash(self, state: State, forced: Action) -> Stepped:
        """Let the node make its step, and end before it has sent anything. If a message
        does not wait for the commit, the end comes before the commit instead."""
        state = self._spent(state, "crashes")
        if forced[0] == "deliver":
            source, at, message = state.queue[0]
            event: Event = ("deliver", self.names[source], message)
            state = state._replace(queue=state.queue[1:])
        else:
            at, event = forced[1], ("expire", forced[2])
        return self._after(state, at, self._crash_in(state.nodes[at], event), state.queue)

    def _crash_in(self, node: int, event: Event) -> Event:
        step = TurnStep.COMMIT if self.local.step(node, event).early else TurnStep.SEND
        return ("crash", step.value, event)

    def _sent_records(self, state: State) -> int:
        return self.bounds.records - state.left[_AT["records"]]

    def _produce(self, state: State) -> Event:
        return self._record(self._sent_records(state) + 1)

    def _record(self, value: int, *, attempt: int = 0) -> Event:
        """Return the request that sends a record, by its own producer if there are retries."""
        corr = value + _MOST_RECORDS * attempt
        request = ProduceRequest(partition=PARTITION, corr=corr, timeout_ms=3000)
        produced = Produced(value, 0, 0) if self.bounds.retries else None
        body = encode_batch(PARTITION, value, 1, MIN_RECORD_BYTES, produced)
        return self._sent(CLIENT, request, body)

    def _consume(self) -> Event:
        return self._sent(CLIENT, FetchRequest(partition=PARTITION, replica=CONSUMER))

    def record_of(self, message: AnyMessage) -> int:
        """Return the value of the record that a request of a client sends, or that an answer is
        about; 0 for a read."""
        return message.corr % _MOST_RECORDS

    def _heal(self, state: State, pair: tuple[int, int]) -> Stepped:
        """Heal a cut link; links of a broker to the voters are healed together."""
        voters = pair[0] in self.voters
        gone = [
            c
            for c in state.cuts
            if c == pair or (voters and c[1] == pair[1] and c[0] in self.voters)
        ]
        return state._replace(cuts=tuple(c for c in state.cuts if c not in gone)), None

    def _commanded(self, state: State, budget: str, at: int, event: Event) -> Stepped:
        """Give a command of an operator; one that has no effect is no action."""
        after, violation = self._after(state, at, event, state.queue)
        if after.nodes == state.nodes and violation is None:
            return state, None
        return self._spent(after, budget), violation

    # -- helpers

    def _after(self, state: State, at: int, event: Event, queue: tuple[Sent, ...]) -> Stepped:
        """Return the state after a step of one node."""
        if self._seen is not None:
            self._seen(at, state.nodes[at], event)
        made = self.local.step(state.nodes[at], event)
        nodes = (*state.nodes[:at], made.node, *state.nodes[at + 1 :])
        new = [
            (at, other, message)
            for to, message in made.messages
            if (other := self.number.get(to)) is not None
        ]
        key = state.memory, state.nodes, at, event
        judged = self._judged.get(key)
        if judged is None:
            judged = self._judged[key] = self._judge_step(state, at, event, made, nodes)
        memory, violation = judged
        after = State(
            nodes, (*queue, *new) if new else queue, state.held, state.cuts, state.left, memory
        )
        return after, violation

    def _judge_step(
        self, state: State, at: int, event: Event, made: LocalStep, nodes: tuple[int, ...]
    ) -> _Judged:
        """Ask the invariants about a step of one node that led to these nodes."""
        name = self.names[at]
        if made.error:
            return state.memory, self.invariants.ended(name, made.error)
        if event[0] == "crash":
            # Its trace of the step was written before it ended.
            alive = self.local.step(state.nodes[at], event[2]).node
            nodes = (*nodes[:at], alive, *nodes[at + 1 :])
        answers = [self.local.messages[message] for to, message in made.messages if to == CLIENT]
        return self.invariants.turn(
            state.memory, lambda each: self._core(nodes, each), name, made.events, answers
        )

    def _core(self, nodes: tuple[int, ...], name: str) -> NodeView | None:
        at = self.number.get(name)
        view = None if at is None else self.local.views[nodes[at]]
        return view if view is not None and view.up else None

    def _sent(self, source: str, message: AnyMessage, body: bytes | None = None) -> Event:
        return ("deliver", source, self.local.message(message, body))

    def _spent(self, state: State, budget: str) -> State:
        at = _AT[budget]
        left = (*state.left[:at], state.left[at] - 1, *state.left[at + 1 :])
        return state._replace(left=left)

    def _view(self, state: State, at: int) -> NodeView:
        return self.local.views[state.nodes[at]]

    def _replica(self, state: State, at: int, partition: str) -> ReplicaView:
        return self._waits.replica(state.nodes, at, partition)

    def _leads(self, view: NodeView) -> bool:
        r = view.replicas.get(PARTITION)
        return r is not None and r.role == "leader"

    def _controllers(self, state: State) -> list[int]:
        return [at for at in self.voters if self._view(state, at).registered is not None]
