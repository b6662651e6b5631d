"""Large histories read in parts by many workers, before anything is judged: see
`checker.ingest.read_parts`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from checker.engine.plan import RunToJudge
from checker.engine.workers import Workers
from checker.evidence.run_meta import RunMeta
from checker.ingest import tables
from checker.ingest.read_parts import PART_BYTES, Part, join, parts_of, read_part
from checker.ingest.read_tables import HISTORY_TABLES
from checker.ingest.source import Source


class _Work(NamedTuple):
    """A part of a history to be read, into tables of its folder."""

    source: Source
    known: RunMeta
    folder: Path
    number: int
    begin: int
    end: int


def into_tables(workers: Workers, runs: Sequence[RunToJudge]) -> dict[int, Path]:
    """Return the runs, by number, whose history is now tables in the folder given; the others are
    small, or must be read from beginning to end. Raises OSError if tables cannot be written."""
    large: dict[int, tuple[Source, Path]] = {}
    work: list[_Work] = []
    for number, run in enumerate(runs):
        path = run.folder / "history.jsonl"
        if run.written is None or not run.meta.history_whole or not path.is_file():
            continue
        if path.stat().st_size > 2 * PART_BYTES:
            tables.clear(run.written, HISTORY_TABLES)
            source = Source(number, run.folder, "history", path)
            large[number] = source, run.written
            work += [
                _Work(source, run.meta, run.written, nth, *span)
                for nth, span in enumerate(parts_of(path))
            ]
    found: dict[int, list[Part]] = defaultdict(list)
    for number, part in workers.map(_read, work):
        found[number].append(part)
    made = {}
    for number, (source, folder) in large.items():
        if join(found[number], source, runs[number].meta, folder):
            made[number] = folder
        else:
            tables.clear(folder, HISTORY_TABLES)
    return made


def _read(work: _Work) -> tuple[int, Part]:
    return work.source.run, read_part(*work)
