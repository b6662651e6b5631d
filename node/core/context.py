"""The context of a step for every module of the core: time, configuration, the metadata image, and
the outgoing messages and trace events."""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Protocol as Interface

from node.core.api import Effects, Mark, NodeConfig, Outgoing
from node.core.bugs import Bugs
from node.core.image import Image
from node.core.messages import AnyMessage
from node.core.storage import Storage
from node.formats.trace import FIELDS, TraceEvent

if TYPE_CHECKING:
    from node.core.replica import Replica


class Jitter(Interface):
    """The random numbers of a node: `random.Random`, real and simulated."""

    def randint(self, low: int, high: int) -> int: ...


class Context:
    """One node's step in progress. Only `Broker.step` sets `now_us` and `effects`.

    `hw_moved`: some high watermark differs from its checkpoint. `disk_emptied`: the disk is not the
    one that this node began with. `more`: other messages of this turn follow (`api.Deliver`), and
    `appended` has the replicas that got records in it and have not served those who wait for them.
    """

    __slots__ = (
        "appended",
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
        "more",
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
        self.more = False
        self.appended: dict[str, Replica] = {}
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
        # As `event` does it, which would copy the fields once more.
        assert tuple(fields) == FIELDS[name], (name, tuple(fields), FIELDS[name])
        made: TraceEvent = {"event": name}
        if partition is not None:
            made["partition"] = partition
        made.update(fields)
        self.effects.trace.append(made)
