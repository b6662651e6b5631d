"""The systems under test by name.

A module of this folder (or `system.py` in a package of it) adds a system under the module's name:
the module's only subclass of `Adapter`, which is all that a new system needs, or its `SYSTEM`, a
`System` with a cluster of its own. Other packages add systems by an entry point of the group
`floodmark.systems`; `package.module:Name` and `path/to/file.py:Name` name any class or object, and
the name may be left out if the module has only one adapter."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final

from harness import systems
from harness.systems.adapter import Adapter
from harness.systems.external.load import load_object
from harness.systems.interface import System
from node.formats.errors import UsageError, unknown_name

DEFAULT: Final = "floodmark"
ENTRY_POINTS: Final = "floodmark.systems"
_NO_SYSTEMS: Final = (
    *("adapter", "disks", "external", "interface", "node_processes", "ports"),
    *("process_cluster", "process_world", "registry", "remote_clients", "setup"),
)


def names() -> list[str]:
    """Return the names of all systems that are installed."""
    found = {m.name for m in pkgutil.iter_modules(systems.__path__)} - set(_NO_SYSTEMS)
    return sorted(found | {point.name for point in entry_points(group=ENTRY_POINTS)})


def find(name: str, settings: Mapping[str, str] | None = None) -> System:
    """Return a system by its name, by `module:Name` or by `file.py:Name`, with its settings. Raises
    UsageError for an unknown system or setting."""
    system = _load(name, _place_of(name))
    return system.with_settings(settings) if settings else system


def is_a_place(name: str) -> bool:
    """Return whether a system is named by the place of its code, and not as an installed one."""
    return ":" in name or name.endswith(".py")


def _place_of(name: str) -> str:
    for module in pkgutil.iter_modules(systems.__path__):
        if module.name == name and name not in _NO_SYSTEMS:
            return f"{systems.__name__}.{name}" + (".system:SYSTEM" if module.ispkg else ":")
    for point in entry_points(group=ENTRY_POINTS, name=name):
        return point.value
    if is_a_place(name):
        return f"{name}:" if name.endswith(".py") else name
    raise UsageError(unknown_name("system", name, names()))


def _load(name: str, place: str) -> System:
    """Load the object at `place` (a class of systems is called) under the name it was asked by."""
    found = load_object(place)
    if isinstance(found, type) and issubclass(found, Adapter):
        # Imported late: most commands need no process of another system.
        from harness.systems.external.system import ExternalSystem

        made: System = ExternalSystem(place, found, {})
    else:
        made = found() if isinstance(found, type) else found
    if not isinstance(made, System):
        raise UsageError(
            f"'{place}' is no system: it must be a subclass of harness.systems.adapter.Adapter"
        )
    made.name = name
    return made
