"""Reading of a history, ours or Jepsen's, as facts and tables."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from checker.ingest.read_history import Reader, finish
from checker.ingest.read_jepsen import JepsenReader
from checker.ingest.source import Ingested, Source


def read_history(source: Source, into: Ingested) -> None:
    """Read the history `source`; add its tables and facts to `into`."""
    with collector_paused():
        reader = reader_of(source, into)
        reader.read()
        finish(reader)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let the garbage collector rest: what is decoded has no cycles, and looking for them in it
    takes longer than to decode it."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def reader_of(source: Source, into: Ingested) -> Reader:
    """Return the reader of the form that a history has."""
    return (Reader if source.form == "own" else JepsenReader)(source, into)
