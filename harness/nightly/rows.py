"""The rows of docs/systems: what is said of third-party systems, each row run as often as it says.

A row of `harness/systems/rows.json` is a configuration, a schedule, and the verdict that its runs
have. `floodmark systems rows` runs them and writes the table of the document; nightly runs do so
within their budget."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, Literal

import msgspec

from harness.formats.nightly_journal import Ran
from harness.formats.nightly_run import RowRuns
from harness.nightly import plan
from harness.nightly.counting import Counting
from harness.nightly.night import Kind, RealJob
from harness.runs.options import requested
from harness.runs.requests import RunRequest, SystemRowsRequest
from harness.search.catalogue.table import put_into_file
from harness.search.jobs import Job, JobProcesses, do_one
from harness.search.worlds.real import BESIDE_THE_STORM_S
from harness.systems.external.links import enter_for
from harness.systems.setup import Setup
from nemesis.formats.schedule import Expectation
from node.formats.errors import FloodmarkError, UsageError
from node.formats.json_input import read_file

FILE: Final = Path(__file__).parents[1] / "systems" / "rows.json"
OUTPUT: Final = "rows-output.txt"
BEGIN: Final = "<!-- rows: written by `floodmark systems rows --page` -->"
END: Final = "<!-- end of rows -->"
HEADINGS: Final = ("system", "configuration", "schedule", "verdicts", "records lost", "run")
_NEVER: Final = "not run"


class SystemRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row: at least `least` of `of` runs of a schedule ("": a drawn storm of the seed) on such
    disks end as `expect`. With `about`, only that property counts: two releases of a system may
    both lose records, and differ in what else they break."""

    system: str
    settings: dict[str, str] = {}
    schedule: str = ""
    disk: str = ""
    about: str = ""
    expect: Literal["valid", "invalid"]
    least: int
    of: int

    @property
    def name(self) -> str:
        """The name in keys and sentences."""
        settings = [f"{key}={value}" for key, value in self.settings.items()]
        storm = (self.schedule or "storm", self.disk, self.about)
        return " ".join(filter(None, (self.system, *settings, *storm)))

    @property
    def cells(self) -> tuple[str, str, str]:
        """The first cells in the document, with a version only if the row names it."""
        others = dict(self.settings)
        system = f"{self.system} {others.pop('servers', '')}".rstrip()
        settings = " ".join(f"`{name}={value}`" for name, value in others.items())
        schedule = f"`{self.schedule}`" if self.schedule else "drawn storms"
        schedule += f", {self.disk} disks" if self.disk else ""
        schedule += f", `{self.about}`" if self.about else ""
        return system, settings or "default", schedule

    def job(self, seed: int, store: Path, name: str) -> RealJob:
        """Return the job of a run. Raises UsageError if the server is not installed."""
        request = RunRequest(
            system=self.system,
            settings=self.settings,
            schedule=Path(self.schedule) if self.schedule else None,
            disk=self.disk or None,
            seed=seed,
        )
        schedule, on = requested(request)
        # A run may be invalid by what the row is not about.
        expected = Expectation(verdict="invalid" if self.about else self.expect)
        return RealJob(
            key=f"{plan.ROW}/{self.name}/{seed}",
            why=plan.ROW,
            schedule=msgspec.structs.replace(schedule, expectation=expected),
            name=name,
            store=str(store),
            setup=Setup(system=self.system, settings=self.settings, disk=on.disk),
        )

    def verdict_of(self, ran: Ran) -> str:
        """Return the verdict that counts: that of the run, or of the one property."""
        if not self.about or ran.verdict not in ("valid", "invalid"):
            return ran.verdict
        return "invalid" if self.about in ran.broken else "valid"

    def runs(self) -> RowRuns:
        """Return the row without a run."""
        return RowRuns(name=self.name, expect=self.expect, least=self.least, of=self.of)


def table() -> list[SystemRow]:
    return read_file(FILE, list[SystemRow])


