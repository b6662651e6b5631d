"""A rougher world than `cores_world`: links that lose, double and delay; pauses; power cuts.

`core_watcher` looks at every step of every node.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from node.core import batch as batches
from node.core.api import Deliver, Effects, NodeConfig, Shutdown, Tick
from node.core.broker import Broker
from node.core.image import decode_records
from node.core.messages import AnyMessage
from node.core.storage import StoredBatch
from node.formats.timings import Timings
from node.formats.trace import METADATA_PARTITION
from tests.support.core_watcher import Watcher
from tests.support.cores_world import MemoryStorage, World

Rule = Callable[[str, str, AnyMessage], bool]


class LossyDisk(MemoryStorage):
    """A disk whose deferred writes a power cut takes back, down to a drawn point."""

    def __init__(self) -> None:
        super().__init__()
        self._undo: list[tuple[str, str, Any]] = []

    def append(
        self, partition: str, base_offset: int, chain: bytes, data: bytes, *, durable: bool
    ) -> None:
        self._note("log", partition, durable)
        super().append(partition, base_offset, chain, data, durable=durable)

    def truncate(self, partition: str, from_offset: int, *, durable: bool) -> None:
        self._note("log", partition, durable)
        super().truncate(partition, from_offset, durable=durable)

    def delete(self, partition: str, *, durable: bool) -> None:
        self._note("log", partition, durable)
        super().delete(partition, durable=durable)

    def put(self, key: str, value: bytes, *, durable: bool) -> None:
        self._note("key", key, durable)
        super().put(key, value, durable=durable)

    def _note(self, kind: str, name: str, durable: bool) -> None:
        if not durable:
            before = dict(self.logs.get(name, {})) if kind == "log" else self.values.get(name)
            self._undo.append((kind, name, before))

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

    def batches(self, partition: str) -> Iterator[StoredBatch]:
        return super().batches(partition)


@dataclass
class Weather:
    """What links do to a message, each drawn alone. Times in microseconds."""

    lose: float = 0.0
    double: float = 0.0
    late: float = 0.0
    late_us: int = 3_000_000


class ChaosWorld(World):
    """`World` with weather, rules on single messages, pauses and power cuts.

    `hold` and `drop` are rules (source, receiver, message) -> bool; what is held waits for
    `release`. A paused node finds all its mail at once when it goes on, then the time.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        brokers: int = 3,
        voters: int = 1,
        latency_us: tuple[int, int] = (100, 2000),
        timings: Timings | None = None,
        weather: Weather | None = None,
        flush_interval_ms: int = 0,
        watch: bool = True,
        bugs: tuple[str, ...] = (),
        protocol: str = "kafka",
        unclean_election: bool = False,
    ) -> None:
        self.unclean_election = unclean_election
        self.timings = timings or Timings()
        self.weather = weather or Weather()
        self.flush_interval_ms = flush_interval_ms
        self.paused: dict[str, list[Any]] = {}
        self.hold: Rule = lambda *_: False
        self.drop: Rule = lambda *_: False
        self.held: list[tuple[str, str, AnyMessage, bytes | None]] = []
        self.watcher = Watcher(self, protocol) if watch else None
        self.lossy: dict[str, LossyDisk] = {}
        super().__init__(
            seed=seed,
            brokers=brokers,
            voters=voters,
            bugs=bugs,
            latency_us=latency_us,
            protocol=protocol,
        )

    def start(self, name: str) -> None:
        disk = self.disks[name]
        if not isinstance(disk, LossyDisk):
            disk = self.disks[name] = self.lossy[name] = LossyDisk()
        self.incarnations[name] += 1
        jitter = random.Random(f"{name}/{self.incarnations[name]}/{self.rng.random()}")
        self.nodes[name] = Broker(self.config(name), disk, jitter, self.now_us)
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
            unclean_election=self.unclean_election,
        )

    def kill(self, name: str) -> None:
        super().kill(name)
        self.paused.pop(name, None)
        if self.watcher is not None:
            self.watcher.somebody_has_it()

    def power_cut(self, name: str) -> None:
        """Kill, and lose a drawn part of what was not flushed."""
        self.kill(name)
        disk = self.lossy[name]
        disk.power_cut(self.rng.randint(0, len(disk._undo)))
        if self.watcher is not None:
            self.watcher.somebody_has_it()

    def stop(self, name: str) -> None:
        """Ask a node to stop cleanly; it is gone when it says so."""
        self.resume(name)
        self._steps(name, [Shutdown(), Tick()])

    def pause(self, name: str) -> None:
        self.paused.setdefault(name, [])

    def resume(self, name: str) -> None:
        """All the mail that came meanwhile, then the time."""
        mail = self.paused.pop(name, None)
        if mail is None or name not in self.nodes:
            return
        self._steps(name, [*(Deliver(*what) for what in mail), Tick()])

    def heal(self) -> None:
        self.weather = Weather()
        self.hold = self.drop = lambda *_: False
        for name in list(self.paused):
            self.resume(name)
        super().heal()

    def release(self) -> None:
        """Let everything held go now, in its order."""
        held, self.held = self.held, []
        for source, to, message, body in held:
            self._push(self.now_us + 1, "mail", to, (source, message, body))

    def _step(self, name: str, event: Any, *, tick: bool) -> None:
        if name in self.paused:
            if not tick:
                self.paused[name].append((event.source, event.message, event.body))
            return
        self._steps(name, [event] if tick else [event, Tick()])

    def _steps(self, name: str, events: list[Any]) -> None:
        node = self.nodes[name]
        outgoing, effects, told = [], Effects(), len(self.trace)
        for event in events:
            if effects.stopped:
                break
            effects = node.step(self.now_us, event)
            for one in effects.trace:
                self.trace.append({"t_us": self.now_us, "node": name, **one})
            outgoing += effects.messages
            if effects.flush:
                self.lossy[name].flush()
        self.lossy[name].clean = True
        if self.watcher is not None and not effects.stopped:
            self.watcher.turn(node, self.trace[told:])
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
        rng, weather = self.rng, self.weather
        if "c1" in (source, to) or not (weather.lose or weather.double or weather.late):
            copies = 1
        else:
            copies = (rng.random() >= weather.lose) + (rng.random() < weather.double)
        for _ in range(copies):
            delay = rng.randint(*self.latency_us)
            if weather.late and rng.random() < weather.late:
                delay += rng.randint(0, weather.late_us)
            self._push(self.now_us + delay, "mail", to, (source, message, body))


def metadata_records(world: World, name: str) -> list[Any]:
    """Everything in a node's metadata log."""
    log = world.disks[name].logs.get(METADATA_PARTITION, {})
    return [
        record
        for _, (_, data) in sorted(log.items())
        for record in decode_records(batches.view(data).payload)
    ]
