"""From a run folder to tables and facts, one source file at a time.

Each file of a run is a `Source`, which any process can read by itself, in any order: several
processes or Spark's tasks share them, or one process reads them one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from checker.evidence.columns import Rows, rows
from checker.evidence.facts import RunFacts
from checker.evidence.run_meta import RunMeta
from checker.ingest import tables
from checker.ingest.check_seal import check_run, check_source
from checker.ingest.fault_windows import InjectedFault
from checker.ingest.lines import Files, Problems
from checker.ingest.read_jepsen import read_history
from checker.ingest.read_log import read_log
from checker.ingest.read_run_files import read_meta, read_run_files
from checker.ingest.read_tables import HISTORY_TABLES, read_row_groups, report_busy, table_sources
from checker.ingest.read_trace import read_trace
from checker.ingest.source import HISTORIES, Ingested, Source, history_name, is_file
from node.formats.host_errors import reason
from node.formats.trace import METADATA_PARTITION

IN_MEMORY: Final = "in-memory"
"""The name of a run in memory, unless its run.json gives another."""
_READERS: Final[dict[str, Callable[[Source, Ingested], None]]] = {
    "head": read_run_files,
    "history": read_history,
    "trace": read_trace,
    "log": read_log,
    **dict.fromkeys(HISTORY_TABLES, read_row_groups),
}
_DECLARED: Final = {"trace": "trace", "log": "logs"}
"""The capability that a system declares, by the kind of file that it leaves behind."""


def only_tables(folder: Path) -> bool:
    """Return whether the history of a run is kept as tables only, without its lines."""
    return not is_file(folder / history_name(folder)) and (folder / "tables/ops.parquet").exists()


def sources(run: int, folder: Path, files: Files | None = None) -> list[Source]:
    """Return the source files of a run, in its folder or, by name, in `files`. The first, the
    "head", stands for run.json and the other small files."""
    head = Source(run, folder, "head", folder / "run.json", files=files)
    found = [head]
    if history := next((name for name in HISTORIES if head.has(name)), None):
        form = HISTORIES[history]
        found.append(Source(run, folder, "history", folder / history, files=files, form=form))
    elif files is None:
        found.extend(table_sources(run, folder, folder / "tables"))
    for kind, where in (("trace", "trace"), ("log", "logs")):
        names = head.names_in(where)
        found.extend(Source(run, folder, kind, folder / where / n, files=files) for n in names)
    return found


def work_bytes(folders: Sequence[Path]) -> int:
    """Return about how many bytes there are to read in these run folders."""
    return sum(source.size for folder in folders for source in sources(0, folder))


def ingest(
    source: Source,
    tables_folder: Path | None,
    known: RunMeta | None = None,
    injected: Sequence[InjectedFault] = (),
) -> Ingested:
    """Read one source and return its facts; write its tables to `tables_folder`, if given. `known`
    is the content of run.json, read if None; sends are counted around the faults `injected`. Never
    raises for what a run folder contains, or if tables cannot be written: such problems are in the
    result."""
    problems = Problems()
    # All sources need the content of run.json; only the head reports its problems.
    if known is None or source.kind == "head":
        known = read_meta(source.folder, problems, source.files)
    in_memory = source.files is not None
    into = Ingested(
        known,
        problems=problems if source.kind == "head" else Problems(),
        whole_tables=tables_folder is not None,
        counts=not in_memory,
        injected=injected,
    )
    if not in_memory:
        check = check_run if source.kind == "head" else check_source
        of_tables = only_tables(source.folder)
        check(source, known, of_tables, into.problems)
        if source.kind == "head" and of_tables:
            report_busy(source.folder, into.problems)
    if source.kind not in _DECLARED or not known.is_undeclared(_DECLARED[source.kind]):
        _READERS[source.kind](source, into)
    if tables_folder is not None:
        try:
            for name, table in into.tables.items():
                tables.write(tables_folder, name, source.part(name), table)
        except OSError as error:
            into.problems.add("tables", f"The tables cannot be written: {reason(error)}.")
    if source.kind != "head":
        into.facts.extend(_meta_of_unnamed(source.run, known, into))
    into.facts.extend(into.sentences(source))
    return into


def tables_of(source: Source, known: RunMeta, problems: Problems | None = None) -> Ingested:
    """Read one source into tables, which are not written; its seal is not compared."""
    into = Ingested(known, counts=False, problems=Problems() if problems is None else problems)
    _READERS[source.kind](source, into)
    return into


def _meta_of_unnamed(run: int, known: RunMeta, into: Ingested) -> list[Rows]:
    """Return the run's metadata for partitions that run.json does not name."""
    named = {*known.partitions, METADATA_PARTITION, ""}
    seen = set[str]().union(*(part.partitions for part in into.facts))
    if unnamed := sorted(seen - named):
        return [rows(RunFacts, run, unnamed, text=msgspec.json.encode(known).decode())]
    return []