class RowRunning(Kind):
    """The runs of all rows, one row after the other. Each nightly run begins at another row."""

    name, real = plan.ROW, True

    def jobs(self) -> list[Job]:
        night, done = self.night, self.night.journal.done()
        for row in plan.rotated(table(), night.request.number):
            about = f"{self.name}/{row.name}"
            for seed in range(0 if about in done else row.of):
                if f"{about}/{seed}" in done:
                    continue
                try:
                    job = row.job(seed, night.store, f"{night.prefix}row")
                except UsageError as error:
                    night.skip(about, error)
                    break
                if night.fits(job.schedule):
                    return [job]
        return []

    @staticmethod
    def count(row: Ran, to: Counting) -> None:
        name = row.key.partition("/")[2].rpartition("/")[0]
        declared = {one.name: one for one in table()}
        for runs in (runs for runs in to.nightly.rows if runs.name == name):
            runs.add(declared[name].verdict_of(row), row.lost, row.version)


def run_rows(
    request: SystemRowsRequest, stop: Callable[[], bool], tell: Callable[[str], None]
) -> Iterator[RowRuns]:
    """Run the rows one after the other; yield the runs of each. `tell` gets a sentence a run.
    Raises UsageError for a system without a row."""
    wanted = [row for row in table() if request.system in (None, row.system)]
    if not wanted:
        names = ", ".join(dict.fromkeys(row.system for row in table()))
        raise UsageError(f"no row is about system '{request.system}' (there are: {names})")
    request.store.mkdir(parents=True, exist_ok=True)
    enter_for(row.system for row in wanted)
    with closing(JobProcesses(1, request.store / OUTPUT)) as pool:
        for row in wanted:
            if stop():
                return
            yield run_row(row, request.store, pool, stop, tell)


def run_row(
    row: SystemRow,
    store: Path,
    pool: JobProcesses,
    stop: Callable[[], bool],
    tell: Callable[[str], None],
) -> RowRuns:
    """Run one row as often as it says; a run that could not be made has the verdict "unknown"."""
    found = row.runs()
    for seed in range(row.of):
        try:
            job = row.job(seed, store, "row")
        except UsageError as error:
            found.missing = str(error)
            break
        longest_s = BESIDE_THE_STORM_S + job.schedule.workload.duration_ms / 1000
        try:
            ran: Ran = do_one(job, pool, stop, longest_s)
        except FloodmarkError as error:
            if stop():
                break
            tell(str(error))
            found.add("unknown", 0, found.version)
            continue
        tell(f"{job.key}: {ran.sentence}" + f" ({store / ran.kept})" * bool(ran.kept))
        found.add(row.verdict_of(ran), ran.lost, ran.version)
    return found


def write(page: Path, results: Sequence[RowRuns]) -> None:
    """Write the table into a document. Raises StorageError."""
    put_into_file(page, lambda before: lines(before, results), (BEGIN, END))


def lines(document: str, results: Sequence[RowRuns]) -> str:
    """Return the table in Markdown: rows that have `made` all their runs by these, others as the
    document has them."""
    old: dict[tuple[str, ...], tuple[str, ...]] = {}
    with_version = {row.cells for row in table() if "servers" in row.settings}
    for line in document.partition(BEGIN)[2].partition(END)[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(HEADINGS):
            old.setdefault(tuple(cells[:3]), tuple(cells))
            if tuple(cells[:3]) not in with_version:
                old.setdefault((cells[0].partition(" ")[0], *cells[1:3]), tuple(cells))
    done = {runs.name: runs for runs in results if len(runs.lost) == runs.of}
    cells_of = [HEADINGS, ("---",) * len(HEADINGS)]
    for row in table():
        if (runs := done.get(row.name)) is not None:
            cells_of.append(_cells(row, runs))
        else:
            cells_of.append(old.get(row.cells, (*row.cells, _NEVER, "", "")))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in cells_of)


def _cells(row: SystemRow, runs: RowRuns) -> tuple[str, ...]:
    system, *others = row.cells
    lost = "–".join(map(str, sorted({min(runs.lost), max(runs.lost)}))) if any(runs.lost) else ""
    state = {True: "", False: "**does not hold**: ", None: "**open**: "}[runs.holds]
    verdicts = f"{state}{runs.as_expected}/{runs.of} {row.expect}"
    label = system if " " in system else f"{system} {runs.version}".rstrip()
    return label, *others, verdicts, lost, str(datetime.date.today())
