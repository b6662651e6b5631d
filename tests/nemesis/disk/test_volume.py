"""The disk by itself, without the kernel: after a power cut it is what a simple model says, which
keeps a synced image and a list of what was done since."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

from nemesis.disk.extents import Extent, ExtentMap, ExtentStore, Zeros
from nemesis.disk.volume import Inode, Volume
from tests.support.paths import contents

NAMES = ("a", "b", "c", "folder/a", "folder/b")
FOLDER = "folder"


class ModelFile:
    """A file: what of it is on the disk, what is there now, and which bytes a sync would write."""

    def __init__(self) -> None:
        self.durable = bytearray()
        self.live = bytearray()
        self.dirty: set[int] = set()
        self.changes: list[tuple[int, str, int, bytes]] = []
        self.when_renamed: dict[int, tuple[bytearray, set[int]]] = {}

    def apply(self, to: bytearray, what: str, at: int, data: bytes) -> None:
        if what == "write":
            to.extend(bytes(max(0, at + len(data) - len(to))))
            to[at : at + len(data)] = data
        else:
            del to[at:]
            to.extend(bytes(at - len(to)))

    def change(self, number: int, what: str, at: int, data: bytes) -> None:
        before = len(self.live)
        self.apply(self.live, what, at, data)
        self.dirty |= set(range(at, at + len(data))) | set(range(before, len(self.live)))
        self.dirty = {each for each in self.dirty if each < len(self.live)}
        self.changes.append((number, what, at, data))

    def renamed(self, number: int) -> None:
        self.when_renamed[number] = bytearray(self.live), set(self.dirty)

    def fail(self) -> None:
        self.dirty.clear()
        self.changes.clear()
        self.when_renamed.clear()

    def sync(self, until: int | None = None) -> None:
        later = [change for change in self.changes if until is not None and change[0] > until]
        if len(later) == len(self.changes):
            return
        live, dirty = self.live, self.dirty
        if until is not None:
            live, dirty = self.when_renamed[until]
        del self.durable[len(live) :]
        self.durable.extend(bytes(len(live) - len(self.durable)))
        for at in dirty:
            self.durable[at] = live[at]
        self.live, self.dirty, self.changes = bytearray(live), set(), []
        for change in later:
            self.change(*change)


class Model:
    """A disk as one would describe it: images, and lists of operations."""

    def __init__(self) -> None:
        self.durable_names: dict[str, ModelFile] = {}
        self.names: dict[str, ModelFile] = {}
        self.operations: list[tuple[int, str, str, ModelFile | None]] = []
        self.carried: dict[int, ModelFile] = {}
        self.number = 0

    def carry_out(self, names: dict[str, ModelFile], operation: Any) -> None:
        _, what, path, other = operation
        if what == "make":
            names[path] = other
        elif what == "remove":
            del names[path]
        else:
            names[other] = names.pop(path)

    def named(self, what: str, path: str, other: Any = None) -> None:
        self.number += 1
        if what == "rename" and other in self.names:
            self.carried[self.number] = self.names[path]
            self.names[path].renamed(self.number)
        operation = (self.number, what, path, other)
        self.carry_out(self.names, operation)
        self.operations.append(operation)

    def changed(self, path: str, what: str, at: int, data: bytes = b"") -> None:
        self.number += 1
        self.names[path].change(self.number, what, at, data)

    def sync(self, *files: ModelFile) -> None:
        for operation in self.operations:
            self.carry_out(self.durable_names, operation)
            if operation[0] in self.carried:
                self.carried[operation[0]].sync(operation[0])
        self.operations.clear()
        for file in files:
            file.sync()

    def files(self) -> list[ModelFile]:
        known = [*self.names.values(), *self.durable_names.values()]
        known += [other for *_, other in self.operations if isinstance(other, ModelFile)]
        return list({id(file): file for file in known}.values())

    def write_back(self, until: int) -> None:
        due = [file for file in self.files() if file.changes and file.changes[0][0] <= until]
        if due or (self.operations and self.operations[0][0] <= until):
            self.sync(*due)

    def after_cut(self, keep: float) -> dict[str, bytes]:
        files = self.files()
        changes = sorted((c[0], f, c) for f in files for c in f.changes)
        room = round(sum(len(c[3]) for _, _, c in changes) * keep)
        images = {id(file): bytearray(file.durable) for file in files}
        last, done = 0, 0
        for number, file, (_, what, at, data) in changes:
            if done + len(data) > room:
                if done < room:
                    file.apply(images[id(file)], what, at, data[: room - done])
                    last = number
                break
            if done == room and not data and keep < 1:
                break
            file.apply(images[id(file)], what, at, data)
            done, last = done + len(data), number
        if keep == 1:
            last = self.number
        elif not changes:
            count = round(len(self.operations) * keep)
            last = self.operations[count - 1][0] if count else 0
        names = dict(self.durable_names)
        for operation in self.operations:
            if operation[0] <= last:
                self.carry_out(names, operation)
        return {path: bytes(images[id(file)]) for path, file in names.items()}


def at(volume: Volume, path: str) -> tuple[Inode, str]:
    """Return the folder of a path, and the last part of it."""
    folder, _, name = path.rpartition("/")
    top = volume.inodes[1]
    return (volume.find(top, folder)[0] if folder else top), name


def inode(volume: Volume, path: str) -> Inode:
    return volume.find(*at(volume, path))[0]


def step(rng: random.Random, volume: Volume, model: Model, *, failing: bool) -> None:
    """Do the same to both."""
    path, other = rng.choice(NAMES), rng.choice(NAMES)
    there = path in model.names
    what = rng.choice(("write", "append", "resize", "sync", "age", "remove", "rename", "fail"))
    if not there:
        volume.create(*at(volume, path), 0o644)
        model.named("make", path, ModelFile())
    elif what in ("write", "append"):
        size = len(model.names[path].live)
        offset = size if what == "append" else rng.randint(0, size + 3)
        data = rng.randbytes(rng.randint(1, 9))
        volume.write(inode(volume, path), data, offset)
        model.changed(path, "write", offset, data)
    elif what == "resize":
        size = rng.randint(0, 20)
        if size != len(model.names[path].live):
            volume.resize(inode(volume, path), size)
            model.changed(path, "resize", size)
    elif what == "sync":
        volume.sync(inode(volume, path))
        model.sync(model.names[path])
    elif what == "age":
        until = model.number - rng.randint(0, 20)
        volume.write_back(until)
        model.write_back(until)
    elif what == "remove":
        volume.remove(*at(volume, path))
        model.named("remove", path)
    elif what == "rename" and other != path:
        volume.rename(*at(volume, path), *at(volume, other), replace=True)
        model.named("rename", path, other)
    elif what == "fail" and failing:
        volume.fail_sync(inode(volume, path))
        model.names[path].fail()


def disk(folder: Path, **options: Any) -> Volume:
    (folder / "files" / FOLDER).mkdir(parents=True)
    return Volume(folder / "files", folder / "aside", **options)


def with_log(folder: Path, **options: Any) -> tuple[Volume, Inode]:
    """Return a disk with an empty file, and that file."""
    volume = disk(folder, **options)
    volume.create(volume.inodes[1], "log", 0o644)
    return volume, inode(volume, "log")


@pytest.mark.parametrize("seed", range(120))
def test_a_power_cut_leaves_what_the_model_says(tmp_path: Path, seed: int) -> None:
    """Data of a failed sync stays lost until it is written again, and many changes that are kept as
    one are undone as exactly."""
    rng = random.Random(seed)
    failing, merged = seed % 4 in (2, 3), seed % 4 in (1, 3)
    keep = 0.0 if failing or merged else (0.0, 1.0, rng.random())[seed % 3]
    # So small that much of it is in the file.
    volume = disk(tmp_path, memory_bytes=16, most_changes=8 if merged else 1000)
    model = Model()
    for _ in range(rng.randint(1, 200)):
        step(rng, volume, model, failing=failing)
        assert contents(tmp_path / "files") == {p: bytes(f.live) for p, f in model.names.items()}
    expected = model.after_cut(keep)
    volume.cut(keep)
    assert contents(tmp_path / "files") == expected
    assert os.listdir(tmp_path / "aside") == []


@pytest.mark.parametrize("seed", range(20))
def test_a_reordering_power_cut_keeps_whole_writes_but_for_one(tmp_path: Path, seed: int) -> None:
    """Each block was written once: after the cut it has all of the new bytes, none, or (one block)
    the first of them."""
    rng, blocks = random.Random(seed), 30
    volume, log = with_log(tmp_path)
    volume.write(log, bytes(blocks * 8), 0)
    volume.sync(log)
    for block in rng.sample(range(blocks), blocks):
        volume.write(log, b"x" * 8, block * 8)
    volume.cut(0.5, rng)
    data = (tmp_path / "files" / "log").read_bytes()
    found = [data[place : place + 8] for place in range(0, len(data), 8)]
    torn = [block for block in found if block not in (bytes(8), b"x" * 8)]
    assert len(torn) <= 1
    assert all(block.rstrip(b"\0").strip(b"x") == b"" for block in torn)
    assert 0 < found.count(b"x" * 8) < blocks


@pytest.mark.parametrize("seed", range(60))
def test_a_file_that_replaces_another_is_whole_or_not_there(tmp_path: Path, seed: int) -> None:
    """Whatever is synced beside it, and however many changes are kept as one."""
    rng = random.Random(seed)
    volume, log = with_log(tmp_path, most_changes=6 if seed % 2 else 1000)
    top = volume.inodes[1]
    versions = [b"old"]
    volume.create(top, "conf", 0o644)
    volume.write(inode(volume, "conf"), versions[0], 0)
    volume.sync(inode(volume, "conf"))
    for version in range(rng.randint(1, 3)):
        volume.create(top, "tmp", 0o644)
        versions.append(f"new {version}".encode())
        for place in range(len(versions[-1])):
            volume.write(inode(volume, "tmp"), versions[-1][place : place + 1], place)
        volume.rename(top, "tmp", top, "conf", replace=True)
        volume.write(log, rng.randbytes(9), 0)
        if rng.random() < 0.4:
            volume.sync(log)
            versions = versions[-1:]
    volume.cut(rng.random(), rng if seed % 3 else None)
    assert (tmp_path / "files" / "conf").read_bytes() in versions


def test_a_lie_costs_all_that_was_written_since(tmp_path: Path) -> None:
    volume, log = with_log(tmp_path)
    volume.write(log, b"synced,", 0)
    volume.sync(log)
    volume.write(log, b"kept,", 7)
    volume.lies_since = volume.last_change
    volume.write(log, b"believed,", 12)
    volume.sync(log)
    volume.write_back(volume.last_change)
    volume.create(volume.inodes[1], "other", 0o644)
    done = volume.cut(1.0)
    assert contents(tmp_path / "files") == {"log": b"synced,kept,"}
    assert (done.before, done.after) == (14, 5)


def test_what_is_there_already_is_refused_like_the_kernel_does(tmp_path: Path) -> None:
    volume = disk(tmp_path)
    top = volume.inodes[1]
    volume.create(top, "a", 0o644)
    volume.create(top, "b", 0o644)
    refused = {
        errno.EEXIST: lambda: volume.rename(top, "a", top, "b", replace=False),
        errno.EISDIR: lambda: volume.remove(top, FOLDER),
        errno.ENOTDIR: lambda: volume.rename(top, FOLDER, top, "a", replace=True),
        errno.ENOENT: lambda: volume.find(top, "c"),
    }
    for number, attempt in refused.items():
        with pytest.raises(OSError, match=os.strerror(number)):
            attempt()
    volume.create(*at(volume, "folder/x"), 0o644)
    with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)):
        volume.remove_folder(top, FOLDER)


def test_a_torn_write_is_of_what_was_synced_last_and_not_cut_off_since(tmp_path: Path) -> None:
    volume, log = with_log(tmp_path)
    for place in range(3):
        volume.write(log, b"x" * 8, place * 8)
        volume.sync(log)
    volume.rename(volume.inodes[1], "log", volume.inodes[1], "old", replace=True)
    assert volume.tear(0.5, 0.25) == "old is torn at byte 18 of 16..24"
    assert contents(tmp_path / "files") == {"log": b"x" * 18 + bytes(6)}
    volume.resize(log, 4)
    volume.sync(log)
    assert volume.last_synced() == {}


def test_a_file_can_be_linked_again_when_its_last_link_is_gone(tmp_path: Path) -> None:
    volume, log = with_log(tmp_path)
    for _ in range(2):
        volume.link(log, *at(volume, "lock"))
        assert inode(volume, "lock") is log
        volume.remove(*at(volume, "lock"))
    volume.make_symlink(*at(volume, "short"), "log")
    volume.link(inode(volume, "short"), *at(volume, "other"))
    assert os.readlink(tmp_path / "files" / "other") == "log"


def test_memory_is_bounded(tmp_path: Path) -> None:
    """Overwriting again and again without a sync keeps what was there in a file, and once only."""
    volume, log = with_log(tmp_path, memory_bytes=4096, most_changes=100)
    volume.write(log, b"o" * 65536, 0)
    volume.sync(log)
    for place in range(2000):
        volume.write(log, b"n" * 4096, place % 16 * 4096)
    assert volume._store.in_memory <= 4096
    assert volume.told_apart <= 101
    volume.cut(0)
    assert contents(tmp_path / "files") == {"log": b"o" * 65536}


def test_extents_do_not_overlap_and_the_first_counts(tmp_path: Path) -> None:
    store = ExtentStore(tmp_path)
    extents = ExtentMap(store)
    for offset, data in ((4, b"bb"), (0, b"aaaaaa"), (3, b"cccccc")):
        store.in_memory += len(data)
        extents.add(Extent(offset, data))
    extents.add(Extent(8, Zeros(4)))
    assert list(extents) == [(0, b"aaaa"), (4, b"bb"), (6, b"ccc"), (9, Zeros(3))]
    extents.remove(1, 5)
    assert list(extents) == [(0, b"a"), (5, b"b"), (6, b"ccc"), (9, Zeros(3))]
    assert store.in_memory == 5
