"""The corpus: every schedule that was ever worth saving, each with what it expects.

Ready-made schedules, what searches found (`findings/`), and what the museum shrank (`museum/`). A
file that cannot be read is left out here; `floodmark replay` says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.cli_search import save
from harness.judge import build_page
from harness.night.plan import is_expected
from harness.night.rows import Found
from harness.options import load_schedule
from harness.sim.run import simulate
from nemesis import library
from nemesis.schedule import Schedule
from node.errors import FloodmarkError, UsageError
from reports.night import Bucket

FINDINGS = "findings"
BUCKETS = "buckets"
_REAL_SUFFIX = "-real.json"


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
    """What is replayed in the simulated world."""
    files = [Path(name) for name in library.names()]
    found = sorted((store / FINDINGS).glob("*.json"))
    files += [file for file in found if not file.name.endswith(_REAL_SUFFIX)]
    files += sorted((store / "museum").glob("*.schedule.json"))
    return list(_loaded(files))


def real(store: Path) -> list[Saved]:
    """What real processes can carry out."""
    files = [Path(name) for name in library.names()]
    files += sorted((store / FINDINGS).glob(f"*{_REAL_SUFFIX}"))
    files += sorted((store / "museum").glob("*.slow.json"))
    return list(_loaded(files))


def keep(found: Found, store: Path, key: str) -> Bucket:
    """Save a finding: its schedule into the corpus, its run and page into `buckets/`.

    Returns the fields of its bucket that say where. Raises OSError or StorageError.
    """
    finding = found.finding
    file = save(finding, store / FINDINGS)
    if found.for_real is not None:
        real_file = file.with_name(f"{file.stem}{_REAL_SUFFIX}")
        real_file.write_bytes(found.for_real.to_pretty_json())
    folder = store / BUCKETS / key
    page = None
    try:
        smallest = finding.smallest
        simulate(smallest, seed=smallest.workload.seed, stop_at="never", keep=folder)
        page = build_page(folder, lambda sentence: None)
    except UsageError:
        page = None
    return Bucket(
        key=key, protocol=finding.smallest.cluster.protocol, world="simulated",
        property=finding.property, name=finding.bucket, expected=False, count=0,
        sentence=finding.sentence, faults=len(finding.smallest.faults),
        schedule=str(file.relative_to(store)), replay=f"floodmark replay {file}",
        page="" if page is None else str(page.relative_to(store)),
    )  # fmt: skip


def _loaded(files: list[Path]) -> Iterator[Saved]:
    for file in files:
        try:
            yield Saved(file=str(file), schedule=load_schedule(file))
        except FloodmarkError:
            continue
