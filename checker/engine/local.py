"""Judging of runs one after another in this process, without Spark: for searches and small runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from checker.checks.findings import Origin
from checker.checks.phantom import joined_origins, origins
from checker.engine import plan
from checker.engine.folder_lock import locked
from checker.engine.judge import judge_group
from checker.engine.plan import RunToJudge
from checker.evidence.columns import Rows
from checker.evidence.facts import Sends
from checker.evidence.group import groups_of
from checker.formats.verdict import RunResult
from checker.ingest.counts import concat
from checker.ingest.ingest import IN_MEMORY, ingest, sources
from checker.ingest.lines import Files, Problems
from checker.ingest.read_run_files import read_meta
from checker.output import measures
from checker.output.assemble import GroupResult, write_results


class LocalExecutor:
    """An executor in this process: it reads one source after another, and keeps all facts."""

    def __init__(self, runs: Sequence[RunToJudge]) -> None:
        self._runs = runs
        self._facts: list[list[Rows]] = [[] for _ in runs]
        self._counts: list[dict[str, list[pa.Table]]] = [{"tallies": [], "acks": []} for _ in runs]

    def judged(self) -> Iterator[tuple[int, GroupResult]]:
        for number, run in enumerate(self._runs):
            facts = self._read(number, run)
            in_memory = run.files is not None
            for group in groups_of(facts):
                yield number, judge_group(group, measured=not in_memory)

    def _read(self, number: int, run: RunToJudge) -> list[Rows]:
        facts, counts = self._facts[number], self._counts[number]
        for source in sources(0, run.folder, run.files):
            made = ingest(source, run.written, run.meta, run.injected)
            facts.extend(made.facts)
            for name, parts in counts.items():
                if name in made.tables:
                    parts.append(made.tables[name])
        return facts

    def origins(self, unknown: Mapping[int, Sequence[int]]) -> dict[int, dict[int, Origin]]:
        """Return, by run and value, the sends that wrote these values."""
        return {
            number: joined_origins(
                origins(values, part) for part in self._facts[number] if part.kind is Sends
            )
            for number, values in unknown.items()
        }

    def counted(self) -> dict[int, measures.Measured]:
        """Return what was counted while sources were read, by run; nothing of runs in memory."""
        return {
            number: measures.measure(
                concat(counts["tallies"], "tallies"), concat(counts["acks"], "acks"), run.injected
            )
            for number, (counts, run) in enumerate(zip(self._counts, self._runs, strict=True))
            if run.files is None
        }


def check_runs(
    paths: Sequence[Path], *, out: Path | None = None, again: bool = True
) -> list[RunResult]:
    """Judge run folders one after another and keep their results, as `checker.engine.plan.check`
    does. Raises OSError if results cannot be written."""
    return plan.check(paths, LocalExecutor, out=out, again=again, together=False)


def check_run(path: Path, *, write: bool = False) -> RunResult:
    """Judge one run folder; with `write`, hold it and leave `results.json` and tables in it. Never
    raises for what the run folder contains; raises OSError if results cannot be written."""
    if (refused := plan.refusal(path)) is not None:
        return refused
    run = plan.run_in(path, path / "tables" if write else None)
    with locked([path] if write else []):
        (concluded,) = plan.judge([run], LocalExecutor)
        if write:
            write_results(path, concluded.result)
    return concluded.result


def check_files(files: Files) -> RunResult:
    """Judge a run whose files are in memory, by the names that they have in a run folder, as if
    they were in one. Of the measures, only the number of faults is taken."""
    folder = Path(IN_MEMORY)
    run = RunToJudge(folder, read_meta(folder, Problems(), files), files=files)
    (concluded,) = plan.judge([run], LocalExecutor)
    return concluded.result
