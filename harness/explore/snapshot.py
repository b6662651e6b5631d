"""The state of a node as bytes, the node that is made of them again, and the value that matters.

    taken = snapshot(broker)
    again = restore(taken, storage, jitter)

A snapshot is the pickle of a node between two steps, without disk and random numbers: those belong
to the world. `restore` returns a node that behaves as the original, on a disk in the same state and
with random numbers in the same state. `canonical` is the part of a node that matters: two nodes
with equal canonical values answer every event alike, whatever time it is. It has every field of
every part, found by looking at the objects: a new field counts unless this module names it."""

from __future__ import annotations

import io
import pickle
from collections import deque
from collections.abc import Hashable
from enum import Enum
from typing import Any, Final

from node.core.api import Effects, NodeConfig
from node.core.broker import Broker
from node.core.bugs import Bugs
from node.core.context import Jitter
from node.core.protocol import Protocol
from node.core.replica import NEVER
from node.core.storage import Storage

_LEFT_OUT: Final[dict[str, tuple[str, ...]]] = {
    # What the configuration says, what the last step left behind, and what belongs to the world.
    "Broker": ("protocol", "_metadata_seen", "_due", "_armed", "_touched"),
    "Context": (
        *("config", "bugs", "now_us", "hw_moved", "lag_us", "retry_us"),
        *("storage", "jitter", "effects"),
    ),
    "Controller": ("_protocol", "_bugs", "_rules"),
    # The bytes are on the disk. An early alarm finds nothing to do.
    "Log": (
        *("_storage", "_tail", "_tail_bytes", "_sizes", "_durable", "_holes", "_checked"),
        *("start", "last_epoch"),
    ),
    "Replica": ("protocol", "bugs", "wake_us"),
}
"""Fields by class that follow from others or from the configuration: no canonical value has them.
"""

_UNORDERED: Final = frozenset(
    {"peers", "pushes", "_heard_us", "_must_apply", "applied", "_leaves_at"}
)
"""Tables that are read by key only, so that the order of their entries does not matter."""

_SOON_US: Final = NEVER >> 1
"""Beyond this, in either direction, a time stands for "never" or "long ago"."""

_PLAIN: Final = frozenset({bool, bytes, float, int, str, tuple, type(None)})
_CONSTANT: Final = (NodeConfig, Protocol, Bugs)
_constants: Final[dict[int, object]] = {}


class _Pickler(pickle.Pickler):
    """Writes the parts of a node; of `outside` nothing, of what never changes a reference."""

    def __init__(self, file: io.BytesIO, outside: tuple[object, ...]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._outside = outside

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, _CONSTANT):
            _constants.setdefault(id(value), value)
            return _constant, (id(value),)
        if any(value is one for one in self._outside):
            return _constant, (0,)
        return NotImplemented


def _constant(number: int) -> object:
    return _constants.get(number)


def snapshot(broker: Broker) -> bytes:
    """Return the present state of a node that has made its first step."""
    file, ctx = io.BytesIO(), broker.ctx
    _Pickler(file, (ctx.storage, ctx.jitter, ctx.effects)).dump(broker)
    return file.getvalue()


def restore(taken: bytes, storage: Storage, jitter: Jitter) -> Broker:
    """Return a new node in the state of the snapshot, on `storage`."""
    broker: Broker = pickle.loads(taken)
    broker.ctx.storage, broker.ctx.jitter = storage, jitter
    broker.ctx.effects = Effects()
    for r in (broker.quorum.r, *broker.replicas.values()):
        r.log.use(storage)
    broker._touched = {}
    broker._due, broker._armed = [], {}
    for name in broker.replicas:
        broker.arm(name)
    return broker


def canonical(broker: Broker, *, timed: bool = True) -> Hashable:
    """Return the part of a node that decides its further actions, as tuples, numbers, text and
    frozen values. Times count from the last step; without `timed` they only say "over" or "to
    come", which is enough if the clock stands still and `timers.expire` ends waits."""
    value: Hashable = _Canonical(broker.ctx.now_us, timed).of(broker, "")
    return value


class _Canonical:
    """The canonical values of the parts of one node. A part that came before is its number."""

    def __init__(self, now_us: int, timed: bool) -> None:
        self._now_us = now_us
        self._timed = timed
        self._seen: dict[int, int] = {}

    def of(self, value: Any, name: str) -> Any:
        """Return the canonical value of what a field of this name has."""
        kind = type(value)
        if kind is int and name.endswith("_us"):
            if not -_SOON_US < value < _SOON_US:
                return value
            return value - self._now_us if self._timed else value > self._now_us
        if kind in _PLAIN:
            return value
        if kind is dict:
            pairs = [(key, self.of(each, name)) for key, each in value.items()]
            return tuple(sorted(pairs) if name in _UNORDERED else pairs)
        if kind is list or kind is deque:
            return tuple([self.of(each, name) for each in value])
        if (fields := fields_of(value)) is None:
            return value
        if (number := self._seen.get(id(value))) is not None:
            return (number,)
        self._seen[id(value)] = len(self._seen)
        found = [kind.__name__]
        for each in fields:
            field = getattr(value, each)
            # Most fields are plain: asking here saves most of the calls.
            plain = type(field) in _PLAIN and each not in _times
            found.append(field if plain else self.of(field, each))
        return tuple(found)


_fields: Final[dict[type, tuple[str, ...] | None]] = {}
_times: Final[set[str]] = set()
"""The fields so far that are times."""


def fields_of(value: object) -> tuple[str, ...] | None:
    """Return the fields of a part of a node that matter; None for a value that never changes."""
    kind = type(value)
    if kind not in _fields:
        _fields[kind] = None if _never_changes(kind) else tuple(_all_fields(value))
        _times.update(name for name in _fields[kind] or () if name.endswith("_us"))
    return _fields[kind]


def _never_changes(kind: type) -> bool:
    config = getattr(kind, "__struct_config__", None)
    parameters = getattr(kind, "__dataclass_params__", None)
    frozen = config.frozen if config is not None else getattr(parameters, "frozen", False)
    return bool(frozen) or issubclass(kind, Enum | tuple)


def _all_fields(value: object) -> list[str]:
    kind = type(value)
    assert kind.__module__.startswith("node.core."), f"{kind} is no part of a node"
    found = getattr(kind, "__dataclass_fields__", None) or getattr(kind, "__mypyc_attrs__", None)
    names = found or getattr(kind, "__slots__", None) or vars(value)
    left_out = ("__dict__", *_LEFT_OUT.get(kind.__name__, ()))
    return sorted(name for name in names if name not in left_out)
