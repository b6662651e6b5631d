"""The roles of nodes, as the adapter's `probe` reports them: to aim faults, and for the page.

Of a verdict only the count of faults that hit a serving node depends on it: `dump` says which logs
there must be. Each node is asked by a thread of its own. A probe that raises, hangs or returns
nonsense costs only its own answers; the first error of each kind is shown in `output/probe.txt`."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from harness.runs.clock import now_us
from harness.systems.adapter import EVERYTHING, Adapter, Members, Node, Roles
from harness.systems.external.calls import CallErrors, awaited
from node.formats import trace
from node.formats.trace import TraceEvent

EVERY_S: Final = 0.1
MAX_WAITING: Final = 10_000
_HIGHEST_TERM: Final = 1 << 60


class Probe:
    """The threads, one per node, that ask the adapter's `probe` for roles, until `close`."""

    def __init__(
        self,
        adapter: Adapter,
        nodes: Mapping[str, Node],
        members: Callable[[], Collection[str]],
        partitions: Collection[str],
        is_running: Callable[[str], int],
        output: Path,
        *,
        asks_members: bool = False,
    ) -> None:
        """`nodes` are all nodes, whose identities may change, `members()` the present members.
        `is_running(node)` is the number of the node's process, 0 while there is none to ask.
        `asks_members`: nodes are asked for the members too."""
        self._adapter = adapter
        self._nodes = nodes
        self._members = members
        self._asks_members = asks_members
        self.said: dict[str, tuple[int, Members]] = {}
        """The last answer of `members` of each node, with its time in microseconds."""
        self._partitions = frozenset(partitions)
        self._is_running = is_running
        self._output = output
        self._errors = CallErrors(self._show)
        self._answers: queue.Queue[tuple[str, int, Any]] = queue.Queue(MAX_WAITING)
        self._closed = threading.Event()
        self._memory = _Memory()
        self._ready: dict[str, int] = {}
        """The process of each node that said that it is ready."""
        self._last_ready = Roles()
        self.led: set[str] = set()
        """The partitions whose leader an answer told."""
        self.names_in_sync = False
        """Whether an answer named a node that is in sync."""

    def start(self) -> None:
        for name in [name for name, node in self._nodes.items() if not node.is_voter]:
            asks = [self._probe] * self._adapter.writes("probe")
            asks += [self._ask_ready] * self._adapter.writes("ready")
            asks += [self._ask_members] * self._asks_members
            for ask in asks:
                watch = partial(self._watch, name, ask)
                threading.Thread(target=watch, daemon=True, name=f"probe-{name}").start()

    def close(self) -> None:
        """Stop the threads; a call of `probe` that hangs is abandoned."""
        self._closed.set()

    def events(self) -> list[TraceEvent]:
        """Return the changes of roles since the last call, as trace events."""
        found: list[TraceEvent] = []
        for _ in range(MAX_WAITING):
            try:
                node, incarnation, answer = self._answers.get_nowait()
            except queue.Empty:
                break
            if isinstance(answer, bool):
                self._ready[node] = incarnation * answer
            elif incarnation == self._is_running(node):
                found += self._memory.take(node, incarnation, self.understood(answer))
        return found if self._adapter.writes("probe") else [*found, *self._readiness()]

    def _readiness(self) -> Iterator[TraceEvent]:
        """Yield trace events if other nodes are ready than before."""
        roles = Roles(in_sync=self._ready_now(), replicas=tuple(self._members()))
        if not roles.in_sync or roles == self._last_ready:
            return
        self._last_ready, self.names_in_sync = roles, True
        first = roles.in_sync[0]
        for partition in self._partitions:
            about = {"t_us": now_us(), "node": first, "incarnation": self._ready[first]}
            yield about | _partition(partition, "", -1, roles)

    def _ready_now(self) -> tuple[str, ...]:
        """Return the nodes whose present process said that it is ready."""
        ready = (n for n, number in self._ready.items() if number == self._is_running(n) > 0)
        return tuple(sorted(ready))

    def _watch(self, name: str, ask: Callable[[Node, int], None]) -> None:
        while not self._closed.wait(EVERY_S):
            incarnation = self._is_running(name)
            if not incarnation:
                continue
            try:
                ask(self._nodes[name], incarnation)
            except Exception as error:
                self._errors.note(f"{ask.__name__.strip('_')} of {name}", error)

    def _probe(self, node: Node, incarnation: int) -> None:
        answer = awaited(self._adapter.probe(node))
        with contextlib.suppress(queue.Full):
            self._answers.put_nowait((node.name, incarnation, answer))

    def _ask_ready(self, node: Node, incarnation: int) -> None:
        answer = False
        try:
            answer = awaited(self._adapter.ready(node)) is True
        finally:
            with contextlib.suppress(queue.Full):
                self._answers.put_nowait((node.name, incarnation, answer))

    def _ask_members(self, node: Node, incarnation: int) -> None:
        answer = awaited(self._adapter.members(node))
        if isinstance(answer, Members):
            self.said[node.name] = now_us(), answer

    def understood(self, answer: Any) -> dict[str, Roles]:
        """Return the valid part of an answer of `probe`: partition -> roles."""
        if not isinstance(answer, Mapping):
            self._errors.note("probe", TypeError(f"returned {type(answer).__name__}, no mapping"))
            return {}
        found = {}
        for partition in ("", *sorted(self._partitions)):
            roles = answer.get(partition, answer.get(EVERYTHING))
            if isinstance(roles, Roles) and type(roles.term) is int:
                found[partition] = Roles(
                    max(-1, min(roles.term, _HIGHEST_TERM)),
                    self._known(roles.in_sync) or self._ready_now(),
                    self._known(roles.replicas) or tuple(self._members()),
                )
        self.led.update(found)
        self.names_in_sync = self.names_in_sync or any(roles.in_sync for roles in found.values())
        return found

    def _known(self, names: Any) -> tuple[str, ...]:
        given = names if isinstance(names, list | tuple | set | frozenset | dict) else ()
        named = {n.identity or n.name: n.name for n in self._nodes.values()} | {
            n.dial(role): n.name for n in self._nodes.values() for role in n.dialed
        }
        known = {named[n] for n in given if isinstance(n, str) and n in named}
        return tuple(sorted(known))

    def _show(self, text: str) -> None:
        with contextlib.suppress(OSError), self._output.open("a") as file:
            file.write(text.rstrip() + "\n")


