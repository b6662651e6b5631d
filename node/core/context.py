"""What every module of the core gets during a step: time, configuration, the metadata image, and
where to put messages and trace events."""

from __future__ import annotations

from typing import Protocol as Interface

from node.core.api import Effects, Mark, NodeConfig, Outgoing
from node.core.bugs import Bugs
from node.core.image import Image
from node.core.messages import AnyMessage
from node.core.storage import Storage
from node.formats.trace import event


class Jitter(Interface):
    """The random numbers of a node: `random.Random`, real and simulated."""

    def randint(self, low: int, high: int) -> int:
        """An integer in low..high."""
        ...


class Context:
    """One node's step in progress. Only `Broker.step` sets `now_us` and `effects`.

    `hw_moved`: some high watermark differs from its checkpoint. `disk_emptied`: the disk is not the
    one that this node began with.
    """

    __slots__ = (
        "broker_epoch",
        "bugs",
        "config",
        "controller",
        "disk_emptied",
        "effects",
        "hw_moved",
        "image",
        "jitter",
        "lag_us",
        "node",
        "now_us",
        "retry_us",
        "storage",
    )

    def __init__(
        self, config: NodeConfig, storage: Storage, bugs: Bugs, jitter: Jitter, now_us: int
    ) -> None:
        self.config = config
        self.node = config.node
        self.storage = storage
        self.bugs = bugs
        self.jitter = jitter
        self.now_us = now_us
        self.effects = Effects()
        self.image = Image()
        self.broker_epoch = -1
        self.controller = ""
        self.hw_moved = False
        self.disk_emptied = False
        self.lag_us = config.timings.lag_ms * 1000
        self.retry_us = config.timings.retry_ms * 1000

    def send(
        self,
        to: str,
        message: AnyMessage,
        body: bytes | None = None,
        mark: Mark = Mark.AFTER_COMMIT,
    ) -> None:
        """Queue a message; `mark` says whether it waits for the turn's commit."""
        self.effects.messages.append(Outgoing(to, message, body, mark))

    def trace(self, name: str, partition: str | None = None, **fields: object) -> None:
        """Queue a trace event."""
        self.effects.trace.append(event(name, partition, **fields))
