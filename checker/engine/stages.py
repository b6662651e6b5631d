"""Judging of runs in two stages on many workers.

    sources of all runs -> facts, cut by (run, partition), in files -> judged groups -> verdicts

Each worker of the first stage reads some source files and writes their facts to a file of its own;
it returns only where they are. Then this process knows the facts and the size of each group. A
worker of the second stage maps the facts of one group into memory and judges it, the largest group
first. Before that, the same workers turn large histories of lines into tables.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from checker.checks.findings import Origin
from checker.checks.phantom import joined_origins, origins
from checker.engine import local
from checker.engine.judge import judge_group
from checker.engine.local import RunToJudge, check_runs
from checker.engine.read_downsampling import LEAST_ROWS, downsampled, splittable
from checker.engine.workers import ProcessWorkers, Workers
from checker.evidence.arrow_blob import (
    ArrowBlob,
    BlobFile,
    PackedBlob,
    arrow_blobs,
    packed,
    unpacked,
)
from checker.evidence.columns import Rows
from checker.evidence.facts import Polls
from checker.evidence.group import group_of
from checker.formats.errors import CheckerError
from checker.formats.verdict import RunResult
from checker.ingest import tables
from checker.ingest.fault_windows import InjectedFault
from checker.ingest.ingest import ingest, sources, work_bytes
from checker.ingest.ranges import LargeHistory, into_tables
from checker.ingest.read_tables import DAMAGED, files_of, open_table, sends_in, table_sources
from checker.ingest.source import Source
from checker.output.assemble import GroupResult
from checker.output.measures import Measured, measure
from node.formats.host_errors import refused
from node.formats.owned_folder import OwnedFolder

SMALL_BYTES: Final = 16 << 20
"""The most bytes of evidence of a run that one worker judges alone."""
LARGE_HISTORY_BYTES: Final = 64 << 20
TASK_BYTES: Final = 64 << 20
TASKS_PER_WORKER: Final = 2
_RUNS_A_TASK: Final = 16
_FEW_BYTES: Final = 4 << 20

Key = tuple[int, str]


def check(
    paths: Sequence[Path],
    workers: Workers,
    *,
    out: Path | None = None,
    again: bool = True,
    small_bytes: int | None = None,
) -> list[RunResult]:
    """Judge run folders as `checker.engine.local.check` does. A small run, of at most `small_bytes`
    of evidence, is judged by one worker; large ones by all. Raises OSError if results cannot be
    written, CheckerError if workers fail."""
    bound = SMALL_BYTES if small_bytes is None else small_bytes
    large = [path for path in paths if work_bytes([path]) > bound]
    small = [path for path in paths if path not in large]
    batches = [small[at : at + _RUNS_A_TASK] for at in range(0, len(small), _RUNS_A_TASK)]
    found: dict[Path, RunResult] = {}
    for results in workers.map(partial(_check_small, out, again), batches):
        found |= results
    if large:
        results = local.check(large, partial(StagedExecutor, workers), out=out, again=again)
        found |= zip(large, results, strict=True)
    return [found[path] for path in paths]


def check_on_processes(
    paths: Sequence[Path],
    *,
    out: Path | None = None,
    again: bool = True,
    small_bytes: int | None = None,
) -> list[RunResult]:
    """Judge run folders as `check` does, on processes of this machine; call it in the main thread.
    Raises CheckerError if a process failed or results cannot be written."""
    try:
        with ProcessWorkers() as workers:
            return check(paths, workers, out=out, again=again, small_bytes=small_bytes)
    except OSError as error:
        raise CheckerError(f"Results cannot be written: {refused(error)}.") from error


def _check_small(out: Path | None, again: bool, paths: Sequence[Path]) -> dict[Path, RunResult]:
    """Judge small runs one after another; return each result by the folder of its run."""
    return dict(zip(paths, check_runs(paths, out=out, again=again), strict=True))


class StagedExecutor:
    """An executor that spreads first source files and then groups over workers."""

    def __init__(self, workers: Workers, runs: Sequence[RunToJudge]) -> None:
        self._workers = workers
        self._runs = runs
        self._shared: Path | None = None

    def judged(self) -> Iterator[tuple[int, GroupResult]]:
        """Judge all groups; yield each result with its run's number, by run and partition."""
        with ExitStack() as stack:
            if self._workers.share_files:
                self._shared = stack.enter_context(OwnedFolder())
            yield from self._judged()

    def _judged(self) -> Iterator[tuple[int, GroupResult]]:
        workers = self._workers
        in_parts = {
            history.source.run: history.folder
            for history in self._large_histories()
            if into_tables(history, workers.map, workers.number)
        }
        work = [
            source
            for number, run in enumerate(self._runs)
            for source in _sources(number, run, in_parts.get(number))
        ]
        made = self._groups(work, None)
        if whole := {key for key, judged in made.items() if judged is None}:
            again = {run for run, _ in whole}
            made |= self._groups([source for source in work if source.run in again], whole)
        for run, partition in sorted(made):
            judged = made[run, partition]
            assert judged is not None, "what is judged by all of its reads is judged"
            yield run, judged

    def _large_histories(self) -> list[LargeHistory]:
        return [
            LargeHistory(source, run.meta, run.written)
            for number, run in enumerate(self._runs)
            if run.written is not None
            for source in sources(number, run.folder)
            if source.kind == "history" and source.size > LARGE_HISTORY_BYTES
        ]

    def _groups(
        self, work: Sequence[Source], only: Set[Key] | None
    ) -> dict[Key, GroupResult | None]:
        """Return the judged groups of these sources; None for each that must be judged again by all
        of its reads, as the groups in `only` are."""
        read = ReadSources(self._runs, self._shared, only)
        return dict(self._workers.judged(read, bins(work, self._workers.number), judge_blobs))

    def origins(self, unknown: Mapping[int, Sequence[int]]) -> dict[int, dict[int, Origin]]:
        """Return, by run and value, the sends that wrote these values, from the runs' tables."""
        work = [
            (source, unknown[number])
            for number in unknown
            if (where := self._runs[number].tables) is not None
            for source in table_sources(number, self._runs[number].folder, where)
            if source.kind == "sends"
        ]
        found: dict[int, list[dict[int, Origin]]] = {}
        for number, parts in self._workers.map(_origins_in, work):
            found.setdefault(number, []).extend(parts)
        return {number: joined_origins(parts) for number, parts in found.items()}

    def counted(self) -> dict[int, Measured]:
        """Return what was counted, by run; each run is a task, unless there is little to add up."""
        work = [
            (number, run.written, run.injected)
            for number, run in enumerate(self._runs)
            if run.written and (run.written / "tallies.parquet").exists()
        ]
        size = sum(
            file.stat().st_size
            for _, folder, _ in work
            for name in ("tallies", "acks")
            for file in folder.glob(f"{name}.parquet/*")
        )
        return dict(map(_count, work) if size <= _FEW_BYTES else self._workers.map(_count, work))


