"""The context of a step for every module of the core: time, configuration, the metadata image, and
the outgoing messages and trace events."""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Protocol as Interface

from node.core.api import Effects, Mark, NodeConfig, Outgoing
from node.core.bugs import Bugs
from node.core.image import Image
from node.core.storage import Storage
from node.formats.errors import DamagedStore
from node.formats.messages import AnyMessage
from node.formats.trace import DAMAGED, FIELDS, TraceEvent

if TYPE_CHECKING:
    from node.core.replica import Replica


class Jitter(Interface):
    """A source of a node's random numbers: `random.Random` in a real process, a seeded one in a
    simulated run."""

    def randint(self, low: int, high: int) -> int: ...


class Context:
    """The context of one node's steps; only `Broker.step` sets `now_us` and `effects`.

    `hw_moved`: some high watermark differs from its checkpoint. `disk_emptied`: the disk lost
    everything since this node's first process. `serving`: this process is registered, and has taken
    the roles that it had then. `more`: other messages of this turn follow
    (`api.Deliver`), and `appended` has the replicas that got records in this turn and have not
    answered the waiting requests."""

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
        self.serving = False
        self.lag_us = config.timings.lag_ms * 1000
        self.retry_us = config.timings.retry_ms * 1000

    def stored(self, key: str, partition: str | None = None) -> bytes | None:
        """Return a small value of the disk, None if it was never written. That it is damaged is
        traced; then it is b""."""
        try:
            return self.storage.get(key)
        except DamagedStore as error:
            self.trace(DAMAGED, partition, offset=-1, key=error.key, what=error.what)
            return b""

    def send(
        self,
        to: str,
        message: AnyMessage,
        body: bytes | None = None,
        mark: Mark = Mark.AFTER_COMMIT,
    ) -> None:
        """Queue a message to node or client `to`; `mark` says whether it waits for the turn's
        commit."""
        self.effects.messages.append(Outgoing(to, message, body, mark))

    def trace(self, name: str, partition: str | None = None, **fields: object) -> None:
        # As `event` does it, which would copy the fields once more.
        assert tuple(fields) == FIELDS[name], (name, tuple(fields), FIELDS[name])
        made: TraceEvent = {"event": name}
        if partition is not None:
            made["partition"] = partition
        made.update(fields)
        self.effects.trace.append(made)
