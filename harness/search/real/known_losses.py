"""What is known to be lost in other people's systems, and how blind search finds it again.

A row is declared once: a system, a configuration, how many disks may lose something, and what a
finding of it looks like. Nothing here tells the search how: every row is searched with the same
generator. Each search is a file of its own in `store/known-losses/`, so that they can be stopped
at any moment and go on with the next.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from checker.formats.anomalies import LOST_WRITES
from harness.formats.options import worker_count
from harness.formats.system_finding import SystemFinding, is_undelivered
from harness.runs.interrupts import Interrupts
from harness.runs.progress import Progress
from harness.search import deadline
from harness.search.real.families import Disks
from harness.search.real.main import CORES_OF_A_CLUSTER, finish, storm_processes, subject_of
from harness.search.real.system_search import Find, SearchBudget, SystemSearch
from harness.search.requests import BugSearchRequest, SearchRequest
from node.formats.bounds import LargeCount, Number, Seconds
from node.formats.errors import StorageError, UsageError
from node.formats.files import cannot_write, write_whole
from node.formats.json_input import Unreadable, read_file

FOLDER: Final = "known-losses"
ALL: Final = "all"


class KnownLoss(msgspec.Struct, frozen=True, kw_only=True):
    """A loss that is known. `settings` are its configuration, `disks` is how many nodes may lose
    what they have not synced. In a finding that counts at least `lost_disks` do, and with
    `on_links` it has faults on links; with `told` a node wrote so: a pattern for files of the run
    folder, and a text in one of them. `safe` is the configuration to compare with; None: that which
    the system declares, {}: there is none."""

    code: str
    system: str
    loss: str
    settings: dict[str, str] = {}
    disks: Disks = "none"
    lost_disks: int = 0
    on_links: bool = False
    told: tuple[str, str] | None = None
    safe: dict[str, str] | None = None

    def is_found(self, finding: SystemFinding) -> bool:
        """Whether a finding shows it."""
        lost = finding.property == LOST_WRITES and finding.disks >= self.lost_disks
        lost = lost and not is_undelivered(finding.property, finding.anomaly)
        lost = lost and (finding.on_links or not self.on_links)
        return lost and (self.told is None or _is_told(Path(finding.run), *self.told))


KNOWN_LOSSES: Final = (
    KnownLoss(
        code="nats-one-disk", system="nats", loss="one disk loses writes", disks="one", lost_disks=1
    ),
    KnownLoss(
        code="nats-all-power",
        system="nats",
        loss="several disks lose writes",
        disks="any",
        lost_disks=2,
    ),
    KnownLoss(
        code="redis-cut-off",
        system="redis",
        loss="a primary is cut off",
        settings={"wait": "0"},
        on_links=True,
    ),
    KnownLoss(
        code="redis-stale",
        system="redis",
        loss="a stale replica is promoted",
        settings={"wait": "1"},
    ),
    KnownLoss(
        code="kafka-kip-101",
        system="kafka",
        loss="KIP-101",
        settings={"min_isr": "2", "unclean": "false"},
        safe={},
    ),
    KnownLoss(
        code="kafka-unclean",
        system="kafka",
        loss="unclean election",
        # In this configuration a truncated follower may lead as well.
        told=("data/*/controller.log*", "There's potential data loss"),
    ),
    KnownLoss(
        code="rabbitmq-stale-log", system="rabbitmq", loss="a stale log", disks="one", lost_disks=1
    ),
)
"""The rows of the table, in its order."""


class LossSearch(msgspec.Struct, frozen=True, kw_only=True):
    """One search for a known loss: whether it was found within so many seconds and storms, and the
    finding with what became of it. `unwanted` are the buckets of other failures."""

    code: str
    budget_s: Seconds
    found: bool
    seconds: Seconds
    storms: LargeCount
    seed: Number = 0
    jobs: LargeCount = 1
    finding: SystemFinding | None = None
    unwanted: dict[str, LargeCount] = {}
    problems: list[str] = []
    version: str = ""


def wanted_losses(request: BugSearchRequest) -> list[KnownLoss]:
    """The rows that are asked for. Raises UsageError for a system or code without one."""
    found = [row for row in KNOWN_LOSSES if request.system in (ALL, row.system)]
    if not found:
        known = ", ".join(dict.fromkeys(row.system for row in KNOWN_LOSSES))
        raise UsageError(f"no loss is known of system '{request.system}' (known: {ALL}, {known})")
    codes = {row.code for row in found}
    if missing := [code for code in request.only if code not in codes]:
        raise UsageError(f"unknown loss '{missing[0]}' (known: {', '.join(sorted(codes))})")
    return [row for row in found if not request.only or row.code in request.only]


def find_losses(
    request: BugSearchRequest,
    interrupts: Interrupts,
    progress: Progress,
    output: Callable[[str], None],
) -> list[LossSearch]:
    """Make the searches that are not made yet, seed by seed; all that are known.

    Raises UsageError, or StorageError when the store cannot be written.
    """
    rows = wanted_losses(request)
    for seed in range(1, request.seeds + 1):
        for row in rows:
            if interrupts.asked:
                return searches(request.store)
            before = _read(_file(request.store, row, seed))
            if before is not None and (before.found or before.budget_s >= request.search_s):
                continue
            made = _search(row, seed, request, interrupts, progress, output)
            if made.found or not interrupts.asked:
                _write(request.store, row, made)
    return searches(request.store)


def searches(store: Path) -> list[LossSearch]:
    """All searches of a store, by row and seed."""
    order = {row.code: place for place, row in enumerate(KNOWN_LOSSES)}
    found = [_read(file) for file in sorted((store / FOLDER).glob("*.json"))]
    known = [one for one in found if one is not None and one.code in order]
    return sorted(known, key=lambda one: (order[one.code], one.seed))


def _search(
    row: KnownLoss,
    seed: int,
    request: BugSearchRequest,
    interrupts: Interrupts,
    progress: Progress,
    output: Callable[[str], None],
) -> LossSearch:
    """One blind search, which ends with the first finding of the row."""
    asked = SearchRequest(
        system=row.system, settings=row.settings, disks=row.disks, budget_s=request.search_s
    )
    subject, system = subject_of(asked)
    is_late = deadline.after(request.search_s)
    with closing(storm_processes(system, request.store)) as runner:
        search = SystemSearch(
            *(subject, system, runner, request.store),
            seed=seed,
            jobs=worker_count(request.jobs, cores_each=CORES_OF_A_CLUSTER),
            stop=lambda: is_late() or interrupts.asked,
            tell=progress.tell,
        )
        progress.phase(f"{row.code}, seed {seed}", request.search_s)
        blind = BlindSearch(row, search, request.search_s, output)
        made = blind.search()
        if not _shrunk(request.store, row):
            made = blind.shrink(made)
    return msgspec.structs.replace(
        made,
        seed=seed,
        jobs=worker_count(request.jobs, cores_each=CORES_OF_A_CLUSTER),
        unwanted=blind.unwanted(),
        problems=search.counts.problems,
        version=system.version(),
    )


class BlindSearch:
    """The search for one row, and what is done with its findings."""

    def __init__(
        self, row: KnownLoss, search: SystemSearch, seconds: float, output: Callable[[str], None]
    ) -> None:
        self._row = row
        self._search = search
        self._seconds = seconds
        self._output = output
        self._found: list[Find] = []

    def search(self) -> LossSearch:
        """Until the row is found, or the time is over."""
        self._next()
        first = self._found[0].finding if self._found else None
        seconds = self._search.seconds() if first is None else first.seconds_before
        return LossSearch(
            code=self._row.code,
            budget_s=self._seconds,
            found=first is not None,
            seconds=round(seconds, 1),
            storms=self._search.counts.storms,
            finding=first,
        )

    def shrink(self, made: LossSearch) -> LossSearch:
        """The same with the finding shrunk. One that fails too rarely for that is given up for the
        next one, while there is time."""
        while self._found and not self._search.is_late():
            find = self._found[-1]
            if self._row.safe is not None:
                safe = self._row.safe or None
                find.finding = msgspec.structs.replace(find.finding, safe_settings=safe)
            finish(self._search, find, self._seconds)
            if is_steady(find.finding):
                return msgspec.structs.replace(made, finding=find.finding)
            self._search.finds.pop(find.finding.bucket, None)
            if not self._next():
                break
        return made

    def unwanted(self) -> dict[str, int]:
        """Failures of other buckets, counted."""
        wanted = {find.finding.bucket for find in self._found}
        return {name: n for name, n in self._search.counts.buckets.items() if name not in wanted}

    def _next(self) -> bool:
        """Search until the row is found once more; whether it was."""
        before = len(self._found)
        budget = SearchBudget(seconds=self._seconds, reserve=0.0)
        self._search.search(budget, self._report, lambda: len(self._found) > before)
        return len(self._found) > before

    def _report(self, find: Find) -> None:
        found = find.finding
        self._output(f"{self._row.code}: {found.bucket}, {found.seconds_before:.0f} s")
        if self._row.is_found(found):
            find.wanted = self._row.is_found
            self._found.append(find)
        else:
            # Another failure of the same class may be the one.
            self._search.finds.pop(found.bucket, None)


def _is_told(run: Path, pattern: str, text: str) -> bool:
    """Whether a file of a run folder has a text."""
    return any(text.encode() in file.read_bytes() for file in run.glob(pattern) if file.is_file())


def is_steady(finding: SystemFinding) -> bool:
    """Whether the smallest schedule failed in most of its runs, of which there were several."""
    return 2 * finding.counts.failed > finding.counts.of > 1


def is_complete(finding: SystemFinding) -> bool:
    """Whether nothing is left to do with a finding: the safe configuration was tried too, where
    there is one."""
    return is_steady(finding) and bool(finding.safe_settings is None or finding.safe_runs)


def _shrunk(store: Path, row: KnownLoss) -> int:
    """How many findings of a row were shrunk and paired."""
    return sum(
        one.finding is not None and is_complete(one.finding)
        for one in searches(store)
        if one.code == row.code
    )


def _file(store: Path, row: KnownLoss, seed: int) -> Path:
    return store / FOLDER / f"{row.code}-{seed}.json"


def _write(store: Path, row: KnownLoss, made: LossSearch) -> None:
    file = _file(store, row, made.seed)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(cannot_write(file.parent, error)) from None
    write_whole(file, msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")


def _read(file: Path) -> LossSearch | None:
    try:
        return read_file(file, LossSearch)
    except (OSError, Unreadable):
        return None
