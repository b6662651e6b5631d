"""The ready-made schedules that come with floodmark, by name.

A time in such a file may be an expression: "3000 + 0.5 failover + restart". So the schedule fits
slow and fast systems."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any, Final

import msgspec

from nemesis.formats.schedule import Schedule, parse
from node.formats import json_input
from node.formats.errors import UsageError

FAILOVER_MS: Final = 5000
RESTART_MS: Final = 2000
_SUFFIX: Final = ".json"
_TERM: Final = re.compile(r"([\d.]*) ?(failover|restart|)")


def names() -> tuple[str, ...]:
    """Return the names of the ready-made schedules, sorted."""
    found = (file.name for file in files("nemesis").joinpath("schedules").iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX)))


def load(name: str, failover_ms: int = FAILOVER_MS, restart_ms: int = RESTART_MS) -> Schedule:
    """Return a ready-made schedule for a system that needs `failover_ms` for a new leader and
    `restart_ms` for a restart. Raises UsageError, with the known names, for an unknown one."""
    if name not in names():
        raise UsageError(f"no ready-made schedule '{name}' (there are {', '.join(names())})")
    units = {"failover": failover_ms, "restart": restart_ms, "": 1}
    text = files("nemesis").joinpath("schedules", name + _SUFFIX).read_bytes()
    timed = _timed(json_input.decode(text, Any), units)
    return parse(msgspec.json.encode(timed), source=f"schedule '{name}'")


def _timed(value: Any, units: dict[str, int], name: str = "") -> Any:
    """Return a value of the file with all times in milliseconds."""
    if isinstance(value, dict):
        return {key: _timed(each, units, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_timed(each, units) for each in value]
    if not (isinstance(value, str) and name.endswith("_ms")):
        return value
    terms = [_TERM.fullmatch(term) for term in value.split(" + ")]
    return round(sum(float(term[1] or 1) * units[term[2]] for term in terms if term))
