"""Every decoder and reader, fed with what is nearly right: it answers or refuses, nothing else."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.fuzz import BROKEN, CORPUS, kept, mutations, result
from tests.fuzz.targets import TARGETS, Target

EVIDENCE = (".jsonl", "run.json")
SLOW_TARGETS = ("parquet", "journal")


def examples_of(name: str) -> int:
    """Few where one takes milliseconds."""
    return 8 if name.endswith(EVIDENCE) else 15 if name in SLOW_TARGETS else 150


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_nearly_right_is_understood_or_refused(name: str) -> None:
    target = TARGETS[name]
    for data in (*target.seeds, *kept(name)):
        target.accepts(data)
    near = mutations([*target.seeds, *kept(name)], random.Random(f"near {name}"))
    for data in islice(near, examples_of(name)):
        target.accepts(data)


@pytest.mark.parametrize("name", [n for n in TARGETS if not n.endswith(EVIDENCE)])
def test_any_bytes_are_understood_or_refused(name: str) -> None:
    @settings(max_examples=examples_of(name) // 3, derandomize=True, deadline=None, database=None)
    @given(st.binary(max_size=200))
    def try_one(data: bytes) -> None:
        TARGETS[name].accepts(data)

    try_one()


@pytest.mark.parametrize("name", ["wire", "batches", "schedule", "edn", "jepsen-json"])
def test_a_seed_is_understood(name: str) -> None:
    assert all(TARGETS[name].accepts(seed) for seed in TARGETS[name].seeds)


def test_what_is_kept_has_a_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir() if folder.is_dir()} <= TARGETS.keys()


def test_a_broken_target_is_noticed() -> None:
    def bad(data: bytes) -> None:
        raise KeyError(data)

    with pytest.raises(KeyError):
        Target("bad", bad, ()).accepts(b"x")


def test_a_fuzzer_that_did_not_say_how_far_it_got_is_not_silent() -> None:
    assert result(0, "12 inputs, at most 80 MB") == "12 inputs, at most 80 MB"
    assert result(0, "").startswith(BROKEN)
    assert result(77, "").startswith(BROKEN)
