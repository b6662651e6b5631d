"""Does a record of fields (a trace event, the header of a message) fit a pattern? Pure.

A pattern is a dict of field name to a plain value, which must be equal, or to
{"at_least": n} or {"at_most": n}, which compare numbers; both bounds may be given together.
A field that is not there fits nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

BOUNDS: Final = frozenset({"at_least", "at_most"})
_MISSING: Final = object()


def matches(fields: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    """Whether every field of `pattern` is in `fields` and fits; an empty pattern fits all."""
    return all(_fits(fields.get(name, _MISSING), wanted) for name, wanted in pattern.items())


def is_bound(wanted: object) -> bool:
    """Whether `wanted` compares numbers instead of asking for one value."""
    return isinstance(wanted, dict) and bool(wanted) and wanted.keys() <= BOUNDS


def _fits(value: object, wanted: object) -> bool:
    if not is_bound(wanted):
        # Fields that were tuples in a process are lists in a file.
        return (list(value) if isinstance(value, tuple) else value) == (
            list(wanted) if isinstance(wanted, tuple) else wanted
        )
    assert isinstance(wanted, dict)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    at_least, at_most = wanted.get("at_least"), wanted.get("at_most")
    return (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
