"""Retention: what was deleted by right is not lost, is not owed, and is not claimed either."""

from __future__ import annotations

from pathlib import Path

import msgspec

from checker.formats.verdict import RunResult, Verdict
from tests.support.checker.story import NODES, Story, against

LOST = "no-lost-acknowledged-write"
LOG = "log-and-metadata"
SENT = 12


def kept(start: int, *, keep: int = 2, retention: bool = True) -> Story:
    """Twelve records, acknowledged and committed; the first two were read. The logs begin at
    `start`, and so do the final reads."""
    s = Story()
    s.run["capabilities"].append("hw")
    s.run["promise"] |= {"retention": retention, "retention_records": keep * retention}
    batches = [(10 * n, 1) for n in range(1, SENT + 1)]
    for at, (value, _) in enumerate(batches):
        s.send(value, at=at)
    s.poll((0, 10), (1, 20), start=0)
    for node in NODES:
        s.log(node, *batches)
        s.hw(node, *batches, ms=0.1)
        head, *lines = s.logs[node]
        s.logs[node] = [msgspec.structs.replace(head, offset=start, epochs=()), *lines[start:]]
    s.phase("heal")
    s.phase("in_sync")
    s.phase("stop_writing")
    s.phase("final")
    again = [(at, batches[at][0]) for at in range(start, SENT)]
    s.poll(*again, start=start, process=99, final=True, hw=SENT)
    s.phase("end")
    return s


def prop(result: RunResult, name: str) -> tuple[Verdict, int]:
    found = next(each for each in result.properties if each.property == name)
    return found.verdict, found.examined


def test_what_was_deleted_by_right_is_not_lost(tmp_path: Path) -> None:
    found = kept(10).check(tmp_path)
    assert against(found) == {}
    # Two were read before, two are there; of the eight others nothing is claimed.
    assert prop(found, LOST) == (Verdict.VALID, 4)
    assert "10 more were deleted by retention, 8 of them unread and not examined" in found.sentence


def test_without_the_promise_it_is(tmp_path: Path) -> None:
    found = kept(10, retention=False).check(tmp_path)
    assert against(found) == {"log-hole": 30, "lost": 8, "vanished": 2}
    assert prop(found, LOST)[0] is Verdict.INVALID


def test_fewer_than_retention_keeps_are_not_deleted_by_right(tmp_path: Path) -> None:
    found = kept(11).check(tmp_path)
    assert against(found) == {"early-deletion": 3}
    assert prop(found, LOG)[0] is Verdict.INVALID
    first = found.anomalies[0].message
    assert "it began at 11, the highest high watermark was 12" in first
    assert "the newest 2 committed records are to be kept" in first


def test_where_no_number_is_promised_none_is_missed(tmp_path: Path) -> None:
    assert against(kept(11, keep=0).check(tmp_path)) == {}


def test_what_is_above_the_start_is_owed_as_ever(tmp_path: Path) -> None:
    s = kept(9)
    for node in NODES:
        del s.logs[node][-1]
        s.logs[node][0] = msgspec.structs.replace(s.logs[node][0], leo=11, hw=11)
    found = s.check(tmp_path)
    assert prop(found, LOST)[0] is Verdict.INVALID


def test_without_watermarks_deletions_are_not_judged(tmp_path: Path) -> None:
    s = kept(11)
    s.traces["n2"] = []
    found = s.check(tmp_path)
    assert "early-deletion" not in against(found)
    assert prop(found, LOG)[0] is Verdict.UNKNOWN


def test_a_trace_shows_what_a_dump_does_not(tmp_path: Path) -> None:
    """A head that was deleted too early, and came back before the run was over."""
    s = kept(2)
    s.event("n1", "deleted", start=11, leo=12, hash="", ms=0.2)
    assert against(s.check(tmp_path / "early")) == {"early-deletion": 1}
    s.traces["n1"].pop()
    s.event("n1", "deleted", start=2, leo=12, hash="", ms=0.05)
    assert against(s.check(tmp_path / "before the HW")) == {"early-deletion": 1}


def test_an_epoch_cache_may_keep_the_epoch_before_the_start(tmp_path: Path) -> None:
    s = kept(3)
    for node in NODES:
        s.logs[node][0] = msgspec.structs.replace(s.logs[node][0], epochs=((0, 2),))
    assert against(s.check(tmp_path / "kept")) == {}
    for node in NODES:
        s.logs[node][0] = msgspec.structs.replace(s.logs[node][0], epochs=((0, 0), (1, 2)))
    assert against(s.check(tmp_path / "stale")) == {"epoch-cache-mismatch": 3}


def test_the_highest_watermark_of_all_times_counts(tmp_path: Path) -> None:
    """A new leader may begin with less."""
    s = kept(10)
    s.hw("n2", (10, 1), ms=0.15)
    s.event("n1", "deleted", start=10, leo=12, hash="", ms=0.2)
    assert against(s.check(tmp_path)) == {}


def test_a_log_that_lost_nothing_may_be_shorter_than_retention_keeps(tmp_path: Path) -> None:
    s = kept(0, keep=20)
    s.event("n1", "deleted", start=0, leo=0, hash="", ms=0.2)
    assert against(s.check(tmp_path)) == {}
