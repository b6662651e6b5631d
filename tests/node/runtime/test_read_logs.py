"""The dump of a stopped node: all it has, changed in nothing, whatever the damage."""

from __future__ import annotations

from pathlib import Path

import lmdb
import msgspec
import pytest

from node.core import batch
from node.formats.errors import DamagedStore, StorageError
from node.formats.log_dump import BatchDump, LogDump
from node.runtime.read_logs import dump_logs
from node.runtime.store import LmdbStorage

KEPT = ["meta-0", "log-0", "log-1"]
Flushed = tuple[Path, bytes, list[bytes]]


def write_log(store: LmdbStorage, name: str, *, durable: bool) -> list[bytes]:
    """Four batches in two epochs with true chains, HW and epoch cache; returns the chains."""
    chains, offset = [batch.EMPTY_CHAIN], 0
    for count, epoch in ((3, 1), (1, 1), (5, 4), (2, 4)):
        data = batch.stamp(batch.build(count, b"%d of " % offset + name.encode()), offset, epoch)
        chains.append(batch.chain(chains[-1], batch.view(data)))
        store.append(name, offset, chains[-1], data, durable=durable)
        offset += count
    store.put(f"hw/{name}", (9).to_bytes(8, "big"), durable=durable)
    store.put(f"epochs/{name}", msgspec.msgpack.encode([[1, 0], [4, 4]]), durable=durable)
    return chains[1:]


def dumped(path: Path) -> dict[str, tuple[LogDump, list[BatchDump]]]:
    return {log.partition: (log, list(log.batches)) for log in dump_logs(path)}


def node(path: Path) -> list[bytes]:
    """Return a killed node: one durable log, one deferred, one deferred and flushed in part."""
    store = LmdbStorage(path, "boot")
    chains = write_log(store, "log-1", durable=False)
    store.flush()
    store.truncate("log-1", 4, durable=False)
    write_log(store, "meta-0", durable=True)
    write_log(store, "log-0", durable=False)
    store.append("gone-0", 0, bytes(8), batch.build(1, b""), durable=False)
    store.commit()
    store.delete("gone-0", durable=False)
    store.commit()
    store.append("log-0", 11, bytes(8), batch.build(1, b"never committed"), durable=False)
    store.close()
    return chains


