"""`store/runs.html`: the findings and runs of a store with their verdicts, as one page.

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
from harness.formats.run_info import Phases
from node.formats.json_input import Unreadable, read_file
from reports import theme, wording
from reports.nightly_page.index_page import INDEX

LIST: Final = "runs.html"
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
    """One run in the list. `path` is its folder within the store. `page` is "" if no page was
    built; `began` (local time) and `took` are "" if the run does not record them."""

    path: str
    protocol: str
    bugs: tuple[str, ...]
    world: str
    seed: int
    state: str
    verdict: str
    sentence: str
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


class Store:
    """The runs and findings of a store."""

    def __init__(self, path: Path) -> None:
        """Take the store at `path`, which may be empty."""
        self.path = path

    def runs(self) -> list[RunRow]:
        """Return all runs, the latest first; runs in the folders of findings are simulated ones."""
        places = ("*/*/run.json", "findings/*/simulated/run.json")
        folders = [info.parent for place in places for info in self.path.glob(place)]
        # `latest` is a link to one of the others.
        found = [_read(folder, self.path) for folder in folders if not folder.is_symlink()]
        return sorted(found, key=lambda row: (-row.modified_s, row.path))

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


def _read(folder: Path, store: Path) -> RunRow:
    # A name that is no text is shown, but no link can name it.
    path = str(folder.relative_to(store)).encode("utf-8", "replace").decode()
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
        modified_s=max(map(_modified, (folder / "run.json", folder / "results.json"))),
        verdict=result.verdict.value if result else UNJUDGED,
        sentence=result.sentence if result else f"{info.state}, and not judged",
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


def build_list(store: Path) -> Path:
    """Write the page of a store and return its path. Raises ReportError, StorageError."""
    return theme.write(store / LIST, render_list(Store(store)).encode("utf-8", "replace"))


def render_list(store: Store) -> str:
    """Render the findings and the runs, those that failed first, each the latest first."""
    rows = sorted(store.runs(), key=lambda row: row.verdict != Verdict.INVALID)
    return theme.template("nightly_page/store.html.j2").render(
        rows=rows[:MOST_ROWS],
        findings=store.findings(),
        total=len(rows),
        marks={**{verdict.value: mark for verdict, mark in theme.MARKS.items()}, UNJUDGED: "…"},
        index=(store.path / INDEX).is_file(),
        INDEX=INDEX,
        quote=quote,
        name=store.path.absolute().name,
        css=theme.stylesheet("nightly_page/index.css"),
        count=wording.count,
    )
