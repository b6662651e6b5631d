"""Processor seconds of this process and all that it started, while a block of code runs; and those
of the least that judging a history can take."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Self

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from checker.ingest import tables
from checker.ingest.read_tables import HISTORY_TABLES


class ProcessorTime:
    """Counts processor seconds (`seconds`) of the whole family of processes while it is entered."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._before = family_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = family_seconds() - self._before


def family_seconds() -> float:
    """Processor seconds so far of this process and its descendants, also of those that ended and
    were waited for."""
    me, found = psutil.Process(), 0.0
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found += times.user + times.system + times.children_user + times.children_system
    return found


def floor_of(folder: Path) -> float:
    """Processor seconds to read every column of the tables of a history with PyArrow, words as
    dictionaries, and to sort each column of numbers once: no checker can do with less."""
    began = time.process_time()
    for name in HISTORY_TABLES:
        path = folder / "tables" / f"{name}.parquet"
        if not path.is_file():
            continue
        texts = [field.name for field in tables.SCHEMAS[name] if field.type == pa.string()]
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            for field in file.schema_arrow:
                column = file.read(columns=[field.name], use_threads=False).column(0)
                if pa.types.is_integer(field.type):
                    np.sort(column.to_numpy())
    return time.process_time() - began
