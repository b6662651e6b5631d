"""A run folder read into values: the checker's tables, and the files beside them.

`read` never fails on a damaged folder: missing or corrupt parts become notes, and the page shows
the rest. Only a folder without any file of a run is refused."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from checker.formats import story as stories
from checker.formats.story import Story, StoryStep
from checker.formats.verdict import Anomaly, RunResult, Verdict
from harness.formats import baseline, finding
from harness.formats.baseline import Baseline
from harness.formats.finding import Explanation
from harness.formats.problem import Exit
from harness.formats.run_info import FIELDS, FORMAT_VERSION, RunInfo, understood
from harness.formats.seal import PROBES
from nemesis.formats.fault_log import FaultLine
from nemesis.formats.schedule import Schedule
from nemesis.formats.schedule import parse as parse_schedule
from node.formats.json_input import read_bytes
from reports import wording
from reports.evidence import curves, faults, leaders, operations, replicas
from reports.evidence.curves import Lag, Unseen
from reports.evidence.faults import Executed
from reports.evidence.files import Notes, json_file, json_lines, shown, tolerantly
from reports.evidence.leaders import ClusterTimeline
from reports.evidence.operations import AckGap, LogWindow, Operations
from reports.evidence.replicas import Cells, Replicas
from reports.evidence.tables import RunTables
from reports.evidence.traces import Traces, of_probes
from reports.theme import ReportError

GRID_COLUMNS: Final = 48
GRID_BEFORE: Final = 6
MOST_GRIDS: Final = 4
MOST_CITED: Final = 5_000
PROGRAM: Final = "floodmark"
_PARTS: Final = (
    "run.json",
    "schedule.json",
    "results.json",
    "history.jsonl",
    "faults.jsonl",
    "trace",
    "logs",
)


@dataclass(frozen=True)
class RawFile:
    """A file of the run folder: its path inside the folder and its size in bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class Plot:
    """A plot as PNG and as SVG, its file name in `plots/`, and a sentence on its content."""

    name: str
    title: str
    png: bytes
    svg: bytes

    @property
    def base64(self) -> str:
        """The PNG in base 64, to be embedded in the page."""
        return base64.b64encode(self.png).decode()


@dataclass(frozen=True)
class Provenance:
    """The finding that a run replays: why it fails, the schedule as drawn and as shrunk."""

    explained: Explanation
    drawn: Schedule | None
    minimal: Schedule | None
    for_real: bool = False


