"""A disk that refuses: one sentence, nothing half written, and a store that can be opened again.

No real disk is filled: RLIMIT_FSIZE makes the kernel refuse growth of any file, and the map limit
makes LMDB refuse its own."""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.core import batch
from node.formats.errors import StorageError
from node.runtime.store import LmdbStorage

LOG = "log-0"
BIG = batch.stamp(batch.build(1, b"x" * 50_000), 0, 1)


@contextlib.contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """Let no file of this process grow above `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def fill(store: LmdbStorage, *, durable: bool) -> int:
    """Commit batch by batch until the disk refuses; returns how many are kept."""
    for base in range(1000):
        store.append(LOG, base, bytes(8), BIG, durable=durable)
        try:
            store.commit()
        except StorageError:
            return base
    raise AssertionError("the disk never refused")


def check_after(path: Path, kept: int) -> None:
    """Open the store, check that it has exactly what was committed, and work on."""
    store = LmdbStorage(path, "boot")
    assert [one.base_offset for one in store.batches(LOG)] == list(range(kept))
    assert all(store.read(LOG, base) == BIG for base in range(kept))
    store.append(LOG, kept, bytes(8), BIG, durable=True)
    store.commit()
    store.close()


@pytest.mark.parametrize("durable", [True, False], ids=["lmdb", "journal"])
def test_a_full_disk_is_one_sentence_and_loses_nothing_committed(
    tmp_path: Path, durable: bool
) -> None:
    store = LmdbStorage(tmp_path, "boot")
    with no_file_above(1 << 20):
        kept = fill(store, durable=durable)
        assert kept > 5
        with pytest.raises(StorageError, match=r"cannot write the (store|journal)") as refused:
            store.commit()
        assert "\n" not in str(refused.value)
        with pytest.raises(StorageError, match=r"cannot write the (store|journal)"):
            store.flush()
        store.close()
    check_after(tmp_path, kept)


def test_a_disk_full_at_flush_leaves_the_journal(tmp_path: Path) -> None:
    store = LmdbStorage(tmp_path, "boot")
    for base in range(30):
        store.append(LOG, base, bytes(8), BIG, durable=False)
        store.commit()
    with no_file_above(1 << 20), pytest.raises(StorageError, match="cannot write the store"):
        store.flush()
    store.close()
    store = LmdbStorage(tmp_path, "boot")
    assert store.clean
    store.close()
    check_after(tmp_path, 30)


def test_a_map_at_its_limit_is_a_full_disk(tmp_path: Path) -> None:
    store = LmdbStorage(tmp_path, "boot", map_bytes=1 << 16, map_limit=1 << 20)
    kept = fill(store, durable=True)
    assert kept > 5
    with pytest.raises(StorageError, match="may not grow above 1048576 bytes"):
        store.commit()
    store.close()
    check_after(tmp_path, kept)


def test_a_store_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    for size in range(0, 1 << 14, 1000):
        with no_file_above(size), contextlib.suppress(StorageError):
            LmdbStorage(tmp_path / str(size), "boot").close()
        LmdbStorage(tmp_path / str(size), "boot").close()
    with no_file_above(1 << 12), pytest.raises(StorageError, match="cannot make a store"):
        LmdbStorage(tmp_path / "data", "boot")
