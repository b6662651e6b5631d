"""The Schedule: cluster + workload + faults + expectation, as one versioned file (a leaf).

The file is the currency: random draw, search, replay, shrink, both worlds and the report all speak
it. It holds everything a verdict depends on. Unknown names are errors everywhere. Times are
milliseconds since the workload began. Design section 4.

Everybody imports the parts of a schedule from here: its shape (`nemesis.formats.cluster_spec`),
its faults
(`nemesis.faults`), and what is refused (`nemesis.formats.validation`).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, Literal

import msgspec

from nemesis.formats import validation
from nemesis.formats.cluster_spec import (
    After,
    Cluster,
    Operation,
    Poll,
    Send,
    Strict,
    Timings,
    Workload,
)
from nemesis.formats.faults import (
    FAULT_NAMES,
    FAULT_TYPES,
    ROLES,
    ROLES_OF_A_PARTITION,
    Break,
    Bridge,
    Cut,
    Delay,
    ElectPreferred,
    ElectUnclean,
    Fault,
    Isolate,
    Kill,
    Link,
    Loss,
    Pause,
    PowerCut,
    Reassign,
    Release,
    Restart,
    Resume,
    Ring,
    SetMinIsr,
    Stop,
    Upgrade,
    check_target,
)
from nemesis.formats.validation import COMMON_FIELDS, MAX_FAULTS
from node.formats.errors import UsageError

__all__ = [
    "COMMON_FIELDS",
    "FAULT_NAMES",
    "FAULT_TYPES",
    "FORMAT_VERSION",
    "MAX_FAULTS",
    "ROLES",
    "ROLES_OF_A_PARTITION",
    "After",
    "Break",
    "Bridge",
    "Cluster",
    "Cut",
    "Delay",
    "ElectPreferred",
    "ElectUnclean",
    "Expectation",
    "Fault",
    "Isolate",
    "Kill",
    "Link",
    "Loss",
    "Operation",
    "Pause",
    "Poll",
    "PowerCut",
    "Reassign",
    "Release",
    "Restart",
    "Resume",
    "Ring",
    "Schedule",
    "Send",
    "SetMinIsr",
    "Stop",
    "Timings",
    "Upgrade",
    "Workload",
    "check",
    "check_target",
    "load",
    "parse",
]

FORMAT_VERSION: Final = 1


class Expectation(Strict, frozen=True, kw_only=True):
    """What `replay` must see to exit 0; `property` narrows an `invalid` to one property."""

    verdict: Literal["valid", "invalid", "any"] = "any"
    property: str | None = None


class Schedule(Strict, frozen=True, kw_only=True):
    """One whole experiment. `drawn` marks faults drawn at random: a missing target is a skip."""

    floodmark_schedule: int = FORMAT_VERSION
    name: str = ""
    cluster: Cluster = Cluster()
    workload: Workload = Workload()
    faults: tuple[Fault, ...] = ()
    expectation: Expectation = Expectation()
    drawn: bool = False

    def to_json(self) -> bytes:
        """The canonical form: every field written out, keys sorted, one trailing newline."""
        return msgspec.json.encode(self, order="sorted") + b"\n"

    def to_pretty_json(self) -> bytes:
        """The canonical form indented for a person."""
        return msgspec.json.format(self.to_json(), indent=2) + b"\n"

    def digest(self) -> str:
        """12 hexadecimal digits that name this schedule: a hash of the canonical form."""
        return hashlib.sha256(self.to_json()).hexdigest()[:12]


def parse(text: bytes, *, source: str = "schedule") -> Schedule:
    """Read and check a schedule. Raises UsageError with the one thing that is wrong and where."""
    try:
        head = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"{source}: not JSON: {error}") from None
    version = head.get("floodmark_schedule") if isinstance(head, dict) else None
    if version != FORMAT_VERSION:
        raise UsageError(
            f"{source}: floodmark_schedule is {version!r}, this floodmark reads {FORMAT_VERSION}"
        )
    faults = head.get("faults")
    for index, fault in enumerate(faults if isinstance(faults, list) else ()):
        what = fault.get("what") if isinstance(fault, dict) else None
        if what not in FAULT_NAMES:
            raise UsageError(
                f"{source}: fault {index}: unknown fault {what!r} (known: {', '.join(FAULT_NAMES)})"
            )
    try:
        schedule = msgspec.json.decode(text, type=Schedule)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: {error}") from None
    check(schedule, source=source)
    return schedule


def load(path: Path) -> Schedule:
    """Read a schedule file, or the `schedule.json` of a run folder."""
    file = path / "schedule.json" if path.is_dir() else path
    try:
        return parse(file.read_bytes(), source=str(file))
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None


def check(schedule: Schedule, *, source: str = "schedule") -> None:
    """Refuse what no run could carry out. Raises UsageError with the first thing wrong."""
    for problem in validation.problems(schedule.cluster, schedule.workload, schedule.faults):
        raise UsageError(f"{source}: {problem}")
