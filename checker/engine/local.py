"""Judges runs in this process, without Spark: for search, shrinking, small runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from checker.checks.findings import Origin
from checker.checks.unknown_values import joined_origins, origins
from checker.engine import plan
from checker.engine.judge import judge_group
from checker.engine.plan import RunToJudge
from checker.evidence.facts import Kind, block
from checker.evidence.group import groups_of
from checker.evidence.rows import Rows, groups_of_rows
from checker.formats.verdict import RunResult
from checker.ingest.counts import joined
from checker.ingest.fault_windows import InjectedFault
from checker.ingest.ingest import IN_MEMORY, ingest, sources, sources_in_memory
from checker.ingest.lines import Files, Problems
from checker.ingest.read_head import read_meta
from checker.output import measures
from checker.output.assemble import Judged
from checker.output.conclude import write_results


class LocalExecutor:
    """Reads the sources of runs one after another and keeps their facts in memory."""

    def __init__(self, runs: Sequence[RunToJudge]) -> None:
        self._runs = runs
        self._facts: list[list[Any]] = [[] for _ in runs]
        self._counts: list[dict[str, list[pa.Table]]] = [{"tallies": [], "acks": []} for _ in runs]

    def judged(self) -> Iterator[tuple[int, Judged]]:
        """Judge all groups of all runs."""
        for number, run in enumerate(self._runs):
            facts = self._read(number, run)
            in_memory = run.files is not None
            for group in groups_of_rows(facts) if in_memory else groups_of(facts):
                yield number, judge_group(group, measured=not in_memory)

    def _read(self, number: int, run: RunToJudge) -> list[Any]:
        facts, counts = self._facts[number], self._counts[number]
        found = sources(0, run.folder) if run.files is None else sources_in_memory(run.files)
        for source in found:
            made = ingest(source, run.written, run.meta)
            facts.extend(made.facts)
            for name, parts in counts.items():
                if name in made.tables:
                    parts.append(made.tables[name])
        return facts

    def origins(self, unknown: Mapping[int, Sequence[int]]) -> dict[int, dict[int, Origin]]:
        """By run and value, the sends that wrote these values."""
        return {
            number: joined_origins(origins(values, part) for part in sends_of(self._facts[number]))
            for number, values in unknown.items()
        }

    def counted(self, injected: Sequence[Sequence[InjectedFault]]) -> dict[int, measures.Measured]:
        """What was counted while the sources were read."""
        return {
            number: measures.measure(
                joined(counts["tallies"], "tallies"), joined(counts["acks"], "acks"), faults
            )
            for number, (counts, faults) in enumerate(zip(self._counts, injected, strict=True))
            if self._runs[number].files is None
        }


def sends_of(facts: Iterable[pa.RecordBatch | Rows]) -> Iterator[pa.RecordBatch]:
    """The facts of sends, as batches."""
    for part in facts:
        if isinstance(part, Rows):
            if part.kind is Kind.SEND:
                yield block(0, part.kind, part.partition, **part.columns)
        elif part.num_rows and part.column("kind")[0].as_py() == Kind.SEND:
            yield part


def check_runs(
    paths: Sequence[Path], *, out: Path | None = None, again: bool = True
) -> list[RunResult]:
    """Judge run folders one after another and keep their results; see `checker.engine.plan.check`.

    OSError if results cannot be written.
    """
    return plan.check(paths, LocalExecutor, out=out, again=again, together=False)


def check_run(path: Path, *, write: bool = False) -> RunResult:
    """Judge one run folder; with `write`, also leave `results.json` and the tables in it.

    Never raises for what the run folder holds; OSError if results cannot be written.
    """
    if (refused := plan.refusal(path)) is not None:
        return refused
    tables = path / "tables" if write else None
    run = RunToJudge(path, read_meta(path, Problems()), written=tables)
    (concluded,) = plan.judge([run], LocalExecutor)
    if write:
        write_results(path, concluded.result)
    return concluded.result


def check_files(files: Files) -> RunResult:
    """Judge a run whose files are in memory, by their names in a run folder: the same readers and
    checks as for a folder. Measures are not taken, but for the number of faults.
    """
    folder = Path(IN_MEMORY)
    run = RunToJudge(folder, read_meta(folder, Problems(), files), files=files)
    (concluded,) = plan.judge([run], LocalExecutor)
    return concluded.result
