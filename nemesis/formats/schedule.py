"""The schedule: cluster, workload, faults and expectation, as one versioned file.

Random draw, search, replay, shrinking, both worlds and the report all use this file. It has
everything that a verdict depends on. Unknown names are errors everywhere. Times are milliseconds
from the start of the workload. docs/file-formats.md describes it.

Import the parts of a schedule from here (cluster and workload are defined in
`nemesis.formats.cluster_spec`, the base of faults in `nemesis.formats.fault`); the kinds of faults
are in `nemesis.faults`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from nemesis.formats.cluster_spec import (
    After,
    Cluster,
    Operation,
    Poll,
    Send,
    Strict,
    Timings,
    Workload,
    in_words,
    out_of_bounds,
)
from nemesis.formats.fault import Fault, decode_all
from node.formats import json_input
from node.formats.errors import UsageError
from node.formats.host_errors import reason
from node.formats.json_input import Unreadable

__all__ = [
    "FORMAT_VERSION",
    "MAX_FAULTS",
    "After",
    "Cluster",
    "Expectation",
    "Fault",
    "Operation",
    "Poll",
    "Schedule",
    "Send",
    "Timings",
    "Workload",
    "check",
    "load",
    "parse",
]

MAX_FAULTS: Final = 10_000
FORMAT_VERSION: Final = 1


class Expectation(Strict, frozen=True, kw_only=True):
    """The verdict that `replay` compares with; `property` narrows an `invalid` to one property."""

    verdict: Literal["valid", "invalid", "any"] = "any"
    property: str | None = None


if TYPE_CHECKING:
    AnyFault = Fault
else:
    # A decoder knows only unions that are closed; `Schedule.__post_init__` asks the registry.
    AnyFault = Any

_LATER: Final = (
    *(b'"spares":0,', b'"how":"stop",', b'"version":"",', b'"then":"wait",'),
    *(b',"since":""', b',"within_ms":null', b'"members":0,'),
)
"""Fields that older schedules do not have, at their defaults: a digest outlives them. A quotation
mark inside a text is escaped, so only a field is written like that."""


class Schedule(Strict, frozen=True, kw_only=True):
    """One whole experiment. `drawn`: its faults were drawn at random, so a fault without a target
    is skipped and no error."""

    floodmark_schedule: int = FORMAT_VERSION
    name: str = ""
    cluster: Cluster = Cluster()
    workload: Workload = Workload()
    faults: tuple[AnyFault, ...] = ()
    expectation: Expectation = Expectation()
    drawn: bool = False

    def __post_init__(self) -> None:
        if any(not isinstance(fault, Fault) for fault in self.faults):
            msgspec.structs.force_setattr(self, "faults", decode_all(self.faults))

    def to_json(self) -> bytes:
        """Return the canonical form: keys sorted, one trailing newline, and every field written out
        but those of `_LATER` that have their default."""
        text = msgspec.json.encode(self, order="sorted") + b"\n"
        for field in _LATER:
            text = text.replace(field, b"")
        return text

    def to_pretty_json(self) -> bytes:
        """Return the canonical form indented for a person."""
        return msgspec.json.format(self.to_json(), indent=2) + b"\n"

    def digest(self) -> str:
        """Return 12 hexadecimal digits that identify this schedule: a hash of its text."""
        return hashlib.sha256(self.to_json()).hexdigest()[:12]


def parse(text: bytes, *, source: str = "schedule") -> Schedule:
    """Return a schedule, checked. Raises UsageError with the first error and its place."""
    try:
        head = json_input.decode(text, Any)
    except Unreadable as error:
        raise UsageError(f"{source}: not JSON: {error}") from None
    version = head.get("floodmark_schedule") if isinstance(head, dict) else None
    if version != FORMAT_VERSION:
        raise UsageError(
            f"{source}: floodmark_schedule is {version!r}, this floodmark reads {FORMAT_VERSION}"
        )
    try:
        schedule = json_input.decode(text, Schedule)
    except Unreadable as error:
        raise UsageError(f"{source}: {in_words(error)}") from None
    check(schedule, source=source)
    return schedule


def load(path: Path) -> Schedule:
    """Return the schedule of a file, or of a run folder's `schedule.json`. Raises UsageError."""
    file = path / "schedule.json" if path.is_dir() else path
    if path.is_dir() and not file.exists():
        raise UsageError(f"{path}: holds no schedule.json")
    try:
        text = json_input.read_bytes(file, follow=file == path)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {reason(error)}") from None
    except Unreadable as error:
        raise UsageError(f"{file}: {error}") from None
    return parse(text, source=str(file))


def check(schedule: Schedule, *, source: str = "schedule") -> None:
    """Raise UsageError with the first reason why no run could carry the schedule out."""
    for problem in _problems(schedule):
        raise UsageError(f"{source}: {problem}")


def _problems(schedule: Schedule) -> Iterator[str]:
    """Yield why no run could carry the schedule out, one sentence each."""
    cluster, workload, faults = schedule.cluster, schedule.workload, schedule.faults
    yield from cluster.problems()
    yield from workload.problems(cluster)
    if len(faults) > MAX_FAULTS:
        yield f"{len(faults)} faults, at most {MAX_FAULTS} are allowed"
    names = [fault.name for fault in faults if fault.name]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"two faults are called '{name}': give each a name of its own"
    for index, fault in enumerate(faults):
        where = f"fault {index} ({fault.what})"
        if wrong := out_of_bounds(fault):
            yield f"{where}: {wrong}"
        yield from (f"{where}: {wrong}" for wrong in fault.problems(cluster, workload))
        if fault.undoes and fault.undoes not in names:
            yield f"{where}: no fault is called '{fault.undoes}'"
    yield from _never_begun(schedule)


def _never_begun(schedule: Schedule) -> Iterator[str]:
    """Yield which triggers could never begin to count, because their fault is missing or waits for
    them."""
    since = {f.name: f.after.since if f.after else "" for f in schedule.faults if f.name}
    operations = schedule.workload.operations
    due = [(f"fault {at} ({fault.what})", fault.after) for at, fault in enumerate(schedule.faults)]
    due += [(f"operation {at}", operation.after) for at, operation in enumerate(operations)]
    for where, after in due:
        name, passed = after.since if after else "", set[str]()
        while name in since and name not in passed:
            passed.add(name)
            name = since[name]
        if name:
            wrong = "waits for itself" if name in passed else "is not in the schedule"
            yield f"{where}: after: since: fault '{name}' {wrong}"
