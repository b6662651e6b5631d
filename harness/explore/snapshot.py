"""The state of a node as a value: taken, compared, and made a node again.

    taken = snapshot(broker)
    again = restore(taken, storage, jitter)

A snapshot holds every field of every part of a node, found by looking at the objects: a new field
is state unless it is named in this module as something else. It is taken between steps. `restore`
returns a node that behaves as the original, on a disk in the same state and with random numbers in
the same state; disk and random numbers belong to the world. `canonical` is the part of a snapshot
that matters: two nodes with equal canonical values answer every event alike, whatever time it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any, Final, NamedTuple

from node.core.api import Effects
from node.core.broker import Broker
from node.core.context import Jitter
from node.core.replica import NEVER
from node.core.storage import Storage

_WIRED: Final[dict[str, tuple[str, ...]]] = {
    "Broker": ("_due", "_armed", "_touched"),
    "Context": ("storage", "jitter", "effects"),
    "Log": ("_storage",),
}
"""Fields that no snapshot has, by class: `restore` makes new ones."""

_DERIVED: Final[dict[str, tuple[str, ...]]] = {
    # What the configuration says, and what the last step left behind.
    "Broker": ("protocol", "_metadata_seen"),
    "Context": ("config", "bugs", "now_us", "hw_moved", "lag_us", "retry_us"),
    "Controller": ("_protocol", "_bugs", "_rules"),
    # The bytes are on the disk. An early alarm finds nothing to do.
    "Log": (
        "_tail",
        "_tail_bytes",
        "_sizes",
        "_durable",
        "_holes",
        "_checked",
        "start",
        "last_epoch",
    ),
    "Replica": ("protocol", "bugs", "wake_us"),
}
"""Fields that follow from others, or from the configuration: canonical values leave them out."""

_UNORDERED: Final = frozenset(
    {"peers", "pushes", "_heard_us", "_must_apply", "applied", "_leaves_at"}
)
"""Tables that are read by key only, so that the order of their entries does not matter."""

_SOON_US: Final = NEVER >> 1
"""Beyond this, in either direction, a time stands for "never" or "long ago"."""

_PLAIN: Final = frozenset({bool, bytes, float, int, str, tuple, type(None)})


class _Part(tuple[Any, ...]):
    """An object: its class, then its fields."""


class _List(tuple[Any, ...]):
    """A list."""


class _Deque(tuple[Any, ...]):
    """A deque."""


class _Pairs(tuple[Any, ...]):
    """A dict, as pairs in their order."""


class _Known(NamedTuple):
    """An object that came before: its number in the order of the snapshot."""

    number: int


class Snapshot(NamedTuple):
    """The state of a node between two steps. Equal states give equal snapshots, but so may states
    that differ only in what no later step reads: compare `canonical` values. `now_us` is the time
    of the last step."""

    now_us: int
    parts: tuple[Any, ...]


def snapshot(broker: Broker) -> Snapshot:
    """Return the present state of a node that has made its first step."""
    seen: dict[int, int] = {}
    return Snapshot(broker.ctx.now_us, _frozen(broker, seen))


def restore(taken: Snapshot, storage: Storage, jitter: Jitter) -> Broker:
    """Return a new node in the state of the snapshot, on `storage`. The snapshot itself stays
    unchanged."""
    made: list[Any] = []
    broker = _thawed(taken.parts, made)
    assert isinstance(broker, Broker)
    broker.ctx.storage, broker.ctx.jitter = storage, jitter
    broker.ctx.effects = Effects()
    for r in (broker.quorum.r, *broker.replicas.values()):
        r.log.use(storage)
    broker._touched = {}
    broker._due, broker._armed = [], {}
    for name in broker.replicas:
        broker.arm(name)
    return broker


def canonical(taken: Snapshot, *, timed: bool = True) -> Hashable:
    """Return the part of a snapshot that decides the node's further actions, as tuples, numbers,
    text and frozen values. Times count from the last step; without `timed` they only say "over" or
    "to come", which is enough if the clock stands still and `timers.expire` ends waits."""
    value: Hashable = _canonical(taken.parts, "", taken.now_us, timed)
    return value


# -- objects to values ----------------------------------------------------------------------------


class _Layout(NamedTuple):
    """The fields of a class in a snapshot (`names`) and in a canonical value (`kept`: place in the
    snapshot, name, whether it is a time)."""

    kind: type
    names: tuple[str, ...]
    kept: tuple[tuple[int, str, bool], ...]


_layouts: Final[dict[type, _Layout | None]] = {}


def _layout(value: object) -> _Layout | None:
    """Return the fields of a part of a node; None for a value that never changes."""
    kind = type(value)
    if kind not in _layouts:
        _layouts[kind] = None if _never_changes(kind) else _new_layout(value)
    return _layouts[kind]


def _never_changes(kind: type) -> bool:
    config = getattr(kind, "__struct_config__", None)
    parameters = getattr(kind, "__dataclass_params__", None)
    frozen = config.frozen if config is not None else getattr(parameters, "frozen", False)
    return bool(frozen) or issubclass(kind, Enum | tuple)


def _new_layout(value: object) -> _Layout:
    kind = type(value)
    assert kind.__module__.startswith("node.core."), f"{kind} is no part of a node"
    found = getattr(kind, "__dataclass_fields__", None) or getattr(kind, "__mypyc_attrs__", None)
    names = found or getattr(kind, "__slots__", None) or vars(value)
    wired, derived = _WIRED.get(kind.__name__, ()), _DERIVED.get(kind.__name__, ())
    taken = tuple(sorted(name for name in names if name not in wired and name != "__dict__"))
    kept = tuple(
        (at, name, name.endswith("_us"))
        for at, name in enumerate(taken, start=1)
        if name not in derived
    )
    return _Layout(kind, taken, kept)


def _frozen(value: Any, seen: dict[int, int]) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        return _Pairs([(key, _frozen(each, seen)) for key, each in value.items()])
    if kind is list or kind is deque:
        make = _List if kind is list else _Deque
        return make([e if type(e) in _PLAIN else _frozen(e, seen) for e in value])
    layout = _layout(value)
    if layout is None:
        return value
    if (number := seen.get(id(value))) is not None:
        return _Known(number)
    seen[id(value)] = len(seen)
    fields = [getattr(value, name) for name in layout.names]
    # Most fields are plain: asking here saves most of the calls, and half of the time.
    return _Part((kind, *[f if type(f) in _PLAIN else _frozen(f, seen) for f in fields]))


# -- values to objects ----------------------------------------------------------------------------


def _thawed(value: Any, made: list[Any]) -> Any:
    make = _MAKERS.get(type(value))
    return value if make is None else make(value, made)


def _make_part(value: _Part, made: list[Any]) -> Any:
    layout = _layouts[value[0]]
    assert layout is not None
    part: Any = object.__new__(layout.kind)
    made.append(part)
    for name, field in zip(layout.names, value[1:], strict=True):
        setattr(part, name, field if type(field) in _PLAIN else _thawed(field, made))
    return part


_MAKERS: Final[dict[type, Callable[[Any, list[Any]], Any]]] = {
    _Part: _make_part,
    _Known: lambda value, made: made[value.number],
    _List: lambda value, made: [e if type(e) in _PLAIN else _thawed(e, made) for e in value],
    _Deque: lambda value, made: deque([_thawed(each, made) for each in value]),
    _Pairs: lambda value, made: {key: _thawed(each, made) for key, each in value},
}


# -- what matters ---------------------------------------------------------------------------------


def _canonical(value: Any, name: str, now_us: int, timed: bool) -> Any:
    kind = type(value)
    if kind is int:
        if not name.endswith("_us") or not -_SOON_US < value < _SOON_US:
            return value
        return value - now_us if timed else value > now_us
    if kind is _Part:
        layout = _layouts[value[0]]
        assert layout is not None
        made = [layout.kind.__name__]
        for at, field, is_time in layout.kept:
            each = value[at]
            if is_time or type(each) not in _PLAIN:
                each = _canonical(each, field, now_us, timed)
            made.append(each)
        return tuple(made)
    if kind is _Pairs:
        pairs = [(key, _canonical(each, name, now_us, timed)) for key, each in value]
        return tuple(sorted(pairs) if name in _UNORDERED else pairs)
    if kind is _List or kind is _Deque:
        return tuple([_canonical(each, name, now_us, timed) for each in value])
    return value
