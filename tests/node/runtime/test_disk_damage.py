"""Faults of a real disk: those that a process's store makes, and those of files of a dead node. The
simulated disk does the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from harness.sim.disk import SimDisk
from nemesis.world import DiskDamage, DiskFails
from node.core import batch
from node.core.log import Log
from node.formats.errors import DamagedStore, FloodmarkError, StorageError
from node.runtime import disk_damage
from node.runtime.damage import BitPlace
from node.runtime.failing_disk import DiskFault, FailingDisk
from node.runtime.store import LmdbStorage
from tests.node.runtime.test_store_model import observed

LOG = "log-0"


def fill(store: LmdbStorage | SimDisk, first: int = 0, *, durable: bool = True) -> None:
    """Four more batches, and a value."""
    log = Log(LOG, store, durable=durable)
    for number in range(first, first + 4):
        log.append_as_leader(batch.build(2, b"%d of many" % number), 1)
        store.commit()
    store.put("hw/log-0", (first + 8).to_bytes(8, "big"), durable=durable)
    store.commit()


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, SimDisk]:
    """A real disk and a simulated one with the same on them, both without a process."""
    store, disk = LmdbStorage(tmp_path / "n1", "boot"), SimDisk()
    fill(store)
    fill(disk)
    store.close()
    return tmp_path / "n1", disk


def same(path: Path, disk: SimDisk) -> LmdbStorage:
    """Both are opened, and have the same."""
    disk.open()
    store = LmdbStorage(path, "boot")
    assert observed(store) == observed(disk)  # type: ignore[arg-type]
    assert store.clean == disk.clean
    return store


@pytest.mark.parametrize("part", ["payload", "header", "chain"])
def test_one_bit_is_flipped_and_found(pair: tuple[Path, SimDisk], part: str) -> None:
    path, disk = pair
    rng = random.Random(part)
    which, bit = rng.random(), rng.random()
    said = disk_damage.flip_bit(path, BitPlace(part, which, bit))  # type: ignore[arg-type]
    assert disk.damage(DiskDamage("flip", part, which, bit)) == said  # type: ignore[arg-type]
    store = same(path, disk)
    damage = Log(LOG, store, durable=True).damage
    assert damage is not None
    assert said == f"a bit of the {part} of {LOG} at {damage.offset} is flipped"
    store.close()


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_the_last_batch_is_torn_and_found(pair: tuple[Path, SimDisk], kept: float) -> None:
    path, disk = pair
    assert disk_damage.tear(path, 0.3, kept) == f"{LOG} at 6 is torn"
    assert disk.damage(DiskDamage("tear", which=0.3, bit=kept)) == f"{LOG} at 6 is torn"
    store = same(path, disk)
    damage = Log(LOG, store, durable=True).damage
    assert damage is not None
    assert damage.offset == 6
    store.close()


def test_a_value_with_a_flipped_bit_is_not_given_back(pair: tuple[Path, SimDisk]) -> None:
    path, disk = pair
    damage = DiskDamage("flip", "value", 0.0, 0.7, key="hw/log-0")
    assert disk_damage.flip_bit(path, BitPlace("value", 0.0, 0.7, "hw/log-0")) == (
        "a bit of the value 'hw/log-0' is flipped"
    )
    disk.damage(damage)
    disk.open()
    store = LmdbStorage(path, "boot")
    for one in (store, disk):
        with pytest.raises(DamagedStore, match="'hw/log-0' is damaged on disk: its checksum"):
            one.get("hw/log-0")
    store.close()
    with pytest.raises(FloodmarkError, match="no value 'vote'"):
        disk_damage.flip_bit(path, BitPlace("value", 0.0, 0.0, "vote"))


def test_an_emptied_disk_is_as_new(pair: tuple[Path, SimDisk]) -> None:
    path, disk = pair
    assert disk_damage.empty(path) == 4
    assert disk.damage(DiskDamage("empty")) == "4 batches are gone"
    same(path, disk).close()
    for damage in ("flip", "tear"):
        with pytest.raises(FloodmarkError, match="no batch on"):
            disk.damage(DiskDamage(damage))  # type: ignore[arg-type]
    with pytest.raises(FloodmarkError, match="n1 has no batch on its disk yet"):
        disk_damage.tear(path, 0.0, 0.0)


@pytest.mark.parametrize("durable", [True, False])
def test_an_old_copy_is_what_the_disk_was(
    pair: tuple[Path, SimDisk], tmp_path: Path, durable: bool
) -> None:
    """Copied by the process while it runs, with a journal or without."""
    path, disk = pair
    store = same(path, disk)
    fill(store, 4, durable=durable)
    fill(disk, 4, durable=durable)
    then = observed(store)
    store.copy(tmp_path / "copy")
    disk.copy(1)
    fill(store, 8, durable=durable)
    fill(disk, 8, durable=durable)
    store.close()
    assert disk_damage.restore(path, tmp_path / "copy") == disk.restore(1) == 4
    store = same(path, disk)
    assert observed(store) == then
    store.close()


def test_files_of_a_node_that_runs_are_left_alone(tmp_path: Path) -> None:
    store = LmdbStorage(tmp_path, "boot")
    fill(store)
    for act in (
        lambda: disk_damage.tear(tmp_path, 0.0, 0.0),
        lambda: disk_damage.flip_bit(tmp_path, BitPlace("chain", 0.0, 0.0)),
        lambda: disk_damage.empty(tmp_path),
        lambda: disk_damage.restore(tmp_path, tmp_path / "copy"),
    ):
        with pytest.raises(StorageError, match="is open in another process"):
            act()
    store.close()


@pytest.mark.parametrize(
    ("what", "written", "says"),
    [
        ("error", False, "cannot sync the store in .*: Input/output error"),
        ("error", True, "cannot sync the store in .*: Input/output error"),
        ("full", False, "cannot write the store in .*: No space left on device"),
        ("full-map", False, "is full: its map may not grow"),
    ],
)
def test_a_store_whose_disk_fails_goes_on_no_more(
    tmp_path: Path, what: str, written: bool, says: str
) -> None:
    disk, simulated, told = FailingDisk(), SimDisk(), []
    disk.tell = lambda: told.append(dict(disk.writes))
    store = LmdbStorage(tmp_path, "boot", disk=disk)
    fill(store)
    fill(simulated)
    disk.replace([DiskFault(number=7, what=what, written=written)])  # type: ignore[arg-type]
    simulated.add_fault(7, DiskFails(what, written=written))  # type: ignore[arg-type]
    data = batch.stamp(batch.build(1, b"x" * 9000), 8, 1)
    for one in (store, simulated):
        one.append(LOG, 8, bytes(8), data, durable=True)
    with pytest.raises(StorageError, match=says):
        store.commit()
    with pytest.raises(StorageError):
        simulated.commit()
    assert told == [{7: 1}]
    assert simulated.remove_fault(7) == 1
    disk.replace([])
    with pytest.raises(StorageError, match=says):
        store.commit()  # it never tries again
    store.close()
    store = same(tmp_path, simulated)
    assert len(list(store.batches(LOG))) == (5 if written else 4)
    store.close()


def test_a_full_disk_takes_no_deferred_write_either(tmp_path: Path) -> None:
    store = LmdbStorage(tmp_path, "boot", disk=FailingDisk([DiskFault(number=1, what="full")]))
    store.put("hw/log-0", b"8", durable=False)
    with pytest.raises(StorageError, match="No space left on device"):
        store.commit()
    store.close()


def test_a_slow_disk_takes_its_time_once_a_sync(tmp_path: Path) -> None:
    waited: list[float] = []
    disk = FailingDisk([DiskFault(number=3, what="slow", delay_ms=1500)], waited.append)
    store = LmdbStorage(tmp_path, "boot", disk=disk)
    fill(store)
    assert waited == [1.5] * 5
    assert disk.writes == {3: 5}
    store.put("hw/log-0", b"8", durable=False)
    store.commit()  # the first deferred write marks the tables
    store.put("hw/log-0", b"9", durable=False)
    store.commit()
    assert len(waited) == 6
    store.close()


def test_with_the_bug_a_failed_sync_is_forgotten(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = LmdbStorage(tmp_path, "boot", disk=disk, retries=True)
    fill(store)
    disk.replace([DiskFault(number=1, what="error")])
    fill(store, 4)
    disk.replace([])
    store.close()
    store = LmdbStorage(tmp_path, "boot")
    assert [one.base_offset for one in store.batches(LOG)] == [0, 2, 4, 6]
    store.close()
