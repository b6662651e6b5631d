"""Rows of one of many partitions, and long texts, which cost no more than their share."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from checker.evidence.columns import Columns, Words, rows
from checker.evidence.facts import RunFacts, TraceFiles
from checker.evidence.group import groups_of
from checker.ingest import edn

_MANY = 1_000
_NAMES = [f"log-{number:04}" for number in range(_MANY)]


def test_few_rows_carry_only_the_words_that_they_use() -> None:
    every = rows(RunFacts, 0, Words(np.arange(_MANY), _NAMES))
    taken = every.take(np.array([7, 7, 3]))
    assert sorted(taken.words("partition").words) == ["log-0003", "log-0007"]
    assert [taken.partition.words[code] for code in taken.partition.codes] == [
        *("log-0007", "log-0007", "log-0003")
    ]


def test_groups_have_their_rows_in_order() -> None:
    codes = np.arange(3 * _MANY) % _MANY
    groups = groups_of([rows(RunFacts, 0, Words(codes, _NAMES))])
    assert [group.partition for group in groups] == _NAMES
    assert [len(group.of(RunFacts)) for group in groups] == [3] * _MANY


def test_a_kind_that_a_group_lacks_costs_nothing_of_the_names_of_the_run() -> None:
    def names() -> list[str]:
        raise AssertionError("all names of the run were read for a kind without rows")

    nothing = Columns(TraceFiles, [], names)
    assert len(nothing) == len(nothing.take("node")) == 0


@pytest.mark.parametrize("piece", ["x y", "\\n", "a\\n"])
def test_a_long_text_in_edn_takes_a_few_bytes_a_character(piece: str) -> None:
    text = '{:value "' + piece * (300_000 // len(piece)) + '"}'
    tracemalloc.start()
    try:
        edn.parse(text)
        assert tracemalloc.get_traced_memory()[1] < 12 * len(text)
    finally:
        tracemalloc.stop()
