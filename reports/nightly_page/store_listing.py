"""What lies in a store, for a list: runs with their verdicts, and the buckets of all nights.

A run folder that cannot be read is listed as such: nothing in a store is hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from checker.formats.verdict import RunResult, Verdict
from harness.formats.nightly_run import nights
from reports.nightly_page.index_model import BucketStory, buckets

UNJUDGED = "not judged"
T = TypeVar("T")


class _Info(msgspec.Struct):
    """What the list needs of `run.json`."""

    protocol: str = "?"
    bugs: tuple[str, ...] = ()
    world: str = "?"
    seed: int = 0
    state: str = "?"
    epoch_us: int = 0


@dataclass(frozen=True)
class RunRow:
    """One run. `path` is its folder within the store; `classes` are the `property: anomaly` that
    broke; `page` is "" where none was built."""

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
    modified_s: float


@dataclass(frozen=True)
class Wanted:
    """What to list: "" does not matter. `bucket` is a key, or a `property: anomaly`; `text` is
    looked for in path and sentence."""

    verdict: str = ""
    protocol: str = ""
    bucket: str = ""
    text: str = ""


class Store:
    """A store being browsed; a run is read again only when its files changed."""

    def __init__(self, path: Path) -> None:
        """`path` may be empty, or not there yet."""
        self.path = path
        self._known: dict[str, tuple[tuple[float, float], RunRow]] = {}

    def runs(self) -> list[RunRow]:
        """All runs, the latest first; those of findings are simulated."""
        places = ("*/*/run.json", "findings/*/simulated/run.json")
        folders = [info.parent for place in places for info in self.path.glob(place)]
        # `latest` is a link to one of the others.
        found = [self._run(folder) for folder in folders if not folder.is_symlink()]
        return sorted(found, key=lambda row: (-row.modified_s, row.path))

    def stories(self) -> list[BucketStory]:
        """The buckets of all nights."""
        return buckets(nights(self.path)[0])

    def listed(self, wanted: Wanted) -> list[RunRow]:
        """The runs that are wanted."""
        runs = self.runs()
        story = next((s for s in self.stories() if s.shown.key == wanted.bucket), None)
        return [row for row in runs if _fits(row, wanted, story)]

    def _run(self, folder: Path) -> RunRow:
        path = str(folder.relative_to(self.path))
        stamp = _modified(folder / "run.json"), _modified(folder / "results.json")
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            known = stamp, _read(folder, path, max(stamp))
            self._known[path] = known
        return known[1]


def _fits(row: RunRow, wanted: Wanted, story: BucketStory | None) -> bool:
    if wanted.verdict and row.verdict != wanted.verdict:
        return False
    if wanted.protocol and row.protocol != wanted.protocol:
        return False
    if wanted.text and wanted.text.lower() not in f"{row.path} {row.sentence}".lower():
        return False
    if not wanted.bucket:
        return True
    if story is None:
        return wanted.bucket in row.classes
    folder = story.shown.schedule.rpartition("/")[0]
    if row.path in (folder, f"{folder}/simulated"):
        return True
    under = "+".join((row.protocol, *row.bugs))
    about = story.shown
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
        modified_s=modified_s,
        verdict=result.verdict.value if result else UNJUDGED,
        sentence=result.sentence if result else f"{info.state}, and not judged",
        classes=tuple(_classes(result)) if result else (),
    )


def _classes(result: RunResult) -> Iterator[str]:
    broken: Sequence[str] = [p.property for p in result.properties if p.verdict is Verdict.INVALID]
    for name in broken:
        first = (
            a.name for a in result.anomalies if a.property == name and a.verdict is Verdict.INVALID
        )
        yield f"{name}: {next(first, '?')}"


def _decoded(file: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _modified(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
