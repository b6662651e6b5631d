"""The journal of deferred writes: what a kill keeps, what a power cut takes, and who can tell."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from node.core import batch
from node.formats.errors import StorageError
from node.runtime import datadir, journal
from node.runtime.datadir import power_cut
from node.runtime.store import LmdbStorage

LOG = "log-0"
CHAIN = bytes(8)


def open_(path: Path, boot: str = "boot-1") -> LmdbStorage:
    """Return the store in `path`, under a boot of the host."""
    return LmdbStorage(path, boot)


def append(store: LmdbStorage, *bases: int, durable: bool = False, log: str = LOG) -> None:
    for base in bases:
        data = batch.stamp(batch.build(1, b"x" * 20), base, 1)
        store.append(log, base, CHAIN, data, durable=durable)


def seen(store: LmdbStorage) -> list[int]:
    """Return base offsets of the log."""
    return [one.base_offset for one in store.batches(LOG)]


def three_turns(path: Path) -> list[int]:
    """Return the journal's length after each of three deferred turns, in a dead node's store."""
    store = open_(path)
    sizes = []
    for turn in range(3):
        append(store, turn * 2, turn * 2 + 1)
        store.commit()
        sizes.append((path / "journal").stat().st_size)
    store.close()
    return sizes


def test_a_turn_is_replayed_whole_or_not_at_all_at_every_cut(tmp_path: Path) -> None:
    sizes = three_turns(tmp_path / "data")
    for cut in range(sizes[2] + 1):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "data", copy)
        with (copy / "journal").open("r+b") as file:
            file.truncate(cut)
        store = open_(copy)
        turns = sum(size <= cut for size in sizes)
        assert seen(store) == list(range(turns * 2))
        # Cut between two turns, only `cut` of this module could tell; here the header says so.
        assert store.clean == (cut in sizes or cut == journal.HEADER_BYTES)
        append(store, turns * 2)
        store.commit()
        store.close()
        again = open_(copy)
        assert seen(again) == list(range(turns * 2 + 1))
        assert again.clean
        again.close()
        shutil.rmtree(copy)


def test_a_flipped_bit_ends_the_replay_there(tmp_path: Path) -> None:
    sizes = three_turns(tmp_path / "data")
    content = (tmp_path / "data" / "journal").read_bytes()
    for position in range(sizes[1]):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "data", copy)
        flipped = bytearray(content)
        flipped[position] ^= 0x10
        (copy / "journal").write_bytes(flipped)
        store = open_(copy)
        turns = 0 if position < sizes[0] else 1
        assert seen(store) == list(range(turns * 2)), position
        assert not store.clean
        store.close()
        shutil.rmtree(copy)


@pytest.mark.parametrize(
    ("what", "kept"), [("zeros behind it", 6), ("another boot of the host", 6), ("no journal", 0)]
)
def test_what_may_be_a_power_cut_is_noticed(tmp_path: Path, what: str, kept: int) -> None:
    """Zeros are what a file system may leave behind a file's end after a real one."""
    three_turns(tmp_path)
    if what == "zeros behind it":
        with (tmp_path / "journal").open("ab") as file:
            file.write(bytes(4096))
    elif what == "no journal":
        (tmp_path / "journal").unlink()
    store = open_(tmp_path, "boot-2" if "boot" in what else "boot-1")
    assert seen(store) == list(range(kept))
    assert not store.clean


def test_a_journal_that_was_flushed_is_never_replayed_again(tmp_path: Path) -> None:
    store = open_(tmp_path)
    append(store, 0, 1)
    store.commit()
    old = (tmp_path / "journal").read_bytes()
    store.flush()
    store.truncate(LOG, 0, durable=True)
    store.commit()
    store.close()
    # As a kill between the commit of the flush and the emptying of the journal leaves it.
    (tmp_path / "journal").write_bytes(old)
    store = open_(tmp_path)
    assert seen(store) == []
    assert store.clean
    append(store, 0)
    store.commit()
    store.close()
    store = open_(tmp_path)
    assert seen(store) == [0]
    assert store.clean


def test_frames_of_an_older_generation_do_not_pass_as_newer_ones(tmp_path: Path) -> None:
    store = open_(tmp_path)
    append(store, 0)
    store.commit()
    frames = (tmp_path / "journal").read_bytes()[journal.HEADER_BYTES :]
    store.flush()
    store.put("hw/log-0", b"1", durable=False)
    store.commit()
    store.close()
    with (tmp_path / "journal").open("ab") as file:
        file.write(frames)
    assert journal.read(tmp_path / "journal").torn


def test_killed_between_its_mark_and_its_first_frame_a_node_is_clean(tmp_path: Path) -> None:
    store = open_(tmp_path)
    append(store, 0)
    store.disk.sync = lambda path, write: [write(), exit()][0]  # type: ignore
    with pytest.raises(SystemExit):
        store.commit()
    store.close()
    store = open_(tmp_path)
    assert store.clean
    assert seen(store) == []


def test_a_living_node_suffers_no_power_cut(tmp_path: Path) -> None:
    store = open_(tmp_path)
    with pytest.raises(StorageError, match="open in another process"):
        power_cut(tmp_path, random.Random(1).random())
    store.close()
    with pytest.raises(StorageError, match="no store"):
        power_cut(tmp_path / "elsewhere", random.Random(1).random())


def test_a_sound_frame_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    file = journal.Journal(tmp_path / "journal", journal.boot_digest("b"))
    file.resume(1, 0)
    file.begin()
    file.append(["nonsense"])  # type: ignore[list-item]
    file.close()
    with pytest.raises(StorageError, match="is not floodmark's"):
        journal.read(tmp_path / "journal")


def test_the_host_has_a_boot_id() -> None:
    assert datadir.host_boot_id() == datadir.host_boot_id() != ""
