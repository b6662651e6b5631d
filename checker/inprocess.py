"""Checks one run folder in this process, without Spark: for search, shrinking, small runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checker import measures, meta, tables
from checker.assemble import Collected, assemble
from checker.facts import SCHEMA, Kind
from checker.findings import Finding
from checker.group import Columns, Group
from checker.ingest import ingest, sources
from checker.judge import findings, sentences
from checker.lines import Problems
from checker.results import write_results
from checker.strangers import Home, homes
from checker.verdict import RunResult


def check_run(path: Path, *, write: bool = False, out: Path | None = None) -> RunResult:
    """Judge one run folder.

    With `write`, also leaves `results.json` and the tables, in the run folder or in `out`. Never
    raises for what the run folder holds; OSError if results cannot be written.
    """
    target = out or path
    folder = target / "tables" if write else None
    facts: list[pa.RecordBatch] = []
    ops = tables.OPS.empty_table()
    about = meta.load(path, Problems())
    for source in sources(0, path):
        made = ingest(source, folder, about)
        facts.extend(made.facts)
        ops = made.tables.get("ops", ops)
    table = pa.Table.from_batches(facts, schema=SCHEMA)
    run = judge_facts(about, table)
    seconds = measures.per_second(ops)
    summary = measures.summary(run.meta, seconds, measures.totals(ops), run.faults)
    result = assemble(run, _homes(run, table), summary)
    if folder is not None:
        rows = ((run.meta.run, *second) for second in seconds)
        tables.write(folder, "per_second", "", tables.from_rows("per_second", rows))
        write_results(target, result)
    return result


def judge_facts(about: meta.RunMeta, table: pa.Table) -> Collected:
    """Judge all groups of one run's facts, in order of partition."""
    run = Collected(about)
    columns = Columns(table)
    codes = table.column("partition").combine_chunks().dictionary_encode()
    names = codes.dictionary.to_pylist()
    of = codes.indices.to_numpy()
    for partition in sorted(names):
        group = Group(partition, columns, np.flatnonzero(of == names.index(partition)))
        run.findings += [(partition, found) for found in findings(group)]
        for what, text in sentences(group):
            _told(run, what, text)
    return run


def collect(run: Collected, partition: str, what: str, body: str) -> None:
    """Take one row of `checker.judge.ROWS` into what is known of a run."""
    if what == "finding":
        run.findings.append((partition, msgspec.json.decode(body, type=Finding)))
    else:
        _told(run, what, body)


def _told(run: Collected, what: str, text: str) -> None:
    if what == "problem":
        run.problems.append(text)
    elif what == "faults":
        run.faults = int(text)
    else:
        run.notes.append(text)


def _homes(run: Collected, table: pa.Table) -> Mapping[int, Home]:
    """Where the unclaimed values of a run were really sent."""
    wanted = run.unclaimed()
    if not wanted:
        return {}
    sends = table.filter(pc.equal(table.column("kind"), int(Kind.SEND)))
    about = [Home(*row) for row in _rows(sends, ("partition", "op", "process", "client", "t0"))]
    start = sends.column("value").to_numpy()
    return homes(wanted, start, sends.column("count").to_numpy(), about)


def _rows(table: pa.Table, names: tuple[str, ...]) -> Any:
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)