class _Memory:
    """The last answers, and the epochs that order them: if a system has no terms, each change
    of the leader begins a new one."""

    def __init__(self) -> None:
        self._claims: dict[str, tuple[str, int, int]] = {}
        self._leading: dict[tuple[str, str], tuple[int, int]] = {}
        """By partition and node: the process and the term of a claim that still holds. Two nodes
        may claim one term for a long time."""
        self._epochs: dict[str, int] = {}
        self._in_sync: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._replicas: dict[str, tuple[str, ...]] = {}

    def take(
        self, node: str, incarnation: int, answer: Mapping[str, Roles]
    ) -> Iterator[TraceEvent]:
        """Yield trace events for the leaderships that a node reports."""
        about = {"t_us": now_us(), "node": node, "incarnation": incarnation}
        for partition in [
            name for name, who in self._leading if who == node and name not in answer
        ]:
            del self._leading[partition, node]
            if self._claims[partition][0] == node:
                # A claim that another node has held all the time is new again.
                for other in [who for who in self._leading if who[0] == partition]:
                    del self._leading[other]
            yield about | _role(partition, "follower", None, self._epochs[partition])
        for partition, roles in answer.items():
            claim = (node, incarnation, roles.term)
            before = self._claims.get(partition)
            again = self._leading.get((partition, node)) != claim[1:]
            is_new = before != claim and again and (before is None or roles.term >= before[2])
            if is_new:
                self._claims[partition] = claim
                self._epochs[partition] = max(roles.term, self._epochs.get(partition, 0) + 1)
            epoch = self._epochs[partition]
            if not partition:
                if is_new:
                    yield about | trace.event(trace.CONTROLLER, state="active", term=epoch)
                continue
            leads = self._claims[partition][:2] == (node, incarnation)
            moved = leads and self._replicas.get(partition) != roles.replicas
            if is_new or moved:
                self._replicas[partition] = roles.replicas
                yield about | _partition(partition, node, epoch, roles)
            if is_new or (leads and again):
                self._leading[partition, node] = claim[1:]
                yield about | _role(partition, "leader", node, epoch)
            if leads and self._in_sync.get(partition) != (epoch, roles.in_sync):
                self._in_sync[partition] = (epoch, roles.in_sync)
                isr = {name: list(roles.in_sync) for name in ("isr", "maximal_isr")}
                at = {"leader_epoch": epoch, "partition_epoch": now_us()}
                yield about | trace.event(trace.ISR, partition, **isr, **at)


def _role(partition: str, role: str, leader: str | None, epoch: int) -> TraceEvent:
    about = {"role": role, "leader": leader, "leader_epoch": epoch}
    return trace.event(trace.ROLE, partition, **about, partition_epoch=0, leo=0, hw=0)


def _partition(partition: str, leader: str, epoch: int, roles: Roles) -> TraceEvent:
    led = {"leader": leader, "leader_epoch": epoch, "partition_epoch": 0 if leader else now_us()}
    isr = {"isr": list(roles.in_sync), "elr": [], "last_known_elr": []}
    moves = {"unclean": False, "adding": [], "removing": [], "min_isr": 1}
    replicas = {"replicas": list(roles.replicas)}
    return trace.event(trace.PARTITION, partition, **led, **isr, **replicas, **moves)
