"""The corpus: all saved schedules, each with the verdict that it expects.

It has the ready-made schedules, and those of findings in simulated worlds (of known bugs too). A
file that cannot be read is left out; `floodmark replay` reports why."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness.formats import nightly_run
from harness.formats.finding import REAL, SCHEDULE, SIMULATED, STORE_FOLDER, Finding
from harness.formats.nightly_run import Bucket
from harness.runs.options import load_schedule
from harness.search import findings
from nemesis import ready_made
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError

PAGE: Final = "report.html"
UNNAMED: Final = "?"
"""The cause in a bucket's name if none is known."""


class SavedSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule of the corpus; `file` is what `floodmark replay` takes: a file or folder."""

    file: str
    schedule: Schedule


def simulated(store: Path) -> list[SavedSchedule]:
    """Return the schedules to replay in the simulated world, those of findings first."""
    files = [*_findings(store), *(Path(name) for name in ready_made.names())]
    return list(_loaded(files, ""))


def real(store: Path) -> list[SavedSchedule]:
    """Return the schedules for real processes: ready-made ones, and findings' real forms."""
    files = [Path(name) for name in ready_made.names()]
    found = [folder for folder in _findings(store) if (folder / REAL).is_file()]
    return [*_loaded(files, ""), *_loaded(found, REAL)]


def _findings(store: Path) -> list[Path]:
    """Return the folders of findings in simulated worlds."""
    real_ones = {folder for folder, found in findings.load_all(store) if found.world == "real"}
    folders = (file.parent for file in sorted((store / STORE_FOLDER).glob(f"*/{SCHEDULE}")))
    return [folder for folder in folders if folder not in real_ones]


def bucket_of(finding: Finding, folder: str, page: str, store: Path) -> Bucket:
    """Return the bucket of a finding, with count 0. Paths are relative to the store."""
    protocol, faults = finding.smallest.cluster.protocol, len(finding.smallest.faults)
    bucket = found(str(store / folder), protocol, finding.bucket, faults, finding.sentence)
    return msgspec.structs.replace(bucket, page=page)


def named(file: Path, schedule: Schedule) -> str:
    """Return the bucket of the finding that a file belongs to; "" if there is none."""
    if file.parent.name != STORE_FOLDER:
        return ""
    try:
        return findings.load(file).bucket
    except FloodmarkError:
        return f"{schedule.expectation.property or UNNAMED}: {UNNAMED}"


def found(file: str, protocol: str, name: str, faults: int, sentence: str) -> Bucket:
    """Return the bucket of a class of failure whose finding is in the folder `file`, with count
    0."""
    folder, page = f"{STORE_FOLDER}/{Path(file).name}", f"{SIMULATED}/{PAGE}"
    return nightly_run.bucket_of(
        protocol,
        SIMULATED,
        name,
        sentence=sentence,
        faults=faults,
        schedule=f"{folder}/{SCHEDULE}",
        replay=f"floodmark replay {shlex.quote(file)}",
        page=f"{folder}/{page}" if (Path(file) / page).is_file() else "",
    )


def _loaded(files: list[Path], inside: str) -> Iterator[SavedSchedule]:
    """Yield the schedules that can be read; of a folder, the one in the file `inside`."""
    for file in files:
        try:
            schedule = load_schedule(file / inside if inside else file)
        except FloodmarkError:
            continue
        yield SavedSchedule(file=str(file), schedule=schedule)
