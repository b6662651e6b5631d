"""A majority is what counting says (other rules: `scripts/rules.txt` and `scripts/isr.txt`)."""

from __future__ import annotations

from itertools import product

from node.core.high_watermark import majority_high_watermark


def test_a_majority_is_what_counting_says() -> None:
    """All groups up to five voters: the highest offset that more than half of them have."""
    for voters in range(1, 6):
        names = [f"v{i}" for i in range(voters)]
        for ends in product(range(4), repeat=voters):
            had = [o for o in range(1, 4) if 2 * sum(e >= o for e in ends) > voters]
            leos = dict(zip(names, ends, strict=True))
            found = majority_high_watermark(names, leos, epoch_start=0)
            assert found == (max(had) if had else None), ends
