"""Histories that say less than they could: no verdict is better founded than what is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.formats.anomalies import CATALOGUE, Knows
from checker.formats.verdict import Verdict
from tests.support.checker.story import P, Story, against, one
from tests.support.checker.weakened import campaign
from tests.support.paths import ROOT

SAMPLE = 25
"""How many weakened histories the first tier judges; nightly tests judge 2,000."""


def test_a_sample_of_weakened_histories() -> None:
    assert campaign(SAMPLE)[1] == []


@pytest.mark.nightly
def test_many_weakened_histories() -> None:
    tried, wrong = campaign(2_000)
    assert wrong == []
    assert min(tried[f"form {form}"] for form in ("own", "edn", "jsonl")) > 500


def test_the_document_says_what_each_anomaly_must_know() -> None:
    text = (ROOT / "docs" / "checks.md").read_text().partition("| it must say |")[2]
    said: dict[str, set[str]] = {}
    for line in text.partition("\n\n")[0].splitlines()[2:]:
        name, names = line.strip("|").split("|")
        said.setdefault(name.strip(), set()).update(each.strip() for each in names.split(","))
    assert said == {
        known.value: {kind.name for kind in CATALOGUE if known in kind.knows} for known in Knows
    }


# -- one specimen of each class


def test_one_visible_record_of_an_unknown_batch_makes_the_others_due(tmp_path: Path) -> None:
    s = Story(capabilities=[])
    s.send(100, 3, outcome="info")
    s.final((0, 100, 2), at_end=True)
    assert against(s.check(tmp_path)) == {"unseen": 1}


@pytest.mark.parametrize(("begin", "found"), [(9, {"unseen": 1}), (7, {})])
def test_one_visible_side_of_an_unknown_transaction_makes_the_other_due(
    tmp_path: Path, begin: int, found: dict[str, int]
) -> None:
    """From the time on at which it was seen: before, it may not have been committed."""
    s = Story(P, "log-1", capabilities=[])
    s.txn((10, -1), (20, -1, "log-1"), outcome="info", begin=0, end=2)
    s.final((0, 10), begin=5, end=8)
    s.poll(start=0, partition="log-1", process=98, final=True, begin=begin, end=20)
    result = s.check(tmp_path)
    assert against(result) == found
    assert result.verdict is (Verdict.INVALID if found else Verdict.UNKNOWN)


@pytest.mark.parametrize(("begin", "found"), [(3, {"vanished": 1}), (1, {})])
def test_a_final_read_before_a_record_was_read_says_nothing_of_it(
    tmp_path: Path, begin: int, found: dict[str, int]
) -> None:
    s = Story(capabilities=[])
    s.send(10, at=0, begin=0, end=1)
    s.poll((0, 10), start=0, begin=1, end=2)
    s.final(begin=begin, end=4, at_end=True)
    result = s.check(tmp_path)
    assert against(result) == found
    assert result.verdict is (Verdict.INVALID if found else Verdict.UNKNOWN)


def test_a_reader_that_began_at_the_latest_passed_over_nothing(tmp_path: Path) -> None:
    s = Story(capabilities=[])
    s.send(10, at=0)
    s.send(20, at=1)
    s.poll((1, 20))
    result = s.check(tmp_path)
    assert (against(result), result.verdict) == ({}, Verdict.UNKNOWN)


def test_order_is_that_of_time_and_not_of_numbers(tmp_path: Path) -> None:
    s = Story(capabilities=[])
    s.busy()
    s.final((0, 1_000_000, 12))
    whole = s.check(tmp_path / "rising")
    s.history = [type(op)(**{**_fields(op), "op": 999 - op.op}) for op in s.history]
    s.run["source"] = "own"
    falling = s.check(tmp_path / "falling")
    assert whole.verdict is falling.verdict is Verdict.VALID


def _fields(op: object) -> dict[str, object]:
    return {name: getattr(op, name) for name in op.__struct_fields__}  # type: ignore[attr-defined]


@pytest.mark.parametrize("of_run", [True, False])
def test_a_reader_that_reads_uncommitted_may_see_what_aborts(tmp_path: Path, of_run: bool) -> None:
    s = Story(capabilities=[])
    s.send(10, outcome="fail")
    s.poll((0, 10), start=0)
    if of_run:
        s.run["promise"]["isolation"] = "read_uncommitted"
    else:
        last = {**_fields(s.history[-1]), "isolation": "read_uncommitted"}
        s.history[-1] = type(s.history[-1])(**last)
    result = s.check(tmp_path)
    assert against(result) == {}
    assert one(result, "aborted-read").allowed


def test_a_field_of_the_promise_that_is_not_known_is_an_error(tmp_path: Path) -> None:
    s = Story(capabilities=[])
    s.send(10, outcome="fail")
    s.poll((0, 10), start=0)
    s.run["promise"]["isolaton"] = "read_uncommitted"
    result = s.check(tmp_path)
    assert result.verdict is Verdict.UNKNOWN
    assert "'isolaton'" in result.problems[0]


def test_at_least_once_may_append_twice(tmp_path: Path) -> None:
    s = Story(capabilities=[])
    s.send(10, at=0)
    s.poll((0, 10), (1, 10), start=0)
    assert set(against(s.check(tmp_path / "once"))) == {"duplicate"}
    s.run["promise"]["delivery"] = "at-least-once"
    assert against(s.check(tmp_path / "again")) == {}


@pytest.mark.parametrize("field", ["retention", "compaction"])
def test_what_may_have_been_deleted_is_not_missed(tmp_path: Path, field: str) -> None:
    s = Story(capabilities=[])
    s.run["promise"] |= {field: True, "contiguous_offsets": False}
    s.send(10, at=0)
    s.send(20, at=1)
    s.poll((0, 10), (1, 20), start=0)
    s.final((1, 20), at_end=True)
    result = s.check(tmp_path)
    assert (against(result), result.verdict) == ({}, Verdict.UNKNOWN)


def test_a_clock_that_goes_back_shows_no_future(tmp_path: Path) -> None:
    s = Story(capabilities=[])
    s.send(10, at=0, process=1, begin=9, end=10)
    s.poll((0, 10), start=0, process=2, begin=20, end=5)
    s.as_told = True
    result = s.check(tmp_path)
    assert (against(result), result.verdict) == ({}, Verdict.UNKNOWN)


def test_overlapping_operations_of_a_process_are_told(tmp_path: Path) -> None:
    s = Story(capabilities=[])
    s.send(10, at=5, begin=0, end=9)
    s.send(20, at=4, begin=1, end=8)
    result = s.check(tmp_path)
    assert (against(result), result.verdict) == ({}, Verdict.UNKNOWN)
    assert "A process does one operation after another" in result.problems[0]


def test_a_value_used_twice_shows_no_future(tmp_path: Path) -> None:
    s = Story(capabilities=[])
    s.send(10, at=0, begin=0, end=1)
    s.poll((0, 10), start=0, begin=2, end=3)
    s.send(10, at=1, process=2, begin=4, end=5)
    result = s.check(tmp_path)
    assert (against(result), result.verdict) == ({}, Verdict.UNKNOWN)


def test_a_larger_component_than_one_that_has_a_name(tmp_path: Path) -> None:
    """Two transactions read each other; a third is behind one of them in real time, and before."""
    s = Story(P, "log-1", "log-2", capabilities=[])
    s.txn((10, 0), reads=[("log-1", (0, 20))], process=1, begin=0, end=9)
    s.txn((20, 0, "log-1"), reads=[(0, 10), ("log-2", (0, 30))], process=2, begin=0, end=9)
    s.txn((30, 0, "log-2"), process=3, begin=10, end=11)
    found = {a.name for a in s.check(tmp_path).anomalies}
    assert {"g1c", "g1c-realtime"} <= found


def test_an_end_that_a_trace_tells_of_and_exits_do_not(tmp_path: Path) -> None:
    s = Story()
    batches = s.busy()
    s.final((0, 1_000_000, 12))
    s.agree(*batches)
    for incarnation in (1, 2):
        s.event("n1", "started", None, incarnation=incarnation, protocol="kafka", bugs=[])
    result = s.check(tmp_path / "lacks")
    assert (against(result), result.verdict) == ({}, Verdict.UNKNOWN)
    assert "incarnation 1 of n1" in result.sentence
    s.exits = [{"node": "n1", "incarnation": 1, "t_us": 1, "code": -9, "by": "kill"}]
    s.exits[0]["expected"] = True
    assert s.check(tmp_path / "has").verdict is Verdict.VALID
