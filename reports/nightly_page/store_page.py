"""The list of a store's runs with their verdicts, the first page of `floodmark serve`.

A run folder that cannot be read is listed as such: nothing in a store is hidden."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from checker.formats.verdict import RunResult, Verdict
from harness.formats.finding import RECORD, SIMULATED, STORE_FOLDER, Finding, FoundOn
from harness.formats.nightly_run import nightly_runs
from harness.formats.run_info import Phases
from node.formats.json_input import Unreadable, read_file
from reports import theme, wording
from reports.nightly_page.index_model import BucketTrend, buckets
from reports.nightly_page.index_page import INDEX

UNJUDGED: Final = "not judged"
MOST_ROWS: Final = 500
T = TypeVar("T")


class _Info(msgspec.Struct):
    """The fields of `run.json` that the list needs."""

    protocol: str = "?"
    bugs: tuple[str, ...] = ()
    world: str = "?"
    seed: int = 0
    state: str = "?"
    epoch_us: int = 0
    phases: Phases = msgspec.field(default_factory=Phases)
    host: dict[str, object] = {}

    def __post_init__(self) -> None:
        # A run ends with its process, whatever it wrote last.
        if self.state == "running" and not Path(f"/proc/{self.host.get('process')}").exists():
            self.state = "interrupted"

    @property
    def began(self) -> str:
        """The local time at which the run began; "" of a run in the simulated world."""
        if not self.epoch_us:
            return ""
        return datetime.fromtimestamp(self.epoch_us / 1e6).strftime("%Y-%m-%d %H:%M")

    @property
    def took(self) -> str:
        """The time from the start of the cluster to its end; "" where one of them is missing."""
        took_us = self.phases.end_us - self.phases.start_us
        return wording.span(took_us) if self.phases.start_us and took_us > 0 else ""


@dataclass(frozen=True)
class RunRow:
    """One run in the list. `path` is its folder within the store; `classes` are the `property:
    anomaly` pairs that broke. `page` is "" if no page was built; `began` (local time) and `took`
    are "" if the run does not record them."""

    path: str
    protocol: str
    bugs: tuple[str, ...]
    world: str
    seed: int
    state: str
    verdict: str
    sentence: str
    classes: tuple[str, ...]
    page: str
    began: str
    took: str
    modified_s: float


@dataclass(frozen=True)
class FindingRow:
    """One saved finding in the list. `path` is its folder within the store, `faults` are those of
    its smallest schedule; `failed` counts runs of real processes, `page` is "" without a page."""

    path: str
    bucket: str
    subject: str
    sentence: str
    faults: tuple[str, ...]
    failed: str
    page: str


@dataclass(frozen=True)
class Wanted:
    """A filter of the list: "" matches everything. `bucket` is the key of a bucket, or `property:
    anomaly`; `text` is looked for in path and sentence."""

    verdict: str = ""
    protocol: str = ""
    bucket: str = ""
    text: str = ""


class Store:
    """The runs of a store for its web page; a run is read again only when its files changed."""

    def __init__(self, path: Path) -> None:
        """Read the store at `path`, which may be empty, or not exist yet."""
        self.path = path
        self._known: dict[str, tuple[tuple[float, float], RunRow]] = {}

    def runs(self) -> list[RunRow]:
        """Return all runs, the latest first; runs in the folders of findings are simulated ones."""
        places = ("*/*/run.json", "findings/*/simulated/run.json")
        folders = [info.parent for place in places for info in self.path.glob(place)]
        # `latest` is a link to one of the others.
        found = [self._run(folder) for folder in folders if not folder.is_symlink()]
        return sorted(found, key=lambda row: (-row.modified_s, row.path))

    def buckets(self) -> list[BucketTrend]:
        """Return the buckets of all nightly runs."""
        return buckets(nightly_runs(self.path)[0])

    def findings(self) -> list[FindingRow]:
        """Return the saved findings that can be read, at most `MOST_ROWS`, the latest first."""
        files = self.path.glob(f"{STORE_FOLDER}/*/{RECORD}")
        latest = sorted(files, key=lambda file: (-_modified(file), file))[:MOST_ROWS]
        read = ((file.parent, _decoded(file, Finding)) for file in latest)
        return [self._finding(folder, found) for folder, found in read if found is not None]

    def _finding(self, folder: Path, found: Finding) -> FindingRow:
        settings = (f"{name}={value}" for name, value in found.settings.items())
        on = _decoded(folder / RECORD, FoundOn) or FoundOn()
        page = (on.folder_of_run(folder) or folder / SIMULATED).resolve() / "report.html"
        is_here = page.is_relative_to(self.path.resolve()) and page.is_file()
        return FindingRow(
            path=str(folder.relative_to(self.path)).encode("utf-8", "replace").decode(),
            bucket=found.bucket,
            subject=" ".join(filter(None, (found.subject, found.version, *settings))),
            sentence=found.sentence,
            faults=found.faults,
            failed="" if found.world == "simulated" else str(found.counts),
            page=str(page.relative_to(self.path.resolve())) if is_here else "",
        )

    def listed(self, wanted: Wanted) -> list[RunRow]:
        """Return the runs that pass the filter, the latest first."""
        runs = self.runs()
        bucket = next((s for s in self.buckets() if s.shown.key == wanted.bucket), None)
        return [row for row in runs if _fits(row, wanted, bucket)]

    def _run(self, folder: Path) -> RunRow:
        path = str(folder.relative_to(self.path))
        stamp = _modified(folder / "run.json"), _modified(folder / "results.json")
        known = self._known.get(path)
        if known is None or known[0] != stamp or known[1].state == "running":
            # A name that is no text is shown, but no link can name it.
            shown = path.encode("utf-8", "replace").decode()
            known = stamp, _read(folder, shown, max(stamp))
            self._known[path] = known
        return known[1]


def _fits(row: RunRow, wanted: Wanted, bucket: BucketTrend | None) -> bool:
    if wanted.verdict and row.verdict != wanted.verdict:
        return False
    if wanted.protocol and row.protocol != wanted.protocol:
        return False
    if wanted.text and wanted.text.lower() not in f"{row.path} {row.sentence}".lower():
        return False
    if not wanted.bucket:
        return True
    if bucket is None:
        return wanted.bucket in row.classes
    folder = bucket.shown.schedule.rpartition("/")[0]
    if row.path in (folder, f"{folder}/simulated"):
        return True
    under = "+".join((row.protocol, *row.bugs))
    about = bucket.shown
    return (under, row.world) == (about.protocol, about.world) and about.name in row.classes


def _read(folder: Path, path: str, modified_s: float) -> RunRow:
    info = _decoded(folder / "run.json", _Info) or _Info()
    result = _decoded(folder / "results.json", RunResult)
    page = f"{path}/report.html" if (folder / "report.html").is_file() else ""
    return RunRow(
        path=path,
        protocol=info.protocol,
        bugs=info.bugs,
        world=info.world,
        seed=info.seed,
        state=info.state,
        page=page,
        began=info.began,
        took=info.took,
        modified_s=modified_s,
        verdict=result.verdict.value if result else UNJUDGED,
        sentence=result.sentence if result else f"{info.state}, and not judged",
        classes=tuple(f"{name}: {first}" for name, first in result.broken.items())
        if result
        else (),
    )


def _decoded(file: Path, kind: type[T]) -> T | None:
    try:
        return read_file(file, kind)
    except (OSError, Unreadable):
        return None


def _modified(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def render_list(store: Store, wanted: Wanted) -> str:
    """Render the runs that pass the filter `wanted`, the latest first, and a form to change it."""
    rows = store.listed(wanted)
    everything = store.runs()
    return theme.template("nightly_page/store.html.j2").render(
        rows=rows[:MOST_ROWS],
        findings=store.findings(),
        more=max(0, len(rows) - MOST_ROWS),
        found=len(rows),
        total=len(everything),
        wanted=wanted,
        verdicts=[*map(str, Verdict), UNJUDGED],
        protocols=sorted({row.protocol for row in everything}),
        buckets=store.buckets(),
        marks={**{verdict.value: mark for verdict, mark in theme.MARKS.items()}, UNJUDGED: "…"},
        index=(store.path / INDEX).is_file(),
        INDEX=INDEX,
        quote=quote,
        name=store.path.absolute().name,
        css=theme.stylesheet("nightly_page/index.css"),
        count=wording.count,
    )
