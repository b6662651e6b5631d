"""What the core may rely on from the real disk: the storage contract, kept across kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.core import batch
from node.core.storage import Storage, StoredBatch
from node.formats.errors import StorageError
from node.runtime.store import LmdbStorage

LOG = "log-0"
BOTH = pytest.mark.parametrize("durable", [True, False], ids=["durable", "deferred"])


def make(base: int, count: int = 3, epoch: int = 1, payload: bytes = b"payload") -> bytes:
    """A stamped batch."""
    return batch.stamp(batch.build(count, payload), base, epoch)


def chain(number: int) -> bytes:
    """A recognisable prefix hash."""
    return number.to_bytes(8, "big")


def fill(store: LmdbStorage, bases: range, *, durable: bool, name: str = LOG) -> None:
    """Append batches of three records at `bases`."""
    for base in bases:
        store.append(name, base, chain(base), make(base), durable=durable)


def bases(store: LmdbStorage, name: str = LOG) -> list[int]:
    """Where the batches of a log start."""
    return [one.base_offset for one in store.batches(name)]


@pytest.fixture
def store(tmp_path: Path) -> LmdbStorage:
    """An empty store."""
    return LmdbStorage(tmp_path / "data", "boot-1")


def reopened(store: LmdbStorage) -> LmdbStorage:
    """The store after a kill: nothing of its memory survives."""
    path = Path(store.path)
    store.close()
    return LmdbStorage(path, "boot-1")


def test_is_a_storage(store: LmdbStorage) -> None:
    as_the_core_sees_it: Storage = store
    assert as_the_core_sees_it.clean
    assert as_the_core_sees_it.partitions() == []
    assert list(as_the_core_sees_it.batches(LOG)) == []
    assert as_the_core_sees_it.get("hw/log-0") is None


@BOTH
def test_a_write_is_read_back_at_once_after_the_commit_and_after_a_kill(
    store: LmdbStorage, durable: bool
) -> None:
    data = make(0, count=5, epoch=7, payload=b"x" * 9000)
    store.append(LOG, 0, chain(99), data, durable=durable)
    store.put("epochs/log-0", b"cache", durable=durable)
    expected = StoredBatch(0, 5, 7, len(data), chain(99))
    for step in ("turn", "committed", "killed", "flushed", "killed"):
        if step == "committed":
            store.commit()
        if step == "flushed":
            store.flush()
        if step == "killed":
            store = reopened(store)
        assert store.clean
        assert store.read(LOG, 0) == data
        assert list(store.batches(LOG)) == [expected]
        assert store.get("epochs/log-0") == b"cache"
        assert store.partitions() == [LOG]


@BOTH
def test_a_turn_that_was_not_committed_never_happened(store: LmdbStorage, durable: bool) -> None:
    fill(store, range(0, 9, 3), durable=durable)
    store.commit()
    store.append(LOG, 9, chain(9), make(9), durable=durable)
    store.truncate(LOG, 3, durable=durable)
    store.put("key", b"value", durable=durable)
    store = reopened(store)
    assert bases(store) == [0, 3, 6]
    assert store.get("key") is None


@BOTH
@pytest.mark.parametrize("committed", [True, False])
def test_truncate_removes_batches_that_start_at_or_above(
    store: LmdbStorage, durable: bool, committed: bool
) -> None:
    fill(store, range(0, 15, 3), durable=durable)
    if committed:
        store.commit()
    store.truncate(LOG, 6, durable=durable)
    assert bases(store) == [0, 3]
    with pytest.raises(StorageError, match="no batch starts at 6"):
        store.read(LOG, 6)
    store.append(LOG, 6, chain(600), make(6, epoch=9), durable=durable)
    store.commit()
    store = reopened(store)
    assert [(one.base_offset, one.epoch) for one in store.batches(LOG)] == [(0, 1), (3, 1), (6, 9)]


@BOTH
def test_an_emptied_log_is_still_here_a_deleted_one_is_not(
    store: LmdbStorage, durable: bool
) -> None:
    for name in ("a-0", "b-0", "c-0"):
        fill(store, range(0, 6, 3), durable=durable, name=name)
    store.commit()
    store.truncate("a-0", 0, durable=durable)
    store.delete("b-0", durable=durable)
    store.delete("never-0", durable=durable)
    store.truncate("never-1", 0, durable=durable)
    for step in ("turn", "committed", "killed", "flushed"):
        if step == "committed":
            store.commit()
        if step == "killed":
            store = reopened(store)
        if step == "flushed":
            store.flush()
        assert store.partitions() == ["a-0", "c-0"]
        assert bases(store, "a-0") == bases(store, "b-0") == []


@BOTH
def test_a_deleted_log_can_begin_again_elsewhere(store: LmdbStorage, durable: bool) -> None:
    fill(store, range(0, 9, 3), durable=durable)
    store.commit()
    store.delete(LOG, durable=durable)
    store.append(LOG, 100, chain(1), make(100), durable=durable)
    assert bases(store) == [100]
    store.commit()
    store = reopened(store)
    assert bases(store) == [100]
    with pytest.raises(StorageError):
        store.read(LOG, 0)


@BOTH
def test_logs_do_not_touch_each_other(store: LmdbStorage, durable: bool) -> None:
    names = [f"topic-{i}" for i in range(20)] + ["topic", "topi", "ünïcode-0"]
    for name in names:
        fill(store, range(0, 9, 3), durable=durable, name=name)
    store.commit()
    store.truncate("topic-1", 3, durable=durable)
    store.delete("topic", durable=durable)
    store.flush()
    store = reopened(store)
    assert store.partitions() == sorted(set(names) - {"topic"})
    assert bases(store, "topic-1") == [0]
    assert all(bases(store, n) == [0, 3, 6] for n in names if n not in ("topic", "topic-1"))


def test_offsets_above_32_bits_keep_their_order(store: LmdbStorage) -> None:
    at = [0, 255, 256, 1 << 31, (1 << 32) - 1, 1 << 40]
    for base in reversed(at):
        store.append(LOG, base, chain(base), make(base), durable=True)
    store.commit()
    store.truncate(LOG, 1 << 40, durable=True)
    store.commit()
    assert bases(reopened(store)) == at[:-1]


def test_durable_and_deferred_writes_share_a_turn(store: LmdbStorage) -> None:
    fill(store, range(0, 6, 3), durable=True, name="meta-0")
    fill(store, range(0, 6, 3), durable=False)
    store.put("vote", b"1", durable=True)
    store.put("hw/log-0", b"2", durable=False)
    store.commit()
    store = reopened(store)
    assert store.partitions() == [LOG, "meta-0"]
    assert (store.get("vote"), store.get("hw/log-0")) == (b"1", b"2")


def test_a_log_whose_durability_changes_keeps_the_order_of_its_writes(store: LmdbStorage) -> None:
    """As after a restart with another flush setting: no hole may appear, whatever is lost."""
    fill(store, range(0, 6, 3), durable=False)
    store.put("key", b"old", durable=False)
    store.commit()
    fill(store, range(6, 12, 3), durable=True)
    store.put("key", b"new", durable=True)
    store.truncate(LOG, 9, durable=False)
    assert bases(store) == [0, 3, 6]
    store.commit()
    path = Path(store.path)
    store.close()
    (path / "journal").unlink()
    store = LmdbStorage(path, "boot-2")
    assert bases(store) == [0, 3, 6]
    assert store.get("key") == b"new"
    assert store.clean
    fill(store, range(9, 12, 3), durable=True)
    store.truncate(LOG, 6, durable=False)
    store.commit()
    assert bases(reopened(store)) == [0, 3]


def test_a_growing_journal_is_flushed_by_itself(tmp_path: Path) -> None:
    store = LmdbStorage(tmp_path, "boot-1", journal_limit=10_000)
    for i in range(300):
        store.append(LOG, i, chain(i), make(i, count=1, payload=b"x" * 100), durable=False)
        store.put("hw/log-0", bytes(8), durable=False)
        store.commit()
        assert (tmp_path / "journal").stat().st_size <= 10_000
    store = reopened(store)
    assert bases(store) == list(range(300))


def test_the_map_grows_when_it_is_full(tmp_path: Path) -> None:
    store = LmdbStorage(tmp_path, "boot-1", map_bytes=1 << 16)
    big = make(0, payload=b"x" * 100_000)
    for base in range(0, 60, 3):
        store.append(LOG, base, chain(base), big, durable=base % 2 == 0)
        store.commit()
    store.flush()
    store.truncate(LOG, 3, durable=True)
    store.commit()
    store = reopened(store)
    assert bases(store) == [0]
    assert store.read(LOG, 0) == big


def test_a_second_process_is_refused_until_the_first_lets_go(store: LmdbStorage) -> None:
    with pytest.raises(StorageError, match="open in another process"):
        LmdbStorage(store.path, "boot-1")
    path = store.path
    store.close()
    LmdbStorage(path, "boot-1").close()


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


def test_an_empty_value_is_a_value(store: LmdbStorage) -> None:
    store.put("key", b"", durable=True)
    store.commit()
    assert reopened(store).get("key") == b""


def test_a_closed_store_refuses(store: LmdbStorage) -> None:
    store.close()
    with pytest.raises(StorageError, match="closed"):
        store.commit()
    store.close()


@BOTH
def test_a_deleted_head_is_gone_at_once_after_the_commit_and_after_a_kill(
    store: LmdbStorage, durable: bool
) -> None:
    fill(store, range(0, 30, 3), durable=durable)
    store.commit()
    store.delete_head(LOG, 12, durable=durable)
    fill(store, range(30, 36, 3), durable=durable)
    for step in ("turn", "committed", "killed", "flushed", "killed"):
        if step == "committed":
            store.commit()
        elif step == "killed":
            store = reopened(store)
        elif step == "flushed":
            store.flush()
        assert bases(store) == list(range(12, 36, 3)), step
        with pytest.raises(StorageError, match="no batch starts at 9"):
            store.read(LOG, 9)


@BOTH
def test_a_log_can_start_over_below_a_deleted_head(store: LmdbStorage, durable: bool) -> None:
    fill(store, range(0, 30, 3), durable=durable)
    store.delete_head(LOG, 27, durable=durable)
    store.commit()
    store.truncate(LOG, 0, durable=durable)
    fill(store, range(0, 6, 3), durable=durable)
    store.commit()
    assert bases(store) == [0, 3]
    store.flush()
    assert bases(reopened(store)) == [0, 3]


def test_the_space_of_a_deleted_head_is_used_again(store: LmdbStorage) -> None:
    big, sizes = b"x" * 20_000, []
    for base in range(0, 900, 3):
        store.append(LOG, base, chain(base), make(base, payload=big), durable=True)
        store.delete_head(LOG, base - 30, durable=True)
        store.commit()
        sizes.append((Path(store.path) / "data.mdb").stat().st_size)
    assert bases(store)[0] == 897 - 30
    assert sizes[-1] <= 1.2 * sizes[60]
