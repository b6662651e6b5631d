"""Random writes, commits, flushes, kills and power cuts against a dictionary."""

from __future__ import annotations

import copy
import random
import tempfile
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node.core import batch
from node.formats.errors import StorageError
from node.runtime.datadir import power_cut
from node.runtime.store import LmdbStorage

# One name is the beginning of another.
DURABLE = ("log", "log-1")
DEFERRED = ("\u00fcn\u00efcode", "lo")


@dataclass
class Model:
    """The contents of a store: logs as base offset -> (chain, data, count, epoch); small values."""

    logs: dict[str, dict[int, tuple[bytes, bytes, int, int]]] = field(default_factory=dict)
    values: dict[str, bytes] = field(default_factory=dict)

    def part(self, names: tuple[str, ...]) -> Model:
        """Only what belongs to `names`; a value's key is a log's name."""
        return Model(
            {k: v for k, v in self.logs.items() if k in names},
            {k: v for k, v in self.values.items() if k in names},
        )

    def joined(self, other: Model) -> Model:
        return Model({**self.logs, **other.logs}, {**self.values, **other.values})


def observed(store: LmdbStorage) -> Model:
    found = Model()
    for name in store.partitions():
        log = found.logs[name] = {}
        for one in store.batches(name):
            data = store.read(name, one.base_offset)
            assert len(data) == one.size
            log[one.base_offset] = (one.chain, data, one.count, one.epoch)
        assert list(log) == sorted(log)
    for name in DURABLE + DEFERRED:
        value = store.get(name)
        if value is not None:
            found.values[name] = value
    return found


names = st.sampled_from(DURABLE + DEFERRED)
small = st.integers(0, 5)
write = st.one_of(
    *[st.tuples(st.just("append"), names, small, st.integers(0, 3000))] * 3,
    st.tuples(st.just("truncate"), names, small, small),
    st.tuples(st.just("delete-head"), names, small, small),
    st.tuples(st.just("delete"), names, small, small),
    st.tuples(st.just("put"), names, small, small),
)
ends = st.tuples(
    st.sampled_from(["commit", "commit", "commit", "flush", "kill"]), names, small, small
)
cuts = st.tuples(st.just("power-cut"), names, small, small)
STEPS = {"min_size": 30, "max_size": 60}
"""So many that truncations, deleted heads and kills meet on one log."""
many = settings(
    max_examples=70, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


def do_write(
    store: LmdbStorage, model: Model, step: tuple[str, str, int, int], *, durable: bool
) -> None:
    what, name, at, extra = step
    if what == "append":
        count, epoch = 1 + extra % 3, 1 + extra % 5
        data = batch.stamp(batch.build(count, bytes([at]) * (extra + 3)), at, epoch)
        chain = bytes([at, extra % 256]) * 4
        store.append(name, at, chain, data, durable=durable)
        model.logs.setdefault(name, {})[at] = (chain, data, count, epoch)
    elif what == "truncate":
        store.truncate(name, at, durable=durable)
        if name in model.logs:
            model.logs[name] = {k: v for k, v in model.logs[name].items() if k < at}
    elif what == "delete-head":
        store.delete_head(name, at, durable=durable)
        if name in model.logs:
            model.logs[name] = {k: v for k, v in model.logs[name].items() if k >= at}
    elif what == "delete":
        store.delete(name, durable=durable)
        model.logs.pop(name, None)
    else:
        store.put(name, bytes(extra), durable=durable)
        model.values[name] = bytes(extra)


@many
@given(st.lists(st.one_of(write, write, ends), **STEPS), st.randoms(use_true_random=False))
def test_a_kill_loses_nothing_that_was_committed(
    steps: list[tuple[str, str, int, int]], rng: random.Random
) -> None:
    """Also when a log's durability changes from write to write."""
    with tempfile.TemporaryDirectory() as path:
        store = LmdbStorage(path, "boot", map_bytes=1 << 16, journal_limit=20_000)
        now, committed = Model(), Model()
        for step in steps:
            if step[0] in ("commit", "flush"):
                store.commit() if step[0] == "commit" else store.flush()
                committed = copy.deepcopy(now)
            elif step[0] == "kill":
                store.close()
                store = LmdbStorage(path, "boot", map_bytes=1 << 16, journal_limit=20_000)
                now = copy.deepcopy(committed)
                assert store.clean
            else:
                do_write(store, now, step, durable=rng.random() < 0.5)
            assert observed(store) == now
        store.close()


@many
@given(st.lists(st.one_of(write, write, ends, cuts), **STEPS), st.integers(0, 1000))
def test_a_power_cut_loses_only_a_tail_of_deferred_turns(
    steps: list[tuple[str, str, int, int]], seed: int
) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as path:
        store = LmdbStorage(path, "boot")
        now, committed = Model(), Model()
        survivors = [Model()]
        for step in [*steps, ("power-cut", "", 0, 0)]:
            if step[0] in ("commit", "flush"):
                store.commit() if step[0] == "commit" else store.flush()
                committed = copy.deepcopy(now)
                deferred = committed.part(DEFERRED)
                survivors = [*survivors, deferred] if step[0] == "commit" else [deferred]
            elif step[0] == "kill":
                store.close()
                store = LmdbStorage(path, "boot")
                now = copy.deepcopy(committed)
                assert observed(store) == now
            elif step[0] == "power-cut":
                store.close()
                power_cut(path, rng.random())
                store = LmdbStorage(path, "boot")
                now = observed(store)
                assert now.part(DURABLE) == committed.part(DURABLE)
                assert now.part(DEFERRED) in survivors
                if store.clean:
                    assert now == committed
                store.commit()
                committed = copy.deepcopy(now)
                # Among equal ones it may be the last that is still on disk.
                while survivors[-1] != now.part(DEFERRED):
                    survivors.pop()
            else:
                do_write(store, now, step, durable=step[1] in DURABLE)
        store.close()


def test_a_missing_batch_cannot_be_read() -> None:
    with tempfile.TemporaryDirectory() as path:
        store = LmdbStorage(path, "boot")
        do_write(store, Model(), ("append", "log", 5, 10), durable=True)
        for base in (-1, 0, 4, 6):
            with pytest.raises(StorageError, match=f"no batch starts at {base}"):
                store.read("log", base)
        store.close()
