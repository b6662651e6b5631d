"""The logs of a stopped node, read from its disk for `logs/<node>.jsonl`.

Changes nothing: the journal is replayed in memory only. The dump is evidence for the checker, so
damage is reported in it and never raised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from node.core.log_dump import log_dump
from node.formats.log_dump import LogDump
from node.runtime import journal
from node.runtime.datadir import DataDir
from node.runtime.overlay import Overlay
from node.runtime.store import names_of, stored
from node.runtime.tables import CHAIN_BYTES, DATA_FILE, Tables


def dump_logs(data_dir: str | Path) -> Iterator[LogDump]:
    """Yield all logs of the stopped node that has `data_dir`, sorted by partition. Raises
    StorageError if there is no store, if it cannot be opened at all, or if a process has it
    open."""
    with DataDir(data_dir, create=False) as dir_, _opened(dir_) as (tables, overlay):

        def value(key: str) -> bytes | None:
            found = overlay.values.get(key)
            return tables.value(key) if found is None else found

        for name in names_of(tables, overlay):
            yield log_dump(name, partial(stored, tables, (overlay,), name), value)


def stored_batches(data_dir: str | Path) -> set[tuple[str, int, bytes]]:
    """Return every batch of the stopped node that has `data_dir`, as partition, base offset and
    prefix hash."""
    with DataDir(data_dir, create=False) as dir_:
        if not (dir_.path / DATA_FILE).exists():
            return set()
        with _opened(dir_) as (tables, overlay):
            return {
                (name, base, start[:CHAIN_BYTES])
                for name in {*tables.ids, *overlay.logs}
                for base, start, _ in stored(tables, (overlay,), name, whole=False)
            }


@contextmanager
def _opened(dir_: DataDir) -> Iterator[tuple[Tables, Overlay]]:
    tables = Tables(dir_.path, map_bytes=1 << 20, map_limit=1 << 40, readonly=True)
    with closing(tables):
        overlay = Overlay()
        replay = journal.read(dir_.journal)
        if replay.generation == tables.number("generation"):
            overlay.replay(replay.turns)
        yield tables, overlay