@dataclass(frozen=True)
class RunFolder:
    """The evidence of a run that the page draws, and notes about unreadable files."""

    path: Path
    info: RunInfo
    schedule: Schedule | None
    result: RunResult | None
    operations: Operations
    faults: tuple[Executed, ...]
    exits: tuple[Exit, ...]
    cluster: ClusterTimeline
    replicas: Replicas
    windows: tuple[LogWindow, ...]
    held: Cells
    files: tuple[RawFile, ...]
    notes: Notes = field(compare=False)
    traces: Traces = field(default_factory=Traces, compare=False)
    story: Story | None = None
    provenance: Provenance | None = None
    baseline: Baseline | None = None
    unseen: Unseen = None
    lag: Lag = None
    plots: tuple[Plot, ...] = ()
    zero_us: int = 0
    last_us: int = 0
    program: str = PROGRAM
    lean: bool = False
    """The page leaves out most of what it can, to stay small."""

    @cached_property
    def gaps(self) -> dict[str, AckGap]:
        """The longest time without an acknowledged write, by partition ("": all of them)."""
        return self.operations.gaps(self.info.phases)

    @property
    def verdict(self) -> Verdict:
        """The checker's verdict; unknown if the run was not judged."""
        return self.result.verdict if self.result else Verdict.UNKNOWN

    @property
    def can_have_baseline(self) -> bool:
        """Whether the schedule can also be run under a protocol that is expected to hold. Only for
        our own brokers: their baseline run proves nothing about another system."""
        return self.schedule is not None and self.info.system.simulated

    @property
    def problems(self) -> tuple[str, ...]:
        """The sentences that make the run unknown: the harness's own, then the checker's."""
        own = [problem.in_a_verdict for problem in self.info.problems]
        found = self.result.problems if self.result else ()
        return tuple(dict.fromkeys([*own, *found]))

    @property
    def anomalies(self) -> tuple[Anomaly, ...]:
        """All anomalies in the checker's order: those that broke the run first."""
        return self.result.anomalies if self.result else ()

    @property
    def steps(self) -> tuple[StoryStep, ...]:
        """The steps of the story; empty if there is no story."""
        return self.story.steps if self.story is not None else ()

    @property
    def cause(self) -> StoryStep | None:
        """The step or fault that caused the failure."""
        story = self.story
        known = story is not None and 0 <= story.cause < len(story.steps)
        return story.steps[story.cause] if story is not None and known else None

    @property
    def first_finding(self) -> Anomaly | None:
        """The anomaly that the page is about: the first that broke the run, with a known time."""
        broke = (a for a in self.anomalies if a.verdict is Verdict.INVALID)
        return next((a for a in broke if times(a)), None)

    @property
    def name(self) -> str:
        """The name of the run, `<name>/<time>`, from run.json or from the path of the folder."""
        return self.info.run or f"{self.path.parent.name}/{self.path.name}"

    @property
    def folder(self) -> str:
        """The run folder as its user names it on a command line."""
        if self.info.source:
            return str(self.path)
        if not self.info.replay and self.info.world == "simulated":
            return wording.place_of(self.path.absolute())
        named, here = wording.folder_of(self.info.replay, self.name), self.path.absolute()
        # A folder that was copied, or that names another one, is where it is.
        return named if _are_one(Path(named), here) else wording.place_of(here)

    def seconds(self, t_us: int) -> float:
        """Return the seconds since the storm began."""
        return (t_us - self.zero_us) / 1e6


def times(anomaly: Anomaly) -> list[int]:
    """Return the known times of an anomaly and of its witnesses."""
    return [t for t in (anomaly.t_us, *(w.t_us for w in anomaly.witnesses)) if t >= 0]


def read(run_dir: Path, program: str = PROGRAM) -> RunFolder:
    """Read a run folder; its command lines begin with `program`, quoted for the shell.

    Raises ReportError when `run_dir` holds nothing of a run."""
    if not run_dir.is_dir():
        raise ReportError(f"{run_dir}: no such run folder")
    if not any((run_dir / part).exists() for part in _PARTS):
        raise ReportError(f"{run_dir}: not a run folder (it holds none of {', '.join(_PARTS)})")
    notes = Notes()
    info = _info(run_dir / "run.json", notes)
    if info.format != FORMAT_VERSION:
        notes.add(f"run.json has format {info.format}, this page was made for {FORMAT_VERSION}.")
    result = json_file(run_dir / "results.json", RunResult, notes)
    schedule = _schedule(run_dir / "schedule.json", notes)
    tables = RunTables(run_dir, notes)
    heads = replicas.read(tables, notes)
    found = result.anomalies if result else ()
    windows = _windows(found, info, heads)
    cited = {w.op for a in found for w in a.witnesses if w.op >= 0}
    ops = operations.read(tables, windows, sorted(cited)[:MOST_CITED])
    if not tables.has_history:
        notes.add("history.jsonl is missing.")
    if ops.every > 1:
        notes.add(f"Of the operations one in {ops.every:,} is drawn.")
    exits = tuple(x for _, x in json_lines(run_dir / "exits.jsonl", Exit, notes))
    lines = [x for _, x in json_lines(run_dir / "faults.jsonl", FaultLine, notes)]
    traces = Traces(tables.table("trace"), exits)
    if not tables.files["trace"] and (run_dir / PROBES).exists():
        traces = of_probes(run_dir, exits, notes)
        notes.add("No traces: leaders and in-sync sets are what nodes answered when asked.")
    elif not tables.files["trace"]:
        notes.add("No traces: roles, in-sync sets and high watermarks are not shown.")
    seen = [ops.last_us(), info.phases.end_us, *(x.t_us for x in exits), *(x.t_us for x in lines)]
    traced = leaders.read(traces, max(seen))
    executed = faults.join(
        lines, schedule.faults if schedule else (), traced.starts(), traced.last_us
    )
    unseen, lag = curves.read(tables)
    first = [*ops.invoked_us[:1].tolist(), *(x.t_us for x in lines[:1])]
    first += [up.start_us for up in traced.processes]
    return RunFolder(
        path=run_dir,
        info=info,
        schedule=schedule,
        result=result,
        operations=ops,
        faults=executed,
        exits=exits,
        cluster=traced,
        replicas=heads,
        windows=tuple(windows),
        held=heads.held((w.partition, w.low, w.high) for w in windows),
        files=_files(run_dir),
        notes=notes,
        traces=traces,
        story=json_file(run_dir / stories.FILE, Story, notes),
        provenance=_provenance(run_dir, notes),
        baseline=json_file(run_dir / baseline.FILE, Baseline, notes),
        unseen=unseen,
        lag=lag,
        zero_us=info.phases.storm_us or info.phases.start_us or min(first, default=0),
        last_us=traced.last_us,
        program=program,
    )


