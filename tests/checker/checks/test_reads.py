"""Golden stories: reads never reach beyond the high watermark."""

from __future__ import annotations

from pathlib import Path

from checker.engine.local import check_run
from checker.formats.anomalies import PROPERTIES, READS
from checker.formats.verdict import RunResult, Verdict
from tests.support.checker.story import Story, against, one


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


def test_reads_are_judged_by_the_traces_where_no_answer_states_a_high_watermark(
    tmp_path: Path,
) -> None:
    for capability, examined in (("hw", 1), ("epochs", 0)):
        s = Story(capabilities=["trace", capability])
        s.send(10, 2, at=0)
        s.hw("n1", (10, 2))
        s.poll((0, 10, 2))
        found = s.check(tmp_path / capability).properties[PROPERTIES.index(READS)]
        assert found.examined == examined


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


def fresh() -> Story:
    """Answers are promised to be at most 10 ms old; three records are acknowledged at 5 ms."""
    s = Story()
    s.run["promise"]["staleness_ms"] = 10
    s.send(10, 3, at=0, begin=0, end=5)
    return s


def test_an_answer_that_knows_the_end_is_fresh(tmp_path: Path) -> None:
    s = fresh()
    s.poll((0, 10), hw=3, begin=20, end=21)
    s.poll(start=3, begin=22, end=23)
    s.poll((0, 10), begin=24, end=25, process=8)
    assert against(s.check(tmp_path)) == {}


def test_answers_that_state_an_old_end(tmp_path: Path) -> None:
    s = fresh()
    old = s.poll((0, 10), (1, 11), hw=2, begin=16, end=17)
    s.poll(start=2, begin=18, end=19)
    found = one(s.check(tmp_path), "stale-read")
    assert (found.count, found.offset, found.witnesses[0].op) == (2, 2, old)
    assert "older than 10 ms" in found.message
    assert "offset 2 was known 0.005 s into it" in found.message


def test_what_was_read_must_stay_visible_too(tmp_path: Path) -> None:
    s = Story()
    s.run["promise"]["staleness_ms"] = 0
    s.send(10, outcome="info", begin=0, end=9)
    s.poll((0, 10), begin=1, end=2, process=8)
    s.poll(start=0, begin=2, end=3)
    assert against(s.check(tmp_path / "at-once")) == {}
    s.poll(start=0, begin=3, end=4, process=7)
    assert against(s.check(tmp_path / "later")) == {"stale-read": 1}


def test_a_weak_acknowledgement_makes_no_answer_stale(tmp_path: Path) -> None:
    s = Story()
    s.run["promise"]["staleness_ms"] = 0
    s.send(10, at=0, acks=1, begin=0, end=5)
    s.poll(start=0, begin=20, end=21)
    assert against(s.check(tmp_path)) == {}


def test_the_highest_watermark_of_all_counts_not_the_latest(tmp_path: Path) -> None:
    s = traced()
    s.hw("n1", (10, 2), (20, 1), ms=1)
    s.hw("n2", (10, 2), ms=2)
    s.poll((0, 10, 2), (2, 20), begin=3, end=4)
    assert against(s.check(tmp_path)) == {}


def test_before_the_first_watermark_nothing_may_be_read(tmp_path: Path) -> None:
    s = traced()
    s.poll((0, 10, 2), begin=3, end=4)
    s.hw("n1", (10, 2), ms=5)
    assert against(s.check(tmp_path)) == {"read-beyond-hw": 2}


def test_traces_that_lack_the_watermarks_limit_nothing(tmp_path: Path) -> None:
    s = traced()
    s.poll((0, 10, 2), begin=3, end=4)
    result = s.check(tmp_path / "all")
    assert against(result) == {}
    assert _reads(result) == (
        "unknown: no trace has a high watermark of log-0, though it was read."
    )
    s.hw("n2", (10, 1), ms=1)
    s.agree((10, 2))
    assert _reads(s.check(tmp_path / "one replica's")) == (
        "unknown: the trace of n1 has no high watermark of log-0, though its log or its answers "
        "state one."
    )


def _reads(result: RunResult) -> str:
    found = result.properties[PROPERTIES.index(READS)]
    return f"{found.verdict}: {found.reason}"


def test_records_without_a_watermark_do_not_say_where_the_log_ends(tmp_path: Path) -> None:
    s = Story()
    s.run["promise"]["staleness_ms"] = 10
    s.send(10, at=0, begin=0, end=5)
    s.poll((0, 10), start=0, begin=16, end=17)
    assert against(s.check(tmp_path)) == {}


def test_a_watermark_of_0_permits_nothing(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.poll((0, 10), hw=0)
    assert against(s.check(tmp_path)) == {"read-beyond-hw": 1}


def test_whose_watermark_went_back(tmp_path: Path) -> None:
    """Only answers that state one count, only ok ones, and each process has seen its own."""
    s = Story()
    for hw, outcome, process in ((2, "ok", 8), (-1, "ok", 8), (1, "info", 8), (1, "ok", 9)):
        s.poll(hw=hw, outcome=outcome, process=process)  # type: ignore[arg-type]
    assert not s.check(tmp_path / "never").anomalies[1:], "but for too few acknowledgements"
    s.poll(hw=0, process=9)
    s.poll(hw=3, process=9)
    found = one(s.check(tmp_path / "once"), "hw-regression")
    assert (found.count, found.offset) == (1, 0)
