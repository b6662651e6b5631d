"""The systems under test by name.

A module of this folder (or `system.py` in a package of it) that defines `SYSTEM` adds one, under
the name of the module. Other packages add theirs by an entry point of the group
`floodmark.systems`; `package.module:Name` names any class or object that can be imported.
"""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import entry_points
from typing import Final

from harness import systems
from harness.systems.interface import System
from node.formats.errors import UsageError

DEFAULT: Final = "floodmark"
ENTRY_POINTS: Final = "floodmark.systems"
_NO_SYSTEMS: Final = ("interface", "ports", "registry", "remote_clients")


def names() -> list[str]:
    """The names of all systems that are installed."""
    found = {m.name for m in pkgutil.iter_modules(systems.__path__)} - set(_NO_SYSTEMS)
    return sorted(found | {point.name for point in entry_points(group=ENTRY_POINTS)})


def find(name: str) -> System:
    """A system by its name, or by `module:Name`. Raises UsageError when there is none."""
    for module in pkgutil.iter_modules(systems.__path__):
        if module.name == name and name not in _NO_SYSTEMS:
            place = f"{systems.__name__}.{name}" + (".system" if module.ispkg else "")
            return _load(name, f"{place}:SYSTEM")
    for point in entry_points(group=ENTRY_POINTS, name=name):
        return _load(name, point.value)
    if ":" in name:
        return _load(name, name)
    raise UsageError(f"unknown system '{name}' (known: {', '.join(names())})")


def _load(name: str, place: str) -> System:
    """The object at `place` (`module:Name`; a class is called), under the name it was asked by."""
    module, _, attribute = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"system '{place}' cannot be loaded: {error}") from None
    made = found() if isinstance(found, type) else found
    if not isinstance(made, System):
        raise UsageError(f"'{place}' is no system: it must be a harness.systems.interface.System")
    made.name = name
    return made
