"""The corpus: all saved schedules, each with its expectation.

They are the ready-made schedules, those of findings (`findings/`), and those of known bugs
(`known-bugs/`). A file that cannot be read is left out here; `floodmark replay` says why.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness.formats.finding import EXPLANATION, REAL, SCHEDULE, SIMULATED, Explanation
from harness.formats.nightly_run import Bucket, bucket_key
from harness.replay.pages import page_of_finding
from harness.runs.judge import Tell
from harness.runs.options import load_schedule
from harness.search.campaign import INTERNAL, Finding
from harness.search.findings import save, save_real_schedule
from harness.search.known_bugs import STORE_FOLDER
from nemesis import ready_made
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError
from node.formats.json_input import Unreadable, read_file

FINDINGS: Final = "findings"
PAGE: Final = "report.html"
FORM_RUNS: Final = 150
"""How hard a nightly run looks for a form for real processes, see `save_real_schedule`."""
UNNAMED: Final = "?"
"""Stands in a class for a mechanism that nobody has named."""


class SavedSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule of the corpus; `file` is what `floodmark replay` takes."""

    file: str
    schedule: Schedule


def simulated(store: Path) -> list[SavedSchedule]:
    """What is replayed in the simulated world. Findings come first: a nightly run too short for all
    must know at least whether these still fail."""
    files = [file.parent for file in sorted((store / FINDINGS).glob(f"*/{SCHEDULE}"))]
    files += [Path(name) for name in ready_made.names()]
    files += sorted((store / STORE_FOLDER).glob("*.schedule.json"))
    return list(_loaded(files, ""))


def real(store: Path) -> list[SavedSchedule]:
    """What real processes can carry out."""
    files = [Path(name) for name in ready_made.names()]
    files += sorted((store / STORE_FOLDER).glob("*.slow.json"))
    found = [file.parent for file in sorted((store / FINDINGS).glob(f"*/{REAL}"))]
    return [*_loaded(files, ""), *_loaded(found, REAL)]


def keep(finding: Finding, store: Path, tell: Tell, *, with_page: bool = True) -> Bucket:
    """Save a finding as `floodmark search` does; with a page, also run it in its folder.

    With its form for real processes, where one that fails in simulated worlds is found soon. A page
    that fails is reported and costs nothing else. Returns the finding's bucket, not counted yet.
    Raises OSError.
    """
    kept = save(finding, store / FINDINGS)
    if finding.property != INTERNAL:
        save_real_schedule(finding, kept.folder, runs=FORM_RUNS)
    smallest = finding.smallest
    page = _page(kept.folder, tell) if with_page else None
    protocol, folder = smallest.cluster.protocol, kept.folder.relative_to(store)
    return Bucket(
        key=bucket_key(protocol, SIMULATED, finding.bucket),
        protocol=protocol,
        world=SIMULATED,
        property=finding.property,
        name=finding.bucket,
        expected=False,
        count=0,
        sentence=finding.sentence,
        faults=len(smallest.faults),
        schedule=f"{folder}/{SCHEDULE}",
        replay=f"floodmark replay {shlex.quote(str(kept.folder))}",
        page="" if page is None else str(page.relative_to(store)),
    )


def named(file: Path, schedule: Schedule) -> str:
    """The class of failure that a finding was saved for; "" for a file that is no finding."""
    if file.parent.name != FINDINGS:
        return ""
    try:
        return read_file(file / EXPLANATION, Explanation).bucket
    except (OSError, Unreadable):
        return f"{schedule.expectation.property or UNNAMED}: {UNNAMED}"


def found(file: str, protocol: str, name: str, faults: int, sentence: str) -> Bucket:
    """The bucket of a finding in `findings/` that no nightly run made, not counted yet."""
    folder = f"{FINDINGS}/{Path(file).name}"
    return Bucket(
        key=bucket_key(protocol, SIMULATED, name),
        protocol=protocol,
        world=SIMULATED,
        property=name.partition(":")[0],
        name=name,
        expected=False,
        count=0,
        sentence=sentence,
        faults=faults,
        schedule=f"{folder}/{SCHEDULE}",
        replay=f"floodmark replay {shlex.quote(str(file))}",
        page=f"{folder}/{SIMULATED}/{PAGE}",
    )


def _page(folder: Path, tell: Tell) -> Path | None:
    """The page of a finding; whatever goes wrong with it, the finding is kept all the same."""
    try:
        return page_of_finding(folder, lambda sentence: None)
    except Exception as error:
        tell(f"the page of {folder} could not be built: {type(error).__name__}: {error}")
        return None


def _loaded(files: list[Path], inside: str) -> Iterator[SavedSchedule]:
    """Those that can be read; of a folder, the schedule in the file `inside`."""
    for file in files:
        try:
            schedule = load_schedule(file / inside if inside else file)
        except FloodmarkError:
            continue
        yield SavedSchedule(file=str(file), schedule=schedule)
