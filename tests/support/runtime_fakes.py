"""A small fake core for tests of the runtime, importable by spawned children."""

from __future__ import annotations

import resource
import signal
import sys
from random import Random

from node.core.api import Deliver, Effects, Event, Mark, NodeConfig, Outgoing, Shutdown
from node.core.storage import Storage
from node.formats.errors import InvariantBroken
from node.formats.messages import Error, MetadataRequest, MetadataResponse, ProduceRequest
from node.formats.messages import ProduceResponse as Produced
from node.formats.trace import APPEND, HW, STARTED, STOPPED, event

CHAIN = bytes(8)


class FakeCore:
    """Keeps what is produced and answers each request at once.

    The partition of a produce request chooses what happens: `deferred-..` is kept not durably,
    `boom` breaks an invariant, `crash` raises another error, anything else is kept durably.
    A metadata request is answered at once, before the commit, with the modules loaded here."""

    def __init__(self, config: NodeConfig, storage: Storage, rng: Random, now_us: int) -> None:
        self.config = config
        self.storage = storage
        self.started = False
        self.ends = {
            name: max((b.base_offset + b.count for b in storage.batches(name)), default=0)
            for name in storage.partitions()
        }

    def step(self, now_us: int, happened: Event) -> Effects:
        effects = Effects()
        if not self.started:
            self.started = True
            effects.trace.append(event(STARTED, protocol="fake", bugs=[], clean=self.storage.clean))
        if isinstance(happened, Shutdown):
            self.stop(effects)
        elif isinstance(happened, Deliver):
            self.deliver(happened, effects)
        return effects

    def stop(self, effects: Effects) -> None:
        """Asked to stop: done at once."""
        effects.trace.append(event(STOPPED))
        effects.stopped = True

    def deliver(self, happened: Deliver, effects: Effects) -> None:
        message = happened.message
        if isinstance(message, ProduceRequest):
            self.produce(happened.source, message, happened.body or b"", effects)
        elif isinstance(message, MetadataRequest):
            loaded = dict.fromkeys(sys.modules, ("", 0))
            answer = MetadataResponse(corr=message.corr, leaders=loaded)
            effects.messages.append(Outgoing(happened.source, answer, mark=Mark.IF_COVERED))

    def produce(self, source: str, message: ProduceRequest, body: bytes, effects: Effects) -> None:
        """Keep a batch, as if of one record."""
        name = message.partition
        if name == "boom":
            effects_of_before = event(
                APPEND, name, base_offset=0, leo=0, leader_epoch=0, hash="", role="leader"
            )
            effects.trace.append(effects_of_before)
            raise InvariantBroken("the fake was told to break")
        if name == "crash":
            raise ZeroDivisionError("told to crash")
        base = self.ends.get(name, 0)
        self.storage.append(name, base, CHAIN, body, durable=not name.startswith("deferred"))
        self.ends[name] = base + 1
        effects.trace.append(
            event(
                APPEND, name, base_offset=base, leo=base + 1, leader_epoch=0, hash="", role="leader"
            )
        )
        if message.acks:
            answer = Produced(
                corr=message.corr, partition=name, error=Error.NONE, appended=True, base_offset=base
            )
            effects.messages.append(Outgoing(source, answer))


class TellsTime(FakeCore):
    """Traces as a high watermark what time it was given with a request."""

    def deliver(self, happened: Deliver, effects: Effects) -> None:
        super().deliver(happened, effects)
        told = event(
            HW, "log-0", hw=self.now_us, leo=0, leader_epoch=0, role="leader", batch_end=0, hash=""
        )
        effects.trace.append(told)

    def step(self, now_us: int, happened: Event) -> Effects:
        self.now_us = now_us
        return super().step(now_us, happened)


class NeverStops(FakeCore):
    """Takes the request to stop and goes on, always."""

    def stop(self, effects: Effects) -> None:
        """Not now."""


class Hangs(FakeCore):
    """Hangs for good when asked to stop."""

    def stop(self, effects: Effects) -> None:
        """Hold the process, as a bug would."""
        while True:
            signal.pause()


class SmallDisk(FakeCore):
    """Lives where no file may grow above one mebibyte."""

    def __init__(self, config: NodeConfig, storage: Storage, rng: Random, now_us: int) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        super().__init__(config, storage, rng, now_us)
