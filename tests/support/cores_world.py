"""A small deterministic world for tests of the core: virtual time, memory disks, one message queue.

Messages take a drawn latency; links can be cut; nodes can be killed and restarted. A killed node
keeps what its turns committed. Everything follows from one seed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from typing import Any

from node.core import batch as batches
from node.core.api import Deliver, NodeConfig, Tick
from node.core.broker import Broker
from node.core.messages import (
    AdminResponse,
    AnyMessage,
    CreateTopic,
    ProduceRequest,
    ProduceResponse,
)
from node.core.storage import StoredBatch
from node.formats.timings import Timings


class MemoryStorage:
    """A disk in memory; every write is durable at once."""

    def __init__(self) -> None:
        self.clean = True
        self.logs: dict[str, dict[int, tuple[bytes, bytes]]] = {}
        self.values: dict[str, bytes] = {}

    def partitions(self) -> list[str]:
        return sorted(self.logs)

    def batches(self, partition: str) -> Iterator[StoredBatch]:
        for base, (chain, data) in sorted(self.logs.get(partition, {}).items()):
            one = batches.view(data)
            yield StoredBatch(base, one.count, one.epoch, len(data), chain)

    def append(
        self, partition: str, base_offset: int, chain: bytes, data: bytes, *, durable: bool
    ) -> None:
        self.logs.setdefault(partition, {})[base_offset] = (chain, data)

    def truncate(self, partition: str, from_offset: int, *, durable: bool) -> None:
        log = self.logs.get(partition, {})
        for base in [b for b in log if b >= from_offset]:
            del log[base]

    def read(self, partition: str, base_offset: int) -> bytes:
        return self.logs[partition][base_offset][1]

    def delete(self, partition: str, *, durable: bool) -> None:
        self.logs.pop(partition, None)

    def put(self, key: str, value: bytes, *, durable: bool) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes | None:
        return self.values.get(key)


class World:
    """Brokers n1.., voters v1.., and one test client "c1" whose mail is kept in `mail`."""

    def __init__(
        self,
        seed: int = 0,
        brokers: int = 3,
        voters: int = 1,
        bugs: tuple[str, ...] = (),
        latency_us: tuple[int, int] = (100, 2000),
        protocol: str = "kafka",
    ) -> None:
        self.rng = random.Random(seed)
        self.now_us = 0
        self.latency_us = latency_us
        self.broker_names = tuple(f"n{i}" for i in range(1, brokers + 1))
        self.voter_names = tuple(f"v{i}" for i in range(1, voters + 1))
        self.bugs = bugs
        self.protocol = protocol
        self.disks = {n: MemoryStorage() for n in (*self.broker_names, *self.voter_names)}
        self.nodes: dict[str, Broker] = {}
        self.incarnations = dict.fromkeys(self.disks, 0)
        self.cut: set[tuple[str, str]] = set()
        self.trace: list[dict[str, Any]] = []
        self.mail: list[tuple[str, AnyMessage, bytes | None]] = []
        self.sent = 0
        self._queue: list[tuple[int, int, str, str, Any]] = []
        self._number = 0
        self._next_tick: dict[str, int] = {}
        for name in self.disks:
            self.start(name)

    def start(self, name: str) -> None:
        self.incarnations[name] += 1
        config = NodeConfig(
            node=name,
            voters=self.voter_names,
            brokers=self.broker_names,
            incarnation=self.incarnations[name],
            bugs=self.bugs,
            protocol=self.protocol,
            timings=Timings(),
        )
        jitter = random.Random(f"{name}/{self.incarnations[name]}/{self.rng.random()}")
        self.nodes[name] = Broker(config, self.disks[name], jitter, self.now_us)
        self._tick_at(name, self.now_us)

    def kill(self, name: str) -> None:
        del self.nodes[name]

    def isolate(self, name: str) -> None:
        for other in self.disks:
            if other != name:
                self.cut |= {(name, other), (other, name)}

    def heal(self) -> None:
        self.cut.clear()
        for name in self.disks:
            if name not in self.nodes:
                self.start(name)

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

    def produce(self, to: str, partition: str, corr: int, payload: bytes, acks: int = -1) -> None:
        request = ProduceRequest(corr=corr, partition=partition, acks=acks, timeout_ms=3000)
        self.send(to, request, batches.build(1, payload))

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

    def _step(self, name: str, event: Any, *, tick: bool) -> None:
        node = self.nodes[name]
        steps = [node.step(self.now_us, event)]
        if not tick:
            steps.append(node.step(self.now_us, Tick()))
        for effects in steps:
            for one in effects.trace:
                self.trace.append({"t_us": self.now_us, "node": name, **one})
            for m in effects.messages:
                self._post(name, m.to, m.message, m.body)
        self._tick_at(name, max(steps[-1].deadline_us, self.now_us + 1))

    def _post(self, source: str, to: str, message: AnyMessage, body: bytes | None) -> None:
        self.sent += 1
        if (source, to) in self.cut:
            return
        at = self.now_us + self.rng.randint(*self.latency_us)
        self._push(at, "mail", to, (source, message, body))

    def _tick_at(self, name: str, at_us: int) -> None:
        if self._next_tick.get(name) != at_us:
            self._next_tick[name] = at_us
            self._push(at_us, "tick", name, None)

    def _push(self, at: int, kind: str, name: str, what: Any) -> None:
        self._number += 1
        heapq.heappush(self._queue, (at, self._number, kind, name, what))
