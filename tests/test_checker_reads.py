"""Golden stories: reads never reach beyond the high watermark."""

from __future__ import annotations

from pathlib import Path

from checker.inprocess import check_run
from checker.verdict import Verdict
from tests.checker.story import Story, against, one


def traced() -> Story:
    """A run whose traces tell of every high watermark."""
    s = Story(capabilities=["trace", "hw"])
    s.send(10, 2, at=0, begin=0, end=2)
    s.send(20, at=2, begin=0, end=2)
    return s


def test_reads_below_the_high_watermark(tmp_path: Path) -> None:
    s = traced()
    s.hw("n1", (10, 2), ms=1)
    s.poll((0, 10, 2), hw=2, begin=1, end=3)
    assert against(s.check(tmp_path)) == {}


def test_an_answer_that_reaches_beyond_what_it_states(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 3, at=0)
    read = s.poll((0, 10, 3), hw=2)
    found = one(s.check(tmp_path), "read-beyond-hw")
    assert (found.count, found.offset, found.witnesses[0].op) == (1, 2, read)
    assert "though the answer itself states 2" in found.message


def test_an_answer_beyond_what_any_replica_had_established(tmp_path: Path) -> None:
    s = traced()
    s.hw("n1", (10, 2), ms=1)
    s.poll((0, 10, 2), (2, 20), begin=1, end=3)
    s.hw("n1", (10, 2), (20, 1), ms=4)
    found = one(s.check(tmp_path), "read-beyond-hw")
    assert (found.count, found.offset) == (1, 2)
    assert "when 2 was the highest that any replica had established" in found.message
    assert found.witnesses[1].what == "high watermark"


def test_the_watermark_may_be_established_in_the_same_microsecond(tmp_path: Path) -> None:
    s = traced()
    s.hw("n2", (10, 2), (20, 1), ms=3)
    s.poll((0, 10, 2), (2, 20), begin=1, end=3)
    assert against(s.check(tmp_path)) == {}


def test_without_the_whole_trace_nothing_is_concluded(tmp_path: Path) -> None:
    s = traced()
    s.hw("n1", (10, 2), ms=1)
    s.poll((0, 10, 2), (2, 20), begin=1, end=3)
    folder = s.write(tmp_path)
    (folder / "trace" / "n2.jsonl").unlink()
    result = check_run(folder)
    assert against(result) == {}
    assert result.problems == ("trace/n2.jsonl is missing.",)
    assert result.verdict is Verdict.UNKNOWN


def test_a_watermark_that_goes_back_is_only_told(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.poll((0, 10), hw=2)
    s.poll(hw=1)
    result = s.check(tmp_path)
    assert against(result) == {}
    assert one(result, "hw-regression").allowed
