"""Stories of what counts as known of a partition: who read what, when, and in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.formats.history import OpType, Read, RecordRun
from tests.support.checker.story import P, Story, against


def told(s: Story, folder: Path) -> dict[str, int]:
    """All anomalies by name, allowed or not; lack of exercise left out."""
    return {a.name: a.count for a in s.check(folder).anomalies if a.name != "few-acks"}


def test_a_send_of_no_record_takes_no_place(tmp_path: Path) -> None:
    """Neither in the order of a process nor in real time, nor may anything be lost of it."""
    s = Story()
    s.send(10, 0, at=5, begin=0, end=1)
    s.send(20, at=3, begin=2, end=3)
    s.send(30, 0, at=3, begin=4, end=5)
    s.send(40, 0, at=0, process=2, begin=6, end=7)
    s.poll((3, 20))
    assert told(s, tmp_path) == {}


@pytest.mark.parametrize(("outcome", "final"), [("ok", True), ("info", True), ("ok", False)])
def test_only_an_answered_final_read_has_got_a_record_in_the_end(
    tmp_path: Path, outcome: OpType, final: bool
) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, at=1)
    s.poll((0, 10), process=7)
    s.poll((0, 10), process=98, outcome=outcome, final=final)
    s.final((1, 20))
    got = outcome == "ok" and final
    assert told(s, tmp_path) == ({"offset-hole": 1} | ({} if got else {"vanished": 1}))


def test_a_read_amid_a_rebalance_is_no_final_one(tmp_path: Path) -> None:
    """Nor does it answer in place of those that were due."""
    s = Story()
    s.send(10, at=0)
    s.send(20, at=1)
    read = Read(partition=P, records=(RecordRun(0, 10),))
    s.op("poll", "ok", reads=[read], process=7, rebalanced=(P,))
    s.final((1, 20))
    assert told(s, tmp_path / "got") == {"offset-hole": 1, "vanished": 1}
    s = Story()
    s.send(10, at=0)
    s.phase("final")
    s.op("poll", "ok", reads=[read], process=7, rebalanced=(P,))
    s.phase("end")
    assert "final-reads-stuck" in told(s, tmp_path / "answered")


def test_a_final_read_has_its_place_in_the_order_of_polls(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.final((0, 10, 2))
    s.final((0, 10, 2))
    assert told(s, tmp_path) == {"nonmonotonic-poll": 1}


@pytest.mark.parametrize(("done", "wrong"), [(1, {"future-read": 1}), (2, {"realtime-order": 1})])
def test_when_a_record_that_was_read_stood_there(
    tmp_path: Path, done: int, wrong: dict[str, int]
) -> None:
    """Not before it was sent, whatever somebody read; from the end of its first ok read on, though
    its own send was still under way."""
    s = Story()
    s.send(10, at=5, process=1, begin=2, end=20)
    s.poll((5, 10), process=8, begin=0, end=done)
    s.poll((5, 10), process=9, begin=0, end=30)
    s.poll((3, 20), process=7, begin=0, end=31)
    s.send(20, at=3, process=2, begin=4, end=6)
    assert told(s, tmp_path) == wrong


def test_the_value_0_is_as_good_as_any(tmp_path: Path) -> None:
    s = Story()
    s.send(0, at=0)
    s.send(5, at=1)
    s.poll((1, 5))
    assert against(s.check(tmp_path / "lost")) == {"lost": 1}
    s.poll((0, 0, 1), (1, 5), process=8)
    s.poll((2, 0), process=7)
    assert against(s.check(tmp_path / "read")) == {"duplicate": 1}


def test_runs_of_records_that_cannot_be_understood(tmp_path: Path) -> None:
    """Each of them stays what it is; of readable ones the values rise."""
    s = Story()
    s.send(0, 3, at=0)
    s.poll((0, 0, 3), (3, -1, 2))
    assert told(s, tmp_path) == {"unreadable-record": 2}


def test_a_transaction_is_proved_by_a_read_in_another_partition_only_if_it_is_its_own(
    tmp_path: Path,
) -> None:
    s = Story("log-0", "log-1")
    s.txn((10, 0), (20, 0, "log-1"), outcome="info")
    s.txn((11, 1), (21, 1, "log-1"), outcome="info", process=2)
    s.send(12, at=2, process=3)
    s.poll((2, 12), process=8)
    assert told(s, tmp_path / "neither") == {}
    s.poll((0, 20), partition="log-1", process=8)
    assert told(s, tmp_path / "one") == {"lost": 1}


def test_a_read_that_did_not_end_well_proves_no_send(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, outcome="info")
    s.send(20, at=5, process=2)
    s.poll((0, 10), outcome="info")
    s.poll((5, 20), process=8)
    assert told(s, tmp_path) == {}


def test_what_no_answered_read_returned_cannot_vanish(tmp_path: Path) -> None:
    s = Story()
    s.send(10, outcome="info")
    s.poll((0, 10), outcome="info")
    s.agree()
    assert told(s, tmp_path) == {}
