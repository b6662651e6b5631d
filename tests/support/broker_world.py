"""A deterministic world of brokers for tests of the core: virtual time, disks in memory, one queue.

Links take a drawn latency, and may lose, double and delay messages or be cut. Nodes can be killed,
restarted, paused and stopped; a power cut takes unflushed writes from a disk. Everything follows
from one seed. `broker_invariants` checks every step of every node.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from node.core import batch as batches
from node.core.api import Deliver, Effects, NodeConfig, Shutdown, Tick
from node.core.broker import Broker
from node.core.image import decode_records
from node.core.messages import (
    AdminResponse,
    AnyMessage,
    CreateTopic,
    ProduceRequest,
    ProduceResponse,
)
from node.core.storage import StoredBatch
from node.formats.timings import Timings
from node.formats.trace import METADATA_PARTITION
from tests.support.broker_invariants import Invariants

Rule = Callable[[str, str, AnyMessage], bool]


class MemoryStorage:
    """A disk in memory. Deferred writes can be undone until `flush`, as in a power cut."""

    def __init__(self) -> None:
        self.clean = True
        self.logs: dict[str, dict[int, tuple[bytes, bytes]]] = {}
        self.values: dict[str, bytes] = {}
        self._undo: list[tuple[str, str, Any]] = []

    def partitions(self) -> list[str]:
        return sorted(self.logs)

    def batches(self, partition: str) -> Iterator[StoredBatch]:
        for base, (chain, data) in sorted(self.logs.get(partition, {}).items()):
            _, epoch, _, _, _, count = batches.HEADER.unpack_from(data)
            yield StoredBatch(base, count, epoch, len(data), chain, batches.produced_by(data))

    def append(
        self, partition: str, base_offset: int, chain: bytes, data: bytes, *, durable: bool
    ) -> None:
        self._note("log", partition, durable)
        self.logs.setdefault(partition, {})[base_offset] = (chain, data)

    def truncate(self, partition: str, from_offset: int, *, durable: bool) -> None:
        self._note("log", partition, durable)
        log = self.logs.get(partition, {})
        for base in [b for b in log if b >= from_offset]:
            del log[base]

    def delete_head(self, partition: str, below: int, *, durable: bool) -> None:
        self._note("log", partition, durable)
        log = self.logs.get(partition, {})
        for base in [b for b in log if b < below]:
            del log[base]

    def read(self, partition: str, base_offset: int) -> bytes:
        return self.logs[partition][base_offset][1]

    def delete(self, partition: str, *, durable: bool) -> None:
        self._note("log", partition, durable)
        self.logs.pop(partition, None)

    def put(self, key: str, value: bytes, *, durable: bool) -> None:
        self._note("key", key, durable)
        self.values[key] = value

    def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    def _note(self, kind: str, name: str, durable: bool) -> None:
        if not durable:
            before = dict(self.logs.get(name, {})) if kind == "log" else self.values.get(name)
            self._undo.append((kind, name, before))

    @property
    def unflushed(self) -> int:
        """The number of deferred writes since the last flush."""
        return len(self._undo)

    def flush(self) -> None:
        self._undo.clear()

    def power_cut(self, keep: int) -> None:
        """Lose all deferred writes but the first `keep`."""
        if len(self._undo) > keep:
            self.clean = False
        while len(self._undo) > keep:
            kind, name, before = self._undo.pop()
            if kind == "log":
                self.logs[name] = before
            elif before is None:
                self.values.pop(name, None)
            else:
                self.values[name] = before
        self._undo.clear()


@dataclass
class Lossiness:
    """The probability of each thing that links do to a message. Times in microseconds."""

    lose: float = 0.0
    double: float = 0.0
    late: float = 0.0
    late_us: int = 3_000_000


class World:
    """Brokers n1.., voters v1.., and one test client "c1" whose messages are kept in `mail`.

    `hold` and `drop` are rules (source, receiver, message) -> bool; what is held waits for
    `release`. A paused node gets all its messages at once when it goes on, then the time.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        brokers: int = 3,
        voters: int = 1,
        latency_us: tuple[int, int] = (100, 2000),
        timings: Timings | None = None,
        lossiness: Lossiness | None = None,
        flush_interval_ms: int = 0,
        check_invariants: bool = True,
        bugs: tuple[str, ...] = (),
        protocol: str = "kafka",
        unclean_election: bool = False,
        retention_records: int = 0,
    ) -> None:
        self.rng = random.Random(seed)
        self.now_us = 0
        self.latency_us = latency_us
        self.broker_names = tuple(f"n{i}" for i in range(1, brokers + 1))
        self.voter_names = tuple(f"v{i}" for i in range(1, voters + 1))
        self.timings = timings or Timings()
        self.lossiness = lossiness or Lossiness()
        self.flush_interval_ms = flush_interval_ms
        self.bugs = bugs
        self.protocol = protocol
        self.unclean_election = unclean_election
        self.retention_records = retention_records
        self.disks = {n: MemoryStorage() for n in (*self.broker_names, *self.voter_names)}
        self.nodes: dict[str, Broker] = {}
        self.incarnations = dict.fromkeys(self.disks, 0)
        self.paused: dict[str, list[Any]] = {}
        self.cut: set[tuple[str, str]] = set()
        self.hold: Rule = lambda *_: False
        self.drop: Rule = lambda *_: False
        self.held: list[tuple[str, str, AnyMessage, bytes | None]] = []
        self.trace: list[dict[str, Any]] = []
        self.mail: list[tuple[str, AnyMessage, bytes | None]] = []
        self.sent = 0
        self.invariants = Invariants(self, protocol) if check_invariants else None
        self._queue: list[tuple[int, int, str, str, Any]] = []
        self._number = 0
        self._next_tick: dict[str, int] = {}
        for name in self.disks:
            self.start(name)

    # -- nodes --------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        self.incarnations[name] += 1
        jitter = random.Random(f"{name}/{self.incarnations[name]}/{self.rng.random()}")
        self.nodes[name] = Broker(self.config(name), self.disks[name], jitter, self.now_us)
        self._tick_at(name, self.now_us)

    def config(self, name: str) -> NodeConfig:
        return NodeConfig(
            node=name,
            voters=self.voter_names,
            brokers=self.broker_names,
            incarnation=self.incarnations[name],
            bugs=self.bugs,
            timings=self.timings,
            flush_interval_ms=self.flush_interval_ms,
            protocol=self.protocol,
            retention_records=self.retention_records,
            unclean_election=self.unclean_election,
        )

    def kill(self, name: str) -> None:
        del self.nodes[name]
        self.paused.pop(name, None)
        if self.invariants is not None:
            self.invariants.committed_is_on_some_disk()

    def power_cut(self, name: str) -> None:
        """Kill, and lose a drawn part of what was not flushed."""
        self.kill(name)
        disk = self.disks[name]
        disk.power_cut(self.rng.randint(0, disk.unflushed))
        if self.invariants is not None:
            self.invariants.committed_is_on_some_disk()

    def stop(self, name: str) -> None:
        """Ask a node to stop cleanly; it is gone when it says so."""
        self.resume(name)
        self._steps(name, [Shutdown(), Tick()])

    def pause(self, name: str) -> None:
        self.paused.setdefault(name, [])

    def resume(self, name: str) -> None:
        """Deliver all the messages that came meanwhile, then the time."""
        mail = self.paused.pop(name, None)
        if mail is None or name not in self.nodes:
            return
        last = len(mail) - 1
        turn = [Deliver(*what, more=number < last) for number, what in enumerate(mail)]
        self._steps(name, [*turn, Tick()])

    # -- links ------------------------------------------------------------------------------------

    def isolate(self, name: str) -> None:
        for other in self.disks:
            if other != name:
                self.cut |= {(name, other), (other, name)}

    def heal(self) -> None:
        self.lossiness = Lossiness()
        self.hold = self.drop = lambda *_: False
        for name in list(self.paused):
            self.resume(name)
        self.cut.clear()
        for name in self.disks:
            if name not in self.nodes:
                self.start(name)

    def release(self) -> None:
        """Deliver everything that is held now, in its order."""
        held, self.held = self.held, []
        for source, to, message, body in held:
            self._push(self.now_us + 1, "mail", to, (source, message, body))

    # -- clients ------------------------------------------------------------------------------

    def send(self, to: str, message: AnyMessage, body: bytes | None = None) -> None:
        self._post("c1", to, message, body)

    def run(self, until_us: int) -> None:
        while self._queue and self._queue[0][0] <= until_us:
            self.now_us, _, kind, name, what = heapq.heappop(self._queue)
            if kind == "tick":
                if name in self.nodes and self._next_tick.get(name) == self.now_us:
                    self._step(name, Tick(), tick=True)
            elif name == "c1":
                self.mail.append(what)
            elif name in self.nodes:
                self._step(name, Deliver(*what), tick=False)
        self.now_us = until_us

    def run_for(self, ms: int) -> None:
        self.run(self.now_us + ms * 1000)

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
        self.send(to, request, batches.build(1, payload, produced=produced))

    def answers(self) -> dict[int, ProduceResponse]:
        return {m.corr: m for _, m, _ in self.mail if isinstance(m, ProduceResponse)}

    def create_topic(self, partitions: int = 1, rf: int = 3, min_isr: int = 2) -> None:
        """Retry until the controller has done it."""
        for _ in range(100):
            self.mail.clear()
            request = CreateTopic(
                topic="log", partitions=partitions, replication_factor=rf, min_isr=min_isr
            )
            for voter in self.voter_names:
                self.send(voter, request)
            self.run_for(100)
            if any(isinstance(m, AdminResponse) and not m.error for _, m, _ in self.mail):
                return
        raise AssertionError("no controller made the topic")

    def leader(self, partition: str) -> str | None:
        best = None
        for node in self.nodes.values():
            r = node.replicas.get(partition)
            if r and r.role == "leader" and (best is None or r.leader_epoch > best[0]):
                best = (r.leader_epoch, node.ctx.node)
        return best[1] if best else None

    def payloads(self, name: str, partition: str) -> list[bytes]:
        log = self.disks[name].logs.get(partition, {})
        return [batches.view(data).payload for _, (_, data) in sorted(log.items())]

    # -- steps ----------------------------------------------------------------------------------

    def _step(self, name: str, event: Any, *, tick: bool) -> None:
        if name in self.paused:
            if not tick:
                self.paused[name].append((event.source, event.message, event.body))
            return
        self._steps(name, [event] if tick else [event, Tick()])

    def _steps(self, name: str, events: list[Any]) -> None:
        node = self.nodes[name]
        outgoing, effects, before = [], Effects(), len(self.trace)
        for event in events:
            if effects.stopped:
                break
            effects = node.step(self.now_us, event)
            for one in effects.trace:
                self.trace.append({"t_us": self.now_us, "node": name, **one})
            outgoing += effects.messages
            if effects.flush:
                self.disks[name].flush()
        self.disks[name].clean = True
        if self.invariants is not None and not effects.stopped:
            self.invariants.turn(node, self.trace[before:])
        for m in outgoing:
            self._post(name, m.to, m.message, m.body)
        if effects.stopped:
            self.kill(name)
        else:
            self._tick_at(name, max(effects.deadline_us, self.now_us + 1))

    def _post(self, source: str, to: str, message: AnyMessage, body: bytes | None) -> None:
        self.sent += 1
        if (source, to) in self.cut or self.drop(source, to, message):
            return
        if self.hold(source, to, message):
            self.held.append((source, to, message, body))
            return
        rng, links = self.rng, self.lossiness
        if "c1" in (source, to) or not (links.lose or links.double or links.late):
            copies = 1
        else:
            copies = (rng.random() >= links.lose) + (rng.random() < links.double)
        for _ in range(copies):
            delay = rng.randint(*self.latency_us)
            if links.late and rng.random() < links.late:
                delay += rng.randint(0, links.late_us)
            self._push(self.now_us + delay, "mail", to, (source, message, body))

    def _tick_at(self, name: str, at_us: int) -> None:
        if self._next_tick.get(name) != at_us:
            self._next_tick[name] = at_us
            self._push(at_us, "tick", name, None)

    def _push(self, at: int, kind: str, name: str, what: Any) -> None:
        self._number += 1
        heapq.heappush(self._queue, (at, self._number, kind, name, what))


def metadata_records(world: World, name: str) -> list[Any]:
    """Everything in a node's metadata log."""
    log = world.disks[name].logs.get(METADATA_PARTITION, {})
    return [
        record
        for _, (_, data) in sorted(log.items())
        for record in decode_records(batches.view(data).payload)
    ]
