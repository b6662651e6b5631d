"""Golden stories: offsets, and values that should not be there."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

from checker.checks.findings import Origin
from checker.checks.phantom import joined_origins
from harness.formats.history import Read, RecordRun
from tests.support.checker.story import P, Story, against


def test_each_read_of_an_operation_has_its_own_start(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, at=3, process=2)
    records = ((0, 10), (3, 20))
    reads = [Read(partition=P, start=n, records=(RecordRun(n, value),)) for n, value in records]
    s.op("poll", "ok", reads=reads, process=9)
    assert against(s.check(tmp_path)) == {}


def test_of_sends_that_claim_one_value_the_one_that_begins_last_counts() -> None:
    claims = [Origin("log-1", op, 0, "c1", 0, first) for first, op in ((5, 9), (7, 2), (7, 3))]
    for parts in permutations([{8: claim} for claim in claims]):
        assert joined_origins(parts) == {8: claims[-1]}
