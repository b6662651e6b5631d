"""The tree of prefixes against its definition: a prefix of a log is one of its beginnings."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.outside_judge.prefixes import EMPTY, Prefix, Prefixes

Log = tuple[tuple[int, int], ...]
"""Batches as (records, contents)."""


def prefix_of(log: Log) -> Prefix:
    if not log:
        return EMPTY
    return Prefix(sum(count for count, _ in log), hashlib.sha256(repr(log).encode()).hexdigest())


# Each step: keep so many batches of an earlier log, and append one.
STEPS = st.lists(
    st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(1, 3), st.integers(0, 2)),
    min_size=1,
    max_size=25,
)


@given(steps=STEPS)
def test_containment_is_as_defined(steps: list[tuple[int, int, int, int]]) -> None:
    tree, logs = Prefixes(), [()]  # type: tuple[Prefixes, list[Log]]
    for which, keep, count, contents in steps:
        before = logs[which % len(logs)]
        before = before[: keep % (len(before) + 1)]
        made = (*before, (count, contents))
        tree.add(prefix_of(made), prefix_of(before))
        logs.append(made)
    for log in logs:
        for other in logs:
            wanted = log[: len(other)] == other
            assert tree.contains(prefix_of(log), prefix_of(other)) is wanted
        for offset in range(prefix_of(log).end + 2):
            found = max(
                (log[:n] for n in range(len(log) + 1) if prefix_of(log[:n]).end <= offset), key=len
            )
            assert tree.below(prefix_of(log), offset) == prefix_of(found)


def test_what_nobody_appended_is_unknown() -> None:
    tree = Prefixes()
    with pytest.raises(KeyError):
        tree.add(Prefix(5, "b"), Prefix(3, "a"))
