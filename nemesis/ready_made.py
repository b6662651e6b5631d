"""The ready-made schedules that come with floodmark, by name."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from nemesis.formats.schedule import Schedule, parse
from node.formats.errors import UsageError

_SUFFIX: Final = ".json"


def names() -> tuple[str, ...]:
    """Return the names of the ready-made schedules, sorted."""
    found = (file.name for file in files("nemesis").joinpath("schedules").iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX)))


def load(name: str) -> Schedule:
    """Return a ready-made schedule. Raises UsageError with the known names for an unknown one."""
    if name not in names():
        raise UsageError(f"no ready-made schedule '{name}' (there are {', '.join(names())})")
    text = files("nemesis").joinpath("schedules", name + _SUFFIX).read_bytes()
    return parse(text, source=f"schedule '{name}'")
