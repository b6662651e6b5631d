"""The simulator's disk does what the real store does, write by write and power cut by power cut."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.sim.disk import SimDisk
from harness.systems.floodmark.replica_logs import log_lines
from node.formats.errors import StorageError
from node.runtime.datadir import power_cut
from node.runtime.failing_disk import DiskFails, FailingDisk
from node.runtime.read_logs import dump_logs
from node.runtime.store import LmdbStorage
from tests.node.runtime.test_store_model import cuts, do_write, ends, many, observed, write

Step = tuple[str, str, int, int]


class Pair:
    """A real store and a simulated disk that live through the same."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.disk = SimDisk()
        slow = DiskFails("slow", delay_ms=7)
        self.disk.add_fault(1, slow)
        self.slept_s: list[float] = []
        self.slow = FailingDisk({1: slow}, self.slept_s.append)
        self.store = LmdbStorage(path, "boot", disk=self.slow)

    def reopen(self) -> None:
        self.disk.open()
        self.store = LmdbStorage(self.path, "boot", disk=self.slow)

    def do(self, step: Step, rng: random.Random) -> None:
        what = step[0]
        if what in ("commit", "flush"):
            before = len(self.slept_s)
            delay_us = self.disk.delay_us(flush=what == "flush")
            for one in (self.store, self.disk):
                (one.commit if what == "commit" else one.flush)()
            assert delay_us == 7000 * (len(self.slept_s) - before)
        elif what in ("kill", "power-cut"):
            self.store.close()
            if what == "power-cut":
                keep = rng.random()
                assert self.disk.power_cut(keep) == power_cut(self.path, keep)
            self.reopen()
        else:
            durable = rng.random() < 0.5
            for one in (self.store, self.disk):
                do_write(one, observed(self.store), step, durable=durable)  # type: ignore[arg-type]

    def same(self) -> None:
        assert observed(self.disk) == observed(self.store)  # type: ignore[arg-type]
        assert self.disk.clean == self.store.clean


@many
@given(st.lists(st.one_of(write, write, ends, cuts), max_size=40), st.integers(0, 1000))
def test_store_and_simulated_disk_are_one(steps: list[Step], seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as path:
        pair = Pair(path)
        for step in steps:
            pair.do(step, rng)
            pair.same()
        pair.store.close()
        simulated = list(log_lines("n1", pair.disk.dump(), {}, []))
        assert simulated == list(log_lines("n1", dump_logs(Path(path)), {}, []))


def test_a_disk_that_cannot_sync_refuses_the_turn_until_it_is_well_again() -> None:
    disk = SimDisk()
    disk.put("key", b"x", durable=True)
    disk.failing = "n1: fsync failed"
    with pytest.raises(StorageError, match="fsync failed"):
        disk.commit()
    disk.failing = ""
    disk.open()
    assert disk.get("key") is None
    disk.put("key", b"x", durable=True)
    disk.commit()
    disk.power_cut(0)
    disk.open()
    assert disk.get("key") == b"x"


def test_a_power_cut_takes_all_since_the_first_of_several_lies() -> None:
    disk = SimDisk()
    for number, key in enumerate("abc"):
        disk.put(key, b"x", durable=True)
        disk.commit()
        disk.add_fault(number, DiskFails("lying"))
    disk.power_cut(1.0)
    disk.open()
    assert [disk.get(key) for key in "abc"] == [b"x", None, None]


def test_a_disk_made_of_a_state_is_the_same_disk() -> None:
    disk = SimDisk()
    disk.append("log-0", 0, b"chain---", b"first", durable=True)
    disk.put("hw/log-0", b"1", durable=False)
    disk.commit()
    again = SimDisk.of(disk.state())
    assert again.state() == disk.state()
    assert again.contents() == disk.contents()
    for each in (disk, again):
        each.power_cut(0.0)
        each.open()
    assert again.get("hw/log-0") is None
    assert again.read("log-0", 0) == b"first"
    assert again.contents() == disk.contents()