def _info(file: Path, notes: Notes) -> RunInfo:
    fields, problems = understood(json_file(file, dict[str, Any], notes, needed=True) or {}, FIELDS)
    for problem in problems:
        notes.add(problem)
    return RunInfo(**fields)


def _provenance(run_dir: Path, notes: Notes) -> Provenance | None:
    """Read `finding/`; None if the run comes from no shrunk finding."""
    folder = run_dir / finding.FOLDER
    explained = json_file(folder / finding.EXPLANATION, Explanation, notes)
    if explained is None:
        return None
    return Provenance(
        explained,
        _schedule(folder / finding.DRAWN, notes),
        _schedule(folder / finding.SCHEDULE, notes),
        (folder / finding.REAL).exists(),
    )


def _schedule(file: Path, notes: Notes) -> Schedule | None:
    """Read the schedule; None, with a note, if it is missing or not one that this version reads."""
    missing = ": the schedule is not shown."
    return tolerantly(
        file, lambda: parse_schedule(read_bytes(file), source=shown(file)), notes, missing
    )


def _windows(found: Sequence[Anomaly], info: RunInfo, heads: Replicas) -> list[LogWindow]:
    """Choose the windows of logs to show as grids: around the anomalies, else at a log's end."""
    made: list[LogWindow] = []
    for anomaly in found:
        offsets = [anomaly.offset, *(w.offset for w in anomaly.witnesses)]
        known = [offset for offset in offsets if offset >= 0]
        if not anomaly.partition or not known or len(made) == MOST_GRIDS:
            continue
        at = anomaly.offset if anomaly.offset >= 0 else min(known)
        if any(f.partition == anomaly.partition and f.low <= at < f.high for f in made):
            continue
        low = max(0, at - GRID_BEFORE)
        high = low + GRID_COLUMNS
        for f in made:  # no offset is shown twice
            if f.partition == anomaly.partition:
                low = max(low, f.high) if f.high <= at else low
                high = min(high, f.low) if at < f.low else high
        made.append(LogWindow(anomaly.partition, low, high))
    if made:
        return made
    named = next((a.partition for a in found if a.partition), "")
    names = {name for name, _ in heads.heads} - {"__cluster_metadata-0"}
    chosen = named or min(names or set(info.partitions), default="")
    if not chosen:
        return []
    end = max((head.leo for head in heads.of(chosen)), default=-1)
    if end <= 0:
        return []
    return [LogWindow(chosen, max(0, end - GRID_COLUMNS // 2), end)]


def _files(run_dir: Path) -> tuple[RawFile, ...]:
    made: list[RawFile] = []
    for pattern in ("*.json*", "*.edn", "trace/*", "logs/*", "output/*", "tables/*.parquet"):
        found = (file for file in sorted(run_dir.glob(pattern)) if file.is_file())
        made += [RawFile(x.relative_to(run_dir).as_posix(), x.stat().st_size) for x in found]
    return tuple(made)


def _are_one(named: Path, here: Path) -> bool:
    """Return whether a path that run.json names leads to a folder."""
    try:
        return named.samefile(here)
    except (OSError, ValueError):
        return False
