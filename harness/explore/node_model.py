"""One node while the clock stands still: the unchanged core and a disk, as a value between steps.

The time is `NOW_US` at every step, so a deadline is never reached; the exploration ends a wait
itself (`node.core.timers`). A step is a turn of `harness.sim.node`: the event, a tick if one is
due, the commit, and then the messages."""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

import msgspec

from harness.explore.forgetting import forget
from harness.sim.disk import DiskState, SimDisk
from harness.sim.node import joined
from node.core.api import Deliver, Event, NodeConfig, Outgoing, Tick
from node.core.before_commit import split
from node.core.broker import Broker
from node.core.snapshot import Snapshot, canonical, restore, snapshot
from node.core.timers import expire
from node.formats.trace import TraceEvent

NOW_US: Final = 1 << 40
_TICK: Final = Tick()
_encoder: Final = msgspec.msgpack.Encoder()


class NodeState(NamedTuple):
    """A node: how many processes it had, its disk, and its process's state, None if down."""

    incarnation: int
    disk: DiskState
    core: Snapshot | None


class Turn(NamedTuple):
    """A node after a step, its messages and trace events; `error`: why its process ended, or ""."""

    node: ModelNode
    messages: tuple[Outgoing, ...] = ()
    trace: tuple[TraceEvent, ...] = ()
    error: str = ""

    @property
    def early(self) -> tuple[Outgoing, ...]:
        """The messages that leave before the commit."""
        return tuple(split(self.messages, self.trace)[0])


class _LowestDraw:
    """Jitter that always draws the lowest number: lengths of waits do not matter."""

    def randint(self, low: int, high: int) -> int:
        """Return the lowest number."""
        return low


class ModelNode:
    """A node that can be stepped, and turned into a value and back."""

    def __init__(self, config: NodeConfig, state: NodeState | None = None) -> None:
        self.config = config
        self.incarnation = 0 if state is None else state.incarnation
        self.disk = SimDisk() if state is None else SimDisk.of(state.disk)
        self.core: Broker | None = None
        if state is not None and state.core is not None:
            self.core = restore(state.core, self.disk, _LowestDraw())

    def state(self) -> NodeState:
        core = None if self.core is None else snapshot(self.core)
        return NodeState(self.incarnation, self.disk.state(), core)

    def forget(self) -> None:
        """Set the fields that do not affect what the node does to fixed values."""
        if self.core is not None:
            forget(self.core)

    def key(self, state: NodeState) -> bytes:
        """Return a hash of 16 bytes of all fields that affect what a node does."""
        core = None if state.core is None else canonical(state.core, timed=False)
        whole = (self.config.node, self.incarnation, self.disk.contents(), core)
        return hashlib.blake2b(_encoder.encode(whole), digest_size=16).digest()

    # -- steps

    def start(self) -> Turn:
        """Start a new process of the node."""
        self.incarnation += 1
        self.disk.open()
        config = msgspec.structs.replace(self.config, incarnation=self.incarnation)
        self.core = Broker(config, self.disk, _LowestDraw(), NOW_US)
        return self._turn([_TICK])

    def deliver(self, source: str, message: Any, body: bytes | None) -> Turn:
        """Deliver a message; a node that is down ignores it."""
        return Turn(self) if self.core is None else self._turn([Deliver(source, message, body)])

    def expire(self, names: tuple[str, ...]) -> Turn:
        """End the waits with these names, as if their time were over."""
        assert self.core is not None
        for name in names:
            expire(self.core, name)
        return self._turn([_TICK])

    def kill(self) -> Turn:
        """Kill the process (SIGKILL); the disk keeps unsynced data."""
        self.core = None
        return Turn(self)

    def power_cut(self) -> Turn:
        """Kill the process and lose all unsynced data."""
        self.core = None
        self.disk.power_cut(0.0)
        return Turn(self)

    def _turn(self, events: list[Event]) -> Turn:
        assert self.core is not None
        try:
            whole = self.core.step(NOW_US, events[0])
            if whole.deadline_us <= NOW_US and events[0] is not _TICK:
                whole = joined(whole, self.core.step(NOW_US, _TICK))
        except Exception as error:  # The process ends: that is for the invariants to judge.
            self.core = None
            return Turn(self, error=f"{type(error).__name__}: {error}")
        if whole.flush:
            self.disk.flush()
        else:
            self.disk.commit()
        return Turn(self, tuple(whole.messages), tuple(whole.trace))
