"""One run of a storm on real processes, judged without a page: what a search learns from it."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from checker.formats.verdict import RunResult, Verdict
from harness.replay.replay import broken_classes
from harness.runs.interrupts import Interrupts
from harness.runs.judge import run_and_judge
from harness.runs.program import called
from harness.runs.progress import Progress
from harness.runs.run import Run, RunSettings
from harness.runs.run_folder import remove
from harness.search.real.storms import StormSubject
from harness.systems import registry
from nemesis.faults import KINDS
from nemesis.formats.fault_log import FaultLine, took_effect
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError
from node.formats.json_input import JsonReader, Unreadable


class StormJob(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule to be run once on a system; the run folder goes to `store`/`name`."""

    subject: StormSubject
    schedule: Schedule
    store: str
    name: str


class StormOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to. `broken` has the properties that it broke, each with the class of its
    first anomaly; `lost_disks` the nodes that lost what they had not synced, `on_links` whether a
    fault on links took effect. `folder` is the run's if it failed; other folders are removed.
    `problem` is a sentence where there was no run, or no verdict."""

    verdict: str
    sentence: str = ""
    broken: dict[str, str] = {}
    lost_disks: tuple[str, ...] = ()
    on_links: bool = False
    folder: str = ""
    seconds: float = 0.0
    problem: str = ""

    @property
    def failed(self) -> bool:
        """Whether the system broke something."""
        return self.verdict == Verdict.INVALID


_job_reader: Final = JsonReader(StormJob)


def run_storm(job: StormJob) -> StormOutcome:
    """Make one run and judge it in this process. Main thread only."""
    began_s = time.monotonic()
    subject = job.subject
    system = registry.find(subject.system, subject.settings)
    settings = RunSettings(
        name=job.name,
        seed=job.schedule.workload.seed,
        store=Path(job.store),
        command=called(),
        links=system.link_form(subject.links or None),
    )
    with Interrupts() as interrupts, Progress(quiet=True) as progress:
        run = Run(job.schedule, settings, system, progress=progress, interrupts=interrupts)
        folder = run.folder.path
        try:
            result = run_and_judge(run, progress, interrupts)
        except FloodmarkError as error:
            remove(folder)
            return StormOutcome(
                verdict=Verdict.UNKNOWN.value,
                problem=str(error),
                seconds=time.monotonic() - began_s,
            )
    made = outcome_of(folder, result, time.monotonic() - began_s)
    if not made.failed:
        remove(folder)
    return made


def outcome_of(folder: Path, result: RunResult, seconds: float) -> StormOutcome:
    """Return what a judged run folder came to."""
    failed = result.verdict is Verdict.INVALID
    lost, on_links = effects(folder)
    return StormOutcome(
        verdict=result.verdict.value,
        sentence=result.sentence,
        broken=broken_classes(result),
        lost_disks=lost,
        on_links=on_links,
        folder=str(folder) if failed else "",
        seconds=round(seconds, 2),
        problem=result.sentence if result.verdict is Verdict.UNKNOWN else "",
    )


def effects(folder: Path) -> tuple[tuple[str, ...], bool]:
    """The nodes on which a fault took effect that takes what a disk should have, and whether one
    took effect on links."""
    lost: set[str] = set()
    on_links = False
    for lines in _lines_by_fault(folder).values():
        kind = KINDS.get(lines[0].what)
        if kind is None or not took_effect((line.action, line.affected) for line in lines):
            continue
        on_links |= kind.on_links
        if kind.loss:
            lost.update(node for line in lines if line.action == "inject" for node in line.nodes)
    return tuple(sorted(lost)), on_links


def _lines_by_fault(folder: Path) -> dict[int, list[FaultLine]]:
    """What `faults.jsonl` says of each fault; a line that cannot be read says nothing."""
    found: dict[int, list[FaultLine]] = {}
    reader = JsonReader(FaultLine)
    try:
        lines = (folder / "faults.jsonl").read_bytes().splitlines()
    except OSError:
        return {}
    for text in lines:
        with suppress(Unreadable):
            line = reader.decode(text)
            found.setdefault(line.fault, []).append(line)
    return found


def storm_in_process(request: bytes) -> bytes:
    """The same in a process of its own (`harness.runs.job_processes`)."""
    return msgspec.json.encode(run_storm(_job_reader.decode(request)))
