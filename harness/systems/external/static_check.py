"""The mistakes of an adapter class that can be seen without running it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any, Final

from harness.systems.adapter import MAKE_GROUPS, Adapter, Setting
from nemesis.faults import KINDS

REQUIRED: Final = ("command", "create", "connect", "send", "read")
OF_GROUPS: Final = ("join", "poll", "acknowledge", "commit", "positions")
_NEEDED: Final = (("join",), ("poll",), ("acknowledge", "commit"))
_METHODS: Final = (*REQUIRED, "close", "probe", "dump", "promise", "version")
_PLAIN: Final = ("command", "dump", "promise", "version")


def mistakes(adapter: type[Adapter]) -> Iterator[str]:
    """Yield a sentence on each mistake of an adapter class."""
    has_groups = adapter.writes(*MAKE_GROUPS)
    for name in REQUIRED[: len(REQUIRED) - has_groups]:
        if not adapter.writes(name):
            yield f"{name} is not written"
    for name in (*_METHODS, *(OF_GROUPS if has_groups else ())):
        yield from _wrong_method(adapter, name)
    stated = (("positions",),) if adapter.writes("commit") else ()
    for needed in (*_NEEDED, *stated) if has_groups else ():
        if not adapter.writes(*needed):
            yield f"{' or '.join(needed)} is not written, and a group of consumers needs it"
    yield from _wrong_settings(adapter)
    if "client" not in adapter.listens:
        yield "listens has no 'client', which is where clients dial"
    if both := sorted(set(adapter.listens) & set(adapter.probed)):
        yield f"'{both[0]}' is in listens and in probed"
    if adapter.unsynced_files is not Adapter.unsynced_files and not adapter.unsynced:
        yield "unsynced is empty, so unsynced_files is never asked: name there what it may return"
    for kind in adapter.faults or ():
        if kind not in KINDS:
            yield f"faults names '{kind}', which is no kind of fault (see floodmark faults)"
    if not adapter.summary:
        yield "summary is empty: floodmark systems has nothing to say"


def _wrong_method(adapter: type[Adapter], name: str) -> Iterator[str]:
    """Find methods that cannot be called as they are called."""
    method, model = getattr(adapter, name), getattr(Adapter, name)
    if not callable(method):
        yield f"{name} is no method"
        return
    try:
        inspect.signature(method).bind(*[None] * len(inspect.signature(model).parameters))
    except TypeError:
        wanted = ", ".join(inspect.signature(model).parameters)
        yield f"{name} must take ({wanted})"
    if name in _PLAIN and inspect.iscoroutinefunction(method):
        yield f"{name} must be a plain function, not async"


def _wrong_settings(adapter: type[Adapter]) -> Iterator[str]:
    names = []
    given: Iterable[Any] = adapter.settings
    for setting in given:
        if not isinstance(setting, Setting):
            yield f"settings has {setting!r}, which is no Setting"
            continue
        names.append(setting.name)
        if not setting.allows(setting.default):
            yield f"the default of setting '{setting.name}' is none of its values"
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two settings are called '{name}'"
