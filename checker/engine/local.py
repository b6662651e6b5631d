"""The plan of a verdict, written once; an `Executor` carries it out.

    sources -> facts -> groups -> findings -> origins of unknown values -> measures -> result

An executor reads the source files of runs, brings the facts about each partition of a run together
as a group, and judges each group with `checker.engine.judge`: in this process, one run after
another (`LocalExecutor`), on processes (`checker.engine.stages`) or on Spark
(`checker.engine.spark_job`). The results are the same, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from checker.checks.findings import Origin
from checker.checks.phantom import joined_origins, origins
from checker.engine.folder_lock import locked
from checker.engine.judge import judge_group
from checker.engine.result_cache import ResultsPlace
from checker.evidence.columns import Rows
from checker.evidence.facts import Sends
from checker.evidence.group import groups_of
from checker.evidence.run_meta import RunMeta
from checker.formats.verdict import RunResult, Verdict
from checker.ingest import tables
from checker.ingest.counts import concat
from checker.ingest.fault_windows import InjectedFault, injected_faults_of
from checker.ingest.ingest import IN_MEMORY, ingest, sources
from checker.ingest.lines import Files, Problems
from checker.ingest.read_run_files import read_meta
from checker.output import measures
from checker.output.assemble import GroupResult, RunFindings, RunOutput, conclude, write_results
from checker.output.measures import Measured
from node.formats.run_folder_entries import foreign_entry


class RunToJudge(NamedTuple):
    """A run to be judged. New tables are written to the folder `written`; the tables of its history
    are read from `tables`. A run in memory has `files` instead of a folder, and no `injected`."""

    folder: Path
    meta: RunMeta
    written: Path | None = None
    tables: Path | None = None
    files: Files | None = None
    injected: Sequence[InjectedFault] = ()


def run_in(folder: Path, written: Path | None = None, tables: Path | None = None) -> RunToJudge:
    """Return the run in a folder, with what run.json and faults.jsonl say."""
    meta = read_meta(folder, Problems())
    return RunToJudge(folder, meta, written, tables, injected=injected_faults_of(folder, meta))


class Executor(Protocol):
    """The steps of the plan that depend on where the work is done. Runs are numbered from 0, in the
    sequence with which the executor was made."""

    def judged(self) -> Iterable[tuple[int, GroupResult]]:
        """Judge all groups; yield the number of the run and the result of each. The groups of a run
        come in order of partition."""

    def origins(self, unknown: Mapping[int, Sequence[int]]) -> Mapping[int, Mapping[int, Origin]]:
        """Return, by run and value, the sends that wrote these values, if any did."""

    def counted(self) -> Mapping[int, Measured]:
        """Return what was counted while sources were read, by run; nothing of runs in memory."""


MakeExecutor = Callable[[Sequence[RunToJudge]], Executor]


def judge(runs: Sequence[RunToJudge], make: MakeExecutor) -> list[RunOutput]:
    """Judge runs with the executor that `make` makes; return results and tables in the order of the
    runs. Raises OSError if tables cannot be written."""
    for run in runs:
        if run.written is not None:
            # An earlier check may have made other parts.
            tables.clear(run.written, ("tallies", "acks"))
    executor = make(runs)
    collected = [RunFindings(run.meta) for run in runs]
    for number, judged in executor.judged():
        collected[number].add(judged)
    unknown = {n: values for n, found in enumerate(collected) if (values := found.unknown_values())}
    origins = executor.origins(unknown) if unknown else {}
    counted = executor.counted()
    concluded = []
    for number, (run, found) in enumerate(zip(runs, collected, strict=True)):
        measured = None if run.files is not None else counted.get(number, Measured())
        made = conclude(found, origins.get(number, {}), measured, run.injected)
        if run.written is not None:
            made.write(run.written)
        concluded.append(made)
    return concluded


def check(
    paths: Sequence[Path],
    make: MakeExecutor,
    *,
    out: Path | None = None,
    again: bool = True,
    together: bool = True,
) -> list[RunResult]:
    """Judge run folders and keep their results; return these in the order of `paths`. Each run gets
    `results.json` and its tables in its own folder, or in a folder of its own under `out`. Unless
    `again`, a run that has not changed since it was judged keeps its result. `together` gives all
    runs to one executor; else each is finished before the next. Other commands wait that judge one
    of these runs, or build its page. Raises OSError if results cannot be written."""
    refused = {path: refusal(path) for path in paths}
    places = [ResultsPlace(path, out) for path in paths if refused[path] is None]
    made: dict[ResultsPlace, RunResult] = {}
    for batch in [places] if together else [[place] for place in places]:
        with locked(place.target or place.folder for place in batch):
            known = {place: place.begin() for place in batch}
            made |= {place: result for place, result in known.items() if result and not again}
            new = [place for place in batch if place not in made]
            runs = [run_in(place.folder, place.written, place.tables) for place in new]
            concluded = judge(runs, make) if runs else []
            for place, run, each in zip(new, runs, concluded, strict=True):
                made[place] = each.result
                place.finish(each, run.meta)
    results = (made[place] for place in places)
    return [refused[path] or next(results) for path in paths]


def refusal(folder: Path) -> RunResult | None:
    """Return an unknown result if the run folder has an entry that is not safe to read, such as a
    link out of it; None if it has none. Nothing is read from or written to such a folder."""
    why = foreign_entry(folder)
    if not why:
        return None
    sentence = (
        f"the run folder is not judged, since {why}: remove that, or copy the folder without it"
    )
    return RunResult(
        run=folder.name,
        verdict=Verdict.UNKNOWN,
        sentence=f"unknown: {sentence}.",
        properties=(),
        anomalies=(),
        measures={},
        problems=(f"{sentence}.",),
    )


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
    """Judge run folders one after another and keep their results, as `checker.engine.local.check`
    does. Raises OSError if results cannot be written."""
    return check(paths, LocalExecutor, out=out, again=again, together=False)


def check_run(path: Path, *, write: bool = False) -> RunResult:
    """Judge one run folder; with `write`, hold it and leave `results.json` and tables in it. Never
    raises for what the run folder contains; raises OSError if results cannot be written."""
    if (refused := refusal(path)) is not None:
        return refused
    run = run_in(path, path / "tables" if write else None)
    with locked([path] if write else []):
        (concluded,) = judge([run], LocalExecutor)
        if write:
            write_results(path, concluded.result)
    return concluded.result


def check_files(files: Files) -> RunResult:
    """Judge a run whose files are in memory, by the names that they have in a run folder, as if
    they were in one. Of the measures, only the number of faults is taken."""
    folder = Path(IN_MEMORY)
    run = RunToJudge(folder, read_meta(folder, Problems(), files), files=files)
    (concluded,) = judge([run], LocalExecutor)
    return concluded.result
