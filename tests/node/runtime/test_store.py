"""Scripts of the runtime, and the real disk: refusals, changes of durability, space."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.core import batch
from node.formats.errors import StorageError
from node.runtime.store import LmdbStorage
from tests.support.scripts import beside, proving

LOG = "log-0"

test_script = proving(beside(__file__))


def make(base: int, count: int = 3, epoch: int = 1, payload: bytes = b"payload") -> bytes:
    return batch.stamp(batch.build(count, payload), base, epoch)


def chain(number: int) -> bytes:
    """Return a recognisable prefix hash."""
    return number.to_bytes(8, "big")


def fill(store: LmdbStorage, bases: range, *, durable: bool, name: str = LOG) -> None:
    """Append batches of three records at `bases`."""
    for base in bases:
        store.append(name, base, chain(base), make(base), durable=durable)


def bases(store: LmdbStorage, name: str = LOG) -> list[int]:
    """Return the offsets at which the batches of a log start."""
    return [one.base_offset for one in store.batches(name)]


@pytest.fixture
def store(tmp_path: Path) -> LmdbStorage:
    return LmdbStorage(tmp_path / "data", "boot-1")


def test_a_log_whose_durability_changed_lives_without_its_journal(store: LmdbStorage) -> None:
    """After a restart with another flush setting no hole may appear, whatever is lost."""
    fill(store, range(0, 6, 3), durable=False)
    store.commit()
    fill(store, range(6, 12, 3), durable=True)
    store.truncate(LOG, 9, durable=False)
    store.commit()
    path = Path(store.path)
    store.close()
    (path / "journal").unlink()
    store = LmdbStorage(path, "boot-2")
    assert bases(store) == [0, 3, 6]
    assert store.clean


@pytest.mark.parametrize("junk", [b"not a database at all" * 1000, b"", b"x", b"\0" * 8192])
def test_a_foreign_file_is_refused_with_one_sentence(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / "data.mdb").write_bytes(junk)
    with pytest.raises(StorageError, match="damaged or is not a floodmark store") as refused:
        LmdbStorage(tmp_path, "boot-1")
    assert "\n" not in str(refused.value)


def test_a_foreign_database_is_refused(tmp_path: Path) -> None:
    import lmdb

    with lmdb.open(str(tmp_path), lock=False) as env, env.begin(write=True) as txn:
        txn.put(b"someone", b"else's")
    with pytest.raises(StorageError, match="has format 0, expected 2"):
        LmdbStorage(tmp_path, "boot-1")


def test_a_shortened_database_is_refused(store: LmdbStorage) -> None:
    fill(store, range(0, 3000, 3), durable=True)
    store.commit()
    path = Path(store.path)
    store.close()
    data = path / "data.mdb"
    with data.open("r+b") as file:
        file.truncate(data.stat().st_size // 2)
    with pytest.raises(StorageError, match="was cut short"):
        LmdbStorage(path, "boot-1")


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot use"):
        LmdbStorage(tmp_path / "file", "boot-1")


@pytest.mark.parametrize("name", ["", "x" * 501])
def test_a_name_that_lmdb_cannot_keep_is_refused(store: LmdbStorage, name: str) -> None:
    with pytest.raises(StorageError, match="cannot be stored"):
        store.append(name, 0, chain(0), make(0), durable=True)
    with pytest.raises(StorageError, match="cannot be stored"):
        store.put(name, b"", durable=False)


def test_a_closed_store_refuses(store: LmdbStorage) -> None:
    store.close()
    with pytest.raises(StorageError, match="closed"):
        store.commit()
    store.close()


def test_the_space_of_a_deleted_head_is_used_again(store: LmdbStorage) -> None:
    big, sizes = b"x" * 20_000, []
    for base in range(0, 900, 3):
        store.append(LOG, base, chain(base), make(base, payload=big), durable=True)
        store.delete_head(LOG, base - 30, durable=True)
        store.commit()
        sizes.append((Path(store.path) / "data.mdb").stat().st_size)
    assert bases(store)[0] == 897 - 30
    assert sizes[-1] <= 1.2 * sizes[60]
