"""A finding of a search on real processes, as a folder: written when it is known, and again when
more is."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.formats.finding import DRAWN, SCHEDULE
from harness.formats.system_finding import FILE, FOLDER, SystemFinding
from nemesis.faults import kind_of
from nemesis.formats.schedule import Fault, Schedule
from node.formats.errors import StorageError
from node.formats.files import cannot_write, write_whole


def folder_of(store: Path, finding: SystemFinding, drawn: Schedule) -> Path:
    """Where a finding is kept."""
    system = finding.system.rpartition(":")[2].lower()
    disks = f"-{min(finding.disks, 2)}-disks" if finding.disks else ""
    return store / FOLDER / f"{system}-{finding.property}{disks}-{drawn.digest()}"


def write(folder: Path, finding: SystemFinding, smallest: Schedule, drawn: Schedule) -> None:
    """Write a finding and its schedules. Raises StorageError."""
    text = msgspec.json.format(msgspec.json.encode(finding), indent=1) + b"\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(cannot_write(folder, error)) from None
    write_whole(folder / DRAWN, drawn.to_pretty_json())
    write_whole(folder / SCHEDULE, smallest.to_pretty_json())
    write_whole(folder / FILE, text)


def in_words(schedule: Schedule) -> tuple[str, ...]:
    """The faults of a schedule, a line each: when, what, how long."""
    return tuple(map(_line, schedule.faults))


def _line(fault: Fault) -> str:
    lasts = "" if fault.for_ms is None else f", for {fault.for_ms / 1000:.2f} s"
    return f"{(fault.at_ms or 0) / 1000:.2f} s: {kind_of(fault).words()}{lasts}"