def test_it_has_everything_and_changes_nothing(tmp_path: Path) -> None:
    node(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    found = dumped(tmp_path)
    assert list(found) == sorted(KEPT)
    for name in ("meta-0", "log-0"):
        log, batches = found[name]
        assert (log.start, log.leo, log.hw, log.epochs) == (0, 11, 9, ((1, 0), (4, 4)))
        assert [(b.base_offset, b.count, b.epoch) for b in batches] == [
            (0, 3, 1),
            (3, 1, 1),
            (4, 5, 4),
            (9, 2, 4),
        ]
        assert [b.payload for b in batches] == [
            b"%d of " % at + name.encode() for at in (0, 3, 4, 9)
        ]
        assert all(b.chain == b.stored_chain and not b.problem for b in batches)
        assert not log.problem
    assert found["log-1"][0].leo == 4
    assert [b.base_offset for b in found["log-1"][1]] == [0, 3]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert dumped(tmp_path).keys() == found.keys()


def change(path: Path, key: bytes, value: bytes) -> None:
    """Change one entry behind the store's back."""
    with lmdb.open(str(path), lock=False) as env, env.begin(write=True) as txn:
        assert txn.get(key) is not None
        txn.put(key, value)


def raw(path: Path, key: bytes) -> bytes:
    with lmdb.open(str(path), lock=False) as env, env.begin() as txn:
        value = txn.get(key)
        assert value is not None
        return value


@pytest.fixture
def flushed(tmp_path: Path) -> Flushed:
    """Return a node with one flushed log, the key of its second batch, and its chains."""
    store = LmdbStorage(tmp_path, "boot")
    chains = write_log(store, "log-0", durable=True)
    store.commit()
    store.close()
    return tmp_path, b"L" + (1).to_bytes(4, "big") + (3).to_bytes(8, "big"), chains


def test_a_batch_with_a_wrong_checksum_is_read_and_hashed_as_it_is(flushed: Flushed) -> None:
    path, key, chains = flushed
    value = raw(path, key)
    change(path, key, value[:-1] + b"!")
    batches = dumped(path)["log-0"][1]
    assert [bool(b.problem) for b in batches] == [False, True, True, True]
    assert "checksum" in batches[1].problem
    assert batches[1].payload.endswith(b"!")
    assert [b.stored_chain for b in batches] == chains
    assert [b.chain == b.stored_chain for b in batches] == [True, False, False, False]


@pytest.mark.parametrize("value", [b"", b"short", bytes(8) + b"\xff" * 40])
def test_a_batch_that_cannot_be_read_is_reported_and_passed(flushed: Flushed, value: bytes) -> None:
    path, key, _ = flushed
    change(path, key, value)
    log, batches = dumped(path)["log-0"]
    assert log.leo == 11
    assert [b.base_offset for b in batches] == [0, 3, 4, 9]
    assert batches[1].count == 0
    assert batches[1].problem
    assert [b.count for b in batches] == [3, 0, 5, 2]


def test_a_batch_under_the_wrong_key_is_reported(flushed: Flushed) -> None:
    path, key, _ = flushed
    value = raw(path, key)
    change(path, key, value[:8] + batch.stamp(value[8:], 77, 1))
    assert "stored at 3 but stamped 77" in dumped(path)["log-0"][1][1].problem


def test_a_bad_epoch_cache_is_reported(flushed: Flushed) -> None:
    path, _, _ = flushed
    change(path, b"Vepochs/log-0", b"\xc1")
    log, batches = dumped(path)["log-0"]
    assert "epoch cache" in log.problem
    assert log.epochs == ()
    assert len(batches) == 4


def test_a_torn_journal_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    node(tmp_path)
    journal = tmp_path / "journal"
    journal.write_bytes(journal.read_bytes()[:-1])
    assert list(dumped(tmp_path)) == sorted([*KEPT, "gone-0"])


def test_a_folder_that_cannot_be_dumped_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no store"):
        dumped(tmp_path / "nowhere")
    store = LmdbStorage(tmp_path / "data", "boot")
    with pytest.raises(StorageError, match="open in another process"):
        dumped(tmp_path / "data")
    store.close()
    assert dumped(tmp_path / "data") == {}


def test_every_flipped_bit_is_named_and_costs_no_memory(flushed: Flushed) -> None:
    """One bit of the count would otherwise ask for 2^29 records."""
    path, key, chains = flushed
    value = raw(path, key)
    for bit in range(8 * len(value)):
        changed = bytearray(value)
        changed[bit // 8] ^= 1 << bit % 8
        change(path, key, bytes(changed))
        log, batches = dumped(path)["log-0"]
        assert batches[1].problem, bit
        assert max(b.count for b in batches) <= len(value)
        assert log.leo == 11
    assert chains[-1] != batches[-1].chain


def test_the_last_batch_cannot_make_the_log_long(flushed: Flushed) -> None:
    path, key, _ = flushed
    last = key[:-1] + b"\x09"
    value = raw(path, last)
    count_at = 8 + batch.HEADER.size - 4
    change(path, last, value[:count_at] + b"\x20" + value[count_at + 1 :])
    log, batches = dumped(path)["log-0"]
    assert (log.leo, batches[-1].count) == (9, 0)
    assert "does not fit" in batches[-1].problem


@pytest.mark.parametrize("key", ["hw/log-0", "epochs/log-0"])
def test_a_damaged_value_is_named(flushed: Flushed, key: str) -> None:
    path, _, _ = flushed
    value = raw(path, b"V" + key.encode())
    change(path, b"V" + key.encode(), value[:-1] + bytes([value[-1] ^ 1]))
    log = dumped(path)["log-0"][0]
    assert f"the value '{key}' is damaged on disk: its checksum does not match" in log.problem
    store = LmdbStorage(path, "boot")
    with pytest.raises(DamagedStore, match=f"the value '{key}' is damaged on disk"):
        store.get(key)
    store.close()


def test_a_high_watermark_out_of_range_is_not_believed(tmp_path: Path) -> None:
    store = LmdbStorage(tmp_path, "boot")
    write_log(store, "log-0", durable=True)
    store.put("hw/log-0", b"\xff" * 40, durable=True)
    store.commit()
    store.close()
    log = dumped(tmp_path)["log-0"][0]
    assert log.hw == -1
    assert "high watermark not understood" in log.problem
