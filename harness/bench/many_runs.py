"""`floodmark bench check --runs`: many small runs judged in one job, beside one after another."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import msgspec

from checker.engine.local import check_runs
from harness.bench.processor_time import ProcessorTime
from harness.bench.synthetic import Size, make_history
from harness.bench.synthetic_files import write_lines
from harness.runs.judge import ManyProcesses, SparkSoon
from harness.runs.progress import Progress
from node.formats.errors import FloodmarkError

OPS = 1_000
KEYS = 3
_MOST_ALONE = 200


class ManyRuns(msgspec.Struct, frozen=True, kw_only=True):
    """How long so many runs took in one job, and how fast the first of them were judged one after
    another in this process. Processor seconds are those of all processes."""

    runs: int
    seconds: float
    cpu_s: float
    runs_s: float
    alone_runs_s: float
    alone_cpu_s: float

    def sentence(self) -> str:
        """The figures for a person."""
        return (
            f"{self.runs:,} runs of {OPS:,} operations in one job: {self.seconds:.1f} s, "
            f"{self.runs_s:,.0f} runs/s, {self.cpu_s / self.runs * 1000:.1f} processor ms a run; "
            f"one after another {self.alone_runs_s:,.0f} runs/s, {self.alone_cpu_s * 1000:.1f} ms"
        )


def judge_many(
    runs: int, folder: Path | None, session: SparkSoon | ManyProcesses, progress: Progress
) -> ManyRuns:
    """Make and judge so many runs. Raises FloodmarkError if one is judged otherwise in the job."""
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-", dir=folder) as name:
        progress.phase(f"making {runs:,} runs")
        folders = _made(runs, Path(name))
        progress.phase("judging some of them one after another")
        few = folders[:_MOST_ALONE]
        with ProcessorTime() as alone:
            began = time.monotonic()
            expected = check_runs(few)
            alone_s = time.monotonic() - began
        progress.phase(f"judging {runs:,} runs in one job")
        with ProcessorTime() as together:
            began = time.monotonic()
            results = session.check(folders)
            seconds = time.monotonic() - began
    if results[: len(few)] != expected:
        raise FloodmarkError("a run was judged otherwise in one job with others")
    return ManyRuns(
        runs=runs,
        seconds=round(seconds, 2),
        cpu_s=round(together.seconds, 2),
        runs_s=round(runs / seconds, 1),
        alone_runs_s=round(len(few) / alone_s, 1),
        alone_cpu_s=round(alone.seconds / len(few), 4),
    )


def _made(runs: int, place: Path) -> list[Path]:
    """Run folders with the lines of one small history."""
    make_history(Size(ops=OPS, keys=KEYS), place / "tables")
    write_lines(place / "tables", place / "lines")
    made = []
    for number in range(runs):
        folder = place / f"run-{number:06}"
        folder.mkdir()
        for file in (place / "lines").iterdir():
            os.link(file, folder / file.name)
        made.append(folder)
    return made
