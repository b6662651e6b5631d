"""The evidence that the checks of a group and its curves rest on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checker.evidence.contents import READ_OK, evidence
from checker.evidence.group import groups_of
from checker.output import curves
from tests.support.checker.goldens import GOLDENS
from tests.support.checker.story import facts_of


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_where_sends_begin_is_known_from_reads(tmp_path: Path, name: str) -> None:
    """Hold that reads suffice: acknowledged sends add nothing to them here."""
    for bad in (True, False):
        for group in groups_of(facts_of(GOLDENS[name].story(bad=bad).write(tmp_path / str(bad)))):
            known = evidence(group)
            if not group.partition or not len(known.sends):
                continue
            lowest, flags = known.place_of(known.sends.value)
            stated = known.sends.offset
            assert known.bases.tolist() == np.where(stated >= 0, stated, lowest).tolist()
            assert known.first_read.tolist() == ((flags & READ_OK) != 0).tolist()


NUMBERS = st.lists(st.integers(-50, 50), max_size=30)


@given(NUMBERS, NUMBERS, st.sampled_from([0, 1 << 20]))
def test_numbers_are_counted_as_they_are_met(
    first: list[int], second: list[int], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "_MOST_COUNTERS", most)
        columns = [np.array(numbers, np.int64) for numbers in (first, second)]
        found = [column.tolist() for column in curves._counted(*columns)]
    every = sorted({*first, *second})
    assert found == [every, [first.count(n) for n in every], [second.count(n) for n in every]]
