"""Whole brokers under virtual time for tests of the core: the nodes, disks and clock of the
simulated world (`harness.sim`), with links and a client that a test moves by hand.

Every message takes the same time. Links can be cut, and a rule can hold or drop messages. The
simulator's invariants are checked after each turn of each node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.formats.problem import Exit
from harness.formats.run_info import Promise
from harness.sim.disk import SimDisk
from harness.sim.invariant_checker import InvariantChecker, Violation
from harness.sim.network import Action, EventQueue
from harness.sim.node import LatencyProfile, SimNode
from node.core import batch as batches
from node.core.api import NodeConfig
from node.core.broker import Broker
from node.core.protocol import protocol as protocol_of
from node.formats.messages import (
    AdminResponse,
    AnyMessage,
    CreateTopic,
    ProduceRequest,
    ProduceResponse,
)
from node.formats.timings import Timings
from node.formats.trace import TraceEvent

CLIENT = "c1"
Message = tuple[str, str, AnyMessage, bytes | None]
"""Source, receiver, message, body."""
Rule = Callable[[str, str, AnyMessage], bool]
AT_ONCE = LatencyProfile(boot_us=(0, 0), notice_us=(0, 0))


def logs_of(disk: SimDisk) -> dict[str, dict[int, tuple[bytes, bytes]]]:
    """Return the running process's log: partition -> base offset -> (prefix hash, batch)."""
    return disk._now.logs


