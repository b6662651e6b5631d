"""The corpus: every schedule that was ever worth saving, each with what it expects.

Ready-made schedules, what searches found (`findings/`), and what the museum shrank (`museum/`). A
file that cannot be read is left out here; `floodmark replay` says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness.judge import build_page
from harness.night.plan import is_expected
from harness.options import load_schedule
from harness.search.campaign import Finding
from harness.search.findings import REAL, SCHEDULE, save
from harness.sim.run import simulate
from nemesis import library
from nemesis.schedule import Schedule
from node.errors import FloodmarkError
from reports.night import Bucket, bucket_key

FINDINGS: Final = "findings"
SIMULATED: Final = "simulated"
PAGE: Final = "report.html"


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule of the corpus; `file` is how `floodmark replay` is told of it."""

    file: str
    schedule: Schedule

    @property
    def is_finding(self) -> bool:
        """Whether it fails on a protocol that should hold: then it is good news if it does not."""
        expectation, cluster = self.schedule.expectation, self.schedule.cluster
        broken = [expectation.property] if expectation.property else []
        return expectation.verdict == "invalid" and not is_expected(
            cluster.protocol, broken, cluster.switches
        )


def simulated(store: Path) -> list[Saved]:
    """What is replayed in the simulated world. Findings come first: a night too short for all must
    know at least whether these still fail."""
    files = [file.parent for file in sorted((store / FINDINGS).glob(f"*/{SCHEDULE}"))]
    files += [Path(name) for name in library.names()]
    files += sorted((store / "museum").glob("*.schedule.json"))
    return list(_loaded(files, ""))


def real(store: Path) -> list[Saved]:
    """What real processes can carry out."""
    files = [Path(name) for name in library.names()]
    files += sorted((store / "museum").glob("*.slow.json"))
    found = [file.parent for file in sorted((store / FINDINGS).glob(f"*/{REAL}"))]
    return [*_loaded(files, ""), *_loaded(found, REAL)]


def keep(finding: Finding, store: Path) -> Bucket:
    """Save a finding as `floodmark search` does, with its run and page in the same folder.

    Returns its bucket, not counted yet. Raises OSError or StorageError.
    """
    kept = save(finding, store / FINDINGS)
    smallest = finding.smallest
    simulate(smallest, seed=smallest.workload.seed, stop_at="never", keep=kept.folder)
    page = build_page(kept.folder, lambda sentence: None)
    protocol, folder = smallest.cluster.protocol, kept.folder.relative_to(store)
    return Bucket(
        key=bucket_key(protocol, SIMULATED, finding.bucket), protocol=protocol, world=SIMULATED,
        property=finding.property, name=finding.bucket, expected=False, count=0,
        sentence=finding.sentence, faults=len(smallest.faults), schedule=f"{folder}/{SCHEDULE}",
        replay=f"floodmark replay {kept.folder}", page="" if page is None else f"{folder}/{PAGE}",
    )  # fmt: skip


def _loaded(files: list[Path], inside: str) -> Iterator[Saved]:
    """Those that can be read; of a folder, the schedule in the file `inside`."""
    for file in files:
        try:
            schedule = load_schedule(file / inside if inside else file)
        except FloodmarkError:
            continue
        yield Saved(file=str(file), schedule=schedule)
