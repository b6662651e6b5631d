"""Large histories read in parts by Spark's tasks, before anything is judged: see
`checker.ingest.read_parts`."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from checker.engine.plan import RunToJudge
from checker.ingest import tables
from checker.ingest.read_parts import PART_BYTES, Part, join, parts_of, read_part
from checker.ingest.read_tables import HISTORY_TABLES
from checker.ingest.source import Source

_SCHEMA: Final = pa.schema([("run", pa.int32()), ("part", pa.binary())])


def into_tables(session: SparkSession, runs: Sequence[RunToJudge]) -> dict[int, Path]:
    """The runs, by number, whose history is now tables in the folder given; the others are small,
    or must be read from beginning to end. Raises OSError if tables cannot be written."""
    large: dict[int, tuple[Source, Path]] = {}
    work = []
    known = [run.meta for run in runs]
    for number, run in enumerate(runs):
        path = run.folder / "history.jsonl"
        if run.written is None or not run.meta.history_whole or not path.is_file():
            continue
        if path.stat().st_size > 2 * PART_BYTES:
            tables.clear(run.written, HISTORY_TABLES)
            large[number] = Source(number, run.folder, "history", path), run.written
            work += [(number, nth, *span) for nth, span in enumerate(parts_of(path))]
    if not work:
        return {}

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.column(0).to_pylist():
                number, nth, begin, end = work[row]
                source, folder = large[number]
                part = read_part(source, known[number], folder, nth, begin, end)
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int32()), pa.array([pickle.dumps(part)])], schema=_SCHEMA
                )

    found: dict[int, list[Part]] = defaultdict(list)
    tasks = session.range(0, len(work), 1, len(work))
    for row in tasks.mapInArrow(read, "run int, part binary").toArrow().to_pylist():
        found[row["run"]].append(pickle.loads(row["part"]))
    made = {}
    for number, (source, folder) in large.items():
        if join(found[number], source, known[number], folder):
            made[number] = folder
        else:
            tables.clear(folder, HISTORY_TABLES)
    return made
