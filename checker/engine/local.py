"""Checks one run folder in this process, without Spark: for search, shrinking, small runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from checker.checks.findings import Finding
from checker.checks.unknown_values import Origin, origins, wrote
from checker.engine.judge import drawn_curves, findings, sentences
from checker.engine.result_cache import Place
from checker.evidence.facts import Kind, block
from checker.evidence.group import Group, groups_of
from checker.evidence.rows import Rows, groups_of_rows
from checker.formats.verdict import RunResult
from checker.ingest import run_meta, tables
from checker.ingest.counts import joined
from checker.ingest.fault_windows import injected_faults_of
from checker.ingest.ingest import IN_MEMORY, ingest, sources, sources_in_memory
from checker.ingest.lines import Files, Problems
from checker.output import measures
from checker.output.assemble import Collected, assemble
from checker.output.curves import Curves
from checker.output.results import write_results
from checker.output.run_tables import conclude


def check_runs(
    paths: Sequence[Path], *, out: Path | None = None, again: bool = True
) -> list[RunResult]:
    """Judge run folders one after another and keep their results; see
    `checker.engine.spark_job.check`.

    OSError if results cannot be written.
    """
    made = []
    for place in [Place(path, out) for path in paths]:
        known = place.begin()
        if known is None or again:
            known = _check(place.folder, place.written)
            place.finish(known)
        made.append(known)
    return made


def check_run(path: Path, *, write: bool = False, out: Path | None = None) -> RunResult:
    """Judge one run folder.

    With `write`, also leaves `results.json` and the tables, in the run folder or in `out`. Never
    raises for what the run folder holds; OSError if results cannot be written.
    """
    target = out or path
    result = _check(path, target / "tables" if write else None)
    if write:
        write_results(target, result)
    return result


def _check(path: Path, folder: Path | None) -> RunResult:
    """Judge a run folder; its tables go into `folder`."""
    facts: list[pa.RecordBatch] = []
    counts: dict[str, list[pa.Table]] = {"tallies": [], "acks": []}
    about = run_meta.load(path, Problems())
    if folder is not None:
        tables.clear_counts(folder)
    for source in sources(0, path):
        made = ingest(source, folder, about)
        facts.extend(made.facts)
        for name, parts in counts.items():
            parts.extend(t for n, t in made.tables.items() if n == name)
    run = judge_facts(about, facts, measured=True)
    injected = injected_faults_of(path, about)
    tallies, acks = (joined(counts[name], name) for name in ("tallies", "acks"))
    counted = measures.measure(tallies, acks, injected)
    concluded = conclude(run, _origins(run, facts), counted, injected)
    if folder is not None:
        concluded.write(folder)
    return concluded.result


def check_files(files: Files) -> RunResult:
    """Judge a run whose files are in memory, by their names in a run folder: the same readers and
    checks as for a folder. Measures are not taken, but for the number of faults.
    """
    about = run_meta.load(Path(IN_MEMORY), Problems(), files)
    facts: list[Rows] = []
    for source in sources_in_memory(files):
        facts.extend(ingest(source, None, about).facts)
    run = judge_groups(about, groups_of_rows(facts))
    sent = (block(0, f.kind, f.partition, **f.columns) for f in facts if f.kind is Kind.SEND)
    return assemble(run, _origins(run, sent), {"faults": run.faults})


def judge_facts(
    about: run_meta.RunMeta, facts: Sequence[pa.RecordBatch], *, measured: bool = False
) -> Collected:
    """Judge all groups of one run's facts, in order of partition; `measured` draws curves too."""
    return judge_groups(about, groups_of(facts), measured=measured)


def judge_groups(
    about: run_meta.RunMeta, groups: Iterable[Group], *, measured: bool = False
) -> Collected:
    """Judge the groups of one run."""
    run = Collected(about)
    for group in groups:
        run.findings += [(group.partition, found) for found in findings(group)]
        for what, text in sentences(group):
            _told(run, what, text)
        if measured and (drawn := drawn_curves(group)) is not None:
            run.curves[group.partition] = drawn
    return run


def collect(run: Collected, partition: str, what: str, body: str) -> None:
    """Take one row of `checker.engine.judge.ROWS` into what is known of a run."""
    if what == "finding":
        run.findings.append((partition, msgspec.json.decode(body, type=Finding)))
    elif what == "curves":
        run.curves[partition] = msgspec.json.decode(body, type=Curves)
    else:
        _told(run, what, body)


def _told(run: Collected, what: str, text: str) -> None:
    if what == "problem":
        run.problems.append(text)
    elif what == "faults":
        run.faults = int(text)
    else:
        run.notes.append(text)


def _origins(run: Collected, facts: Iterable[pa.RecordBatch]) -> Mapping[int, Origin]:
    """Where the unknown values of a run were really sent."""
    wanted = run.unknown_values()
    if not wanted:
        return {}
    names = ("partition", "op", "process", "client", "t0", "value", "count")
    found: dict[int, Origin] = {}
    for part in facts:
        if part.column("kind")[0].as_py() == Kind.SEND:
            rows = wrote(wanted, part.column("value").to_numpy(), part.column("count").to_numpy())
            hits = part.select(names).take(pa.array(rows)).to_pydict()
            about = [Origin(*row) for row in zip(*(hits[n] for n in names[:5]), strict=True)]
            found |= origins(wanted, np.array(hits["value"]), np.array(hits["count"]), about)
    return found
