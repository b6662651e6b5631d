"""In-sync set and high watermark: the arithmetic. A leader's rules are in `scripts/isr.txt`."""

from __future__ import annotations

from itertools import product

import pytest

from node.core.high_watermark import isr_high_watermark, majority_high_watermark
from node.core.isr_change import may_expand

# -- arithmetic -----------------------------------------------------------------------------------

ENDS = {"n1": 9, "n2": 7, "n3": 4}


@pytest.mark.parametrize(
    ("maximal", "ends", "committed", "min_isr", "expected"),
    [
        pytest.param("n1 n2 n3", ENDS, 3, 2, 4, id="the slowest member decides"),
        pytest.param("n1 n2", ENDS, 2, 2, 7, id="who is no member does not count"),
        pytest.param("n1", ENDS, 1, 1, 9, id="alone"),
        pytest.param("n1", ENDS, 1, 2, None, id="below MinISR nothing commits"),
        pytest.param("n1 n2 n3", ENDS, 1, 2, None, id="the committed set is what is counted"),
        pytest.param("n1 n2 n4", ENDS, 3, 2, None, id="a member never heard of blocks"),
    ],
)
def test_the_high_watermark_of_an_isr(
    maximal: str, ends: dict[str, int], committed: int, min_isr: int, expected: int | None
) -> None:
    found = isr_high_watermark(maximal.split(), ends, committed_isr=committed, min_isr=min_isr)
    assert found == expected


@pytest.mark.parametrize(
    ("ends", "majority", "half"),
    [
        ([7], 7, 7),
        ([7, 0], None, 7),
        ([7, 6, 0], 6, 6),
        ([9, 9, 0, 0], None, 9),
        ([5, 4, 3, 2], 3, 4),
        ([4, 3, 2, 1, 0, 0], 1, 2),
    ],
)
def test_half_of_an_even_number_of_voters_is_no_majority(
    ends: list[int], majority: int | None, half: int
) -> None:
    names = [f"v{i}" for i in range(len(ends))]
    leos = dict(zip(names, ends, strict=True))
    assert majority_high_watermark(names, leos, epoch_start=0) == majority
    assert majority_high_watermark(names, leos, epoch_start=0, half_is_enough=True) == half


def test_a_majority_is_what_counting_says() -> None:
    """All groups up to five voters: the highest offset that more than half of them have."""
    for voters in range(1, 6):
        names = [f"v{i}" for i in range(voters)]
        for ends in product(range(4), repeat=voters):
            had = [o for o in range(1, 4) if 2 * sum(e >= o for e in ends) > voters]
            leos = dict(zip(names, ends, strict=True))
            found = majority_high_watermark(names, leos, epoch_start=0)
            assert found == (max(had) if had else None), ends


def test_older_terms_commit_only_with_a_record_of_this_one() -> None:
    ends = {"v1": 8, "v2": 7, "v3": 0}
    assert majority_high_watermark(("v1", "v2", "v3"), ends, epoch_start=7) is None
    assert majority_high_watermark(("v1", "v2", "v3"), ends, epoch_start=6) == 7
    assert majority_high_watermark(("v1", "v2", "v3"), {"v1": 8}, epoch_start=6) is None


@pytest.mark.parametrize(
    ("offset", "ago_us", "expected"),
    [(10, 0, True), (10, 1000, True), (10, 1001, False), (9, 0, False), (7, 0, False)],
)
def test_complete_enough_to_join(offset: int, ago_us: int, expected: bool) -> None:
    joins = may_expand(fetch_offset=offset, hw=7, leso=10, caught_up_ago_us=ago_us, lag_us=1000)
    assert joins is expected