@dataclass(frozen=True)
class ReadSources:
    """The work of one worker on source files of `runs`: it reads them and writes their facts to a
    file in `shared`. `only`: the groups whose facts are wanted, with all of their reads; None for
    all groups, with downsampled reads unless the run promises how old an answer is at most."""

    runs: Sequence[RunToJudge]
    shared: Path | None
    only: Set[Key] | None

    def __call__(self, work: Sequence[Source]) -> list[PackedBlob]:
        """Read some sources; return their facts, large ones as a place in a file."""
        found: list[PackedBlob] = []
        with BlobFile(self.shared) if self.shared else nullcontext() as file:
            for source in work:
                run = self.runs[source.run]
                facts = ingest(source, run.written, run.meta, run.injected).facts
                order = f"{source.kind} {source.path} {source.groups[0]:09}"
                whole = self.only is not None or run.meta.promise.staleness_ms >= 0
                found += packed(self._wanted(facts, whole), file, order)
        return found

    def _wanted(self, facts: Iterable[Rows], whole: bool) -> Iterator[ArrowBlob]:
        for part in facts:
            if not whole and part.kind is Polls and part.count >= LEAST_ROWS:
                yield from arrow_blobs(downsampled(part))
                continue
            for blob in arrow_blobs([part]):
                if self.only is None or (blob.run, blob.partition) in self.only:
                    yield blob


def judge_blobs(blobs: Sequence[PackedBlob]) -> tuple[Key, GroupResult | None]:
    """Judge the group that these blobs hold; return its run and partition, and the result: None if
    downsampling left out polls that judging it needs."""
    first, *_ = blobs = sorted(blobs, key=lambda blob: blob.order)
    group = group_of(first.partition, unpacked(blobs))
    return first.key, judge_group(group, measured=True) if splittable(group) else None


def _origins_in(work: tuple[Source, Sequence[int]]) -> tuple[int, list[dict[int, Origin]]]:
    source, wanted = work
    found = []
    with suppress(*DAMAGED):  # The first stage has said so.
        found += [origins(wanted, part) for part in sends_in(source)]
    return source.run, found


def _count(work: tuple[int, Path, Sequence[InjectedFault]]) -> tuple[int, Measured]:
    number, folder, injected = work
    acks = folder / "acks.parquet"
    known = _whole(acks) if acks.exists() else tables.SCHEMAS["acks"].empty_table()
    return number, measure(_whole(folder / "tallies.parquet"), known, injected)


def _whole(target: Path) -> pa.Table:
    """Return a table that the workers wrote, perhaps in parts."""
    found = []
    for part in files_of(target):
        with open_table(part) as file:
            found.append(file.read())
    return pa.concat_tables(found)


def _sources(number: int, run: RunToJudge, made: Path | None) -> list[Source]:
    """Return the sources of a run; its history from the tables that were `made` of it."""
    found = sources(number, run.folder)
    if made is None:
        return found
    others = [source for source in found if source.kind != "history"]
    return [*others, *table_sources(number, run.folder, made)]


def bins(work: Sequence[Source], workers: int) -> list[list[Source]]:
    """Spread source files over tasks: the largest first, each to the task with the fewest bytes."""
    sizes = {source: source.size for source in work}
    tasks = max(workers * TASKS_PER_WORKER, sum(sizes.values()) // TASK_BYTES)
    made: list[list[Source]] = [[] for _ in range(min(tasks, len(work)))]
    loads = [(0, number) for number in range(len(made))]
    for source in sorted(work, key=lambda s: (-sizes[s], s.run, str(s.path), s.groups)):
        load, emptiest = loads[0]
        made[emptiest].append(source)
        # Opening a file costs about as much as reading some kilobytes of it.
        heapq.heapreplace(loads, (load + sizes[source] + 4096, emptiest))
    return made