class World:
    """Brokers n1.., voters v1.., one client "c1" whose messages are kept in `mail`, and the links.

    `cut` has links (source, receiver); `hold` and `drop` are rules (source, receiver, message).
    What is held waits in `held`. `heard` is called with each message that is sent."""

    def __init__(
        self,
        seed: int = 0,
        *,
        brokers: int = 3,
        voters: int = 1,
        latency_us: int = 1000,
        check_invariants: bool = True,
        protocol: str = "kafka",
        node: type[SimNode] = SimNode,
        **config: Any,
    ) -> None:
        self.broker_names = tuple(f"n{i}" for i in range(1, brokers + 1))
        self.voter_names = tuple(f"v{i}" for i in range(1, voters + 1))
        self.queue = EventQueue()
        self._latency_us = latency_us
        self._arrive: dict[str, Action] = {}
        self.cut: set[tuple[str, str]] = set()
        self.hold: Rule = lambda *_: False
        self.drop: Rule = lambda *_: False
        self.held: list[Message] = []
        self.heard: Callable[[str, str, AnyMessage, bytes | None], None] = lambda *_: None
        self.trace: list[TraceEvent] = []
        self.mail: list[tuple[str, AnyMessage, bytes | None]] = []
        self._config = {"protocol": protocol, "timings": Timings(), **config}
        self.invariants = InvariantChecker(
            lambda name: self.nodes.get(name),
            protocol_of(protocol),
            Promise(),
            lambda: (len(self.trace), self.now_us),
            _fail if check_invariants else lambda violation: None,
        )
        self.sims = {
            name: node(
                name,
                self.queue,
                self,
                self.config,
                seed,
                self._seen,
                _ended,
                AT_ONCE,  # type: ignore[arg-type]
            )
            for name in (*self.broker_names, *self.voter_names)
        }
        self.join(CLIENT, lambda envelope: self.mail.append(envelope[1:]))
        for name in self.sims:
            self.start(name)

    @property
    def now_us(self) -> int:
        return self.queue.now_us

    @property
    def nodes(self) -> dict[str, Broker]:
        """The running brokers and voters."""
        return {name: sim.core for name, sim in self.sims.items() if sim.core is not None}

    @property
    def disks(self) -> dict[str, SimDisk]:
        """The disks of all nodes, running or not."""
        return {name: sim.disk for name, sim in self.sims.items()}

    def log(self, name: str, partition: str) -> dict[int, tuple[bytes, bytes]]:
        """Return a log on a disk: base offset -> (prefix hash, batch)."""
        return logs_of(self.disks[name]).get(partition, {})

    def config(self, name: str, incarnation: int) -> NodeConfig:
        """Return the configuration of a node's next process."""
        return NodeConfig(
            node=name,
            voters=self.voter_names,
            brokers=self.broker_names,
            incarnation=incarnation,
            **self._config,
        )

    def start(self, name: str) -> None:
        """Start a process, which listens at once."""
        self.sims[name].start()
        self.sims[name]._boot(self.sims[name].incarnation)

    def kill(self, name: str) -> None:
        self.sims[name].kill()

    def power_cut(self, name: str, keep: float = 0.0) -> None:
        """SIGKILL, and only so much of the unsynced writes is kept."""
        self.sims[name].kill()
        self.disks[name].power_cut(keep)
        self.disks[name].open()

    def stop(self, name: str) -> None:
        self.sims[name].ask_to_stop()

    def pause(self, name: str) -> None:
        self.sims[name].pause()

    def resume(self, name: str) -> None:
        """SIGCONT: the waiting messages are delivered at once, then the time."""
        self.sims[name].resume()

    def join(self, name: str, arrive: Action) -> None:
        self._arrive[name] = arrive

    def send(self, source: str, to: str, message: AnyMessage, body: bytes | None) -> None:
        """Send a message, unless a rule stops it."""
        self.heard(source, to, message, body)
        if (source, to) in self.cut or self.drop(source, to, message):
            return
        if self.hold(source, to, message):
            self.held.append((source, to, message, body))
        else:
            self.deliver(source, to, message, body, self._latency_us)

    def deliver(
        self, source: str, to: str, message: AnyMessage, body: bytes | None, in_us: int = 1
    ) -> None:
        """Let a message arrive, whatever the rules say."""
        if to in self._arrive:
            self.queue.at(self.now_us + in_us, self._arrive[to], (to, source, message, body))

    def isolate(self, name: str) -> None:
        """Cut a node from all others; clients reach it."""
        for other in self.sims:
            if other != name:
                self.cut |= {(name, other), (other, name)}

    def heal(self) -> None:
        """End all rules and pauses, and start every node that is down."""
        self.hold = self.drop = lambda *_: False
        self.cut.clear()
        for name, sim in self.sims.items():
            sim.resume()
            if not sim.up:
                self.start(name)

    def release(self) -> None:
        """Deliver every held message, in order."""
        held, self.held = self.held, []
        for each in held:
            self.deliver(*each)

    def run_for(self, ms: int) -> None:
        """Let virtual time pass."""
        self.queue.run(self.now_us + ms * 1000)

    def ask(self, to: str, message: AnyMessage, body: bytes | None = None) -> None:
        """Send a message in the name of the client."""
        self.send(CLIENT, to, message, body)

    def produce(
        self,
        to: str,
        partition: str,
        corr: int,
        payload: bytes,
        acks: int = -1,
        produced: batches.Produced | None = None,
    ) -> None:
        request = ProduceRequest(corr=corr, partition=partition, acks=acks, timeout_ms=3000)
        self.ask(to, request, batches.build(1, payload, produced=produced))

    def answers(self) -> dict[int, ProduceResponse]:
        """Correlation id -> the last answer to it."""
        return {m.corr: m for _, m, _ in self.mail if isinstance(m, ProduceResponse)}

    def create_topic(
        self, partitions: int = 1, rf: int = 3, min_isr: int = 2, *, groups: bool = False
    ) -> None:
        """Ask every voter until the controller has created the topic."""
        for _ in range(100):
            self.mail.clear()
            request = CreateTopic(
                topic="log",
                partitions=partitions,
                replication_factor=rf,
                min_isr=min_isr,
                groups=groups,
            )
            for voter in self.voter_names:
                self.ask(voter, request)
            self.run_for(100)
            if any(isinstance(m, AdminResponse) and not m.error for _, m, _ in self.mail):
                return
        raise AssertionError("no controller made the topic")

    def leader(self, partition: str) -> str | None:
        """Return the leader of the highest epoch."""
        leads = [
            (node.replicas[partition].leader_epoch, name)
            for name, node in self.nodes.items()
            if partition in node.replicas and node.replicas[partition].role == "leader"
        ]
        return max(leads)[1] if leads else None

    def payloads(self, name: str, partition: str) -> list[bytes]:
        """Return the payload of each batch on a disk."""
        log = sorted(self.log(name, partition).items())
        return [batches.view(data).payload for _, (_, data) in log]

    def _seen(self, sim: SimNode, events: list[TraceEvent]) -> None:
        self.trace += events
        self.invariants.turn(sim.name, events)


def _fail(violation: Violation) -> None:
    raise AssertionError(f"{violation.invariant}: {violation.sentence}")


def _ended(end: Exit, output: str) -> None:
    assert end.by != "itself", output
