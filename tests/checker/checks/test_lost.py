"""Golden stories: no lost acknowledged write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.checker.story import Story, against, one

Final = tuple[int, int, int | None]


@pytest.mark.parametrize(
    ("finals", "again", "vanished"),
    [
        # Each final read: where it began, the HW it stated, the offset of the record it got.
        ([(2, -1, 3)], None, {2}),
        ([(0, -1, 3), (2, -1, 4)], None, {0, 1, 2}),
        ([(-1, -1, 3)], None, {0, 1, 2}),
        ([(2, -1, 3)], (1, 3), {2}),
        ([(0, -1, 3)], (2, 9), {0, 1, 2}),
        ([(0, 3, None)], None, {3, 4, 5}),
        ([(0, 3, None), (0, -1, None)], None, {3, 4, 5}),
        ([(0, 3, None), (0, 5, None)], None, {5}),
        ([(0, 0, None)], None, {0, 1, 2, 3, 4, 5}),
        ([(0, 3, None)], (2, 9), {3, 4, 5}),
    ],
)
def test_which_records_final_readers_should_have_got_again(
    tmp_path: Path, finals: list[Final], again: tuple[int, int] | None, vanished: set[int]
) -> None:
    """Six records were read, one of them perhaps at two offsets, and not all are there later."""

    def told() -> Story:
        s = Story()
        s.run["promise"]["contiguous_offsets"] = False
        s.send(10, 6, at=0)
        s.poll((0, 10, 6), process=8)
        if again is not None:
            s.poll((again[1], 10 + again[0]), process=9)
        for n, (start, hw, at) in enumerate(finals):
            records = [] if at is None else [(at, 10 + at)]
            s.poll(*records, start=start, hw=hw if at is None else -1, process=90 + n, final=True)
        return s

    found = one(told().check(tmp_path / "whole"), "vanished")
    assert found.count == len(vanished)
    assert found.offset == min(vanished)
    assert [w.offset for w in found.witnesses] == sorted(vanished)
    s = told()
    s.run["history_whole"] = False
    assert "vanished" not in against(s.check(tmp_path / "with holes"))
    s = told()
    s.log("n1", (10, 6))
    dumped = {a.name for a in s.check(tmp_path / "dumped").anomalies}
    assert ("vanished" in dumped) == (finals[0][2] is not None), "a log holds what is above the HW"
