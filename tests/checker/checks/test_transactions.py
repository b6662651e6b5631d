"""Stories of transactions: what they see of each other, and cycles that no order explains."""

from __future__ import annotations

from pathlib import Path

from tests.support.checker.story import Story, against, one

Q = "log-1"


def told(s: Story, folder: Path) -> dict[str, int]:
    """All anomalies by name, allowed or not; lack of exercise left out."""
    return {a.name: a.count for a in s.check(folder).anomalies if a.name != "few-acks"}


def test_a_cycle_names_the_record_that_closes_it(tmp_path: Path) -> None:
    """The first record has the value 0, which is as good as any."""
    s = Story()
    s.send(9, at=0, process=3, begin=0, end=9)
    s.txn((0, 1), (2, 3), process=1, begin=0, end=9)
    s.txn((1, 2), (3, 4), process=2, begin=0, end=9)
    found = one(s.check(tmp_path), "g0")
    assert (found.count, found.offset) == (1, 2)


def test_each_reader_of_a_writer_depends_on_it(tmp_path: Path) -> None:
    """Three read what the first wrote; it read what the last of them wrote."""
    s = Story("log-0", Q)
    s.txn((10, 0), reads=[(Q, (0, 20))], process=1, begin=0, end=9)
    s.poll((0, 10), process=2, begin=0, end=9)
    s.poll((0, 10), process=3, begin=0, end=9)
    s.txn((20, 0, Q), reads=[(0, 10)], process=4, begin=0, end=9)
    assert told(s, tmp_path) == {"g1c": 1}


def test_two_cycles_apart_are_two(tmp_path: Path) -> None:
    s = Story("log-0", Q)
    for n, process in ((0, 1), (1, 3)):
        s.txn((10 + n, n), reads=[(Q, (n, 20 + n))], process=process, begin=0, end=9)
        s.txn((20 + n, n, Q), reads=[(n, 10 + n)], process=process + 1, begin=0, end=9)
    assert told(s, tmp_path) == {"g1c": 2}


def test_a_refused_transaction_that_ended_comes_before_what_was_begun_later(tmp_path: Path) -> None:
    """It read what was sent after it; one of unknown outcome may have done so late."""
    for outcome, found in (("fail", {"g1c-realtime"}), ("info", set[str]())):
        s = Story("log-0", Q)
        s.txn((20, 0, Q), reads=[(0, 10)], process=1, begin=1, end=3, outcome=outcome)  # type: ignore[arg-type]
        s.txn((10, 0), reads=[], process=2, begin=4, end=9)
        s.txn((11, 1), (21, 1, Q), process=3, begin=0, end=9)
        assert {n for n in told(s, tmp_path / outcome) if n.startswith("g")} == found


def test_a_record_that_cannot_be_understood_hides_no_writer(tmp_path: Path) -> None:
    s = Story()
    s.txn((10, 0), (12, 2), process=1, begin=0, end=9)
    s.txn((11, 1), (13, 3), process=2, begin=0, end=9)
    s.poll((1, -1), process=7)
    assert "g0" in told(s, tmp_path)


def test_real_time_reaches_over_many_moments(tmp_path: Path) -> None:
    """The reader ended long before the send that it saw the fruits of was begun."""
    s = Story("log-0", Q)
    s.txn((20, 0, Q), reads=[(0, 10)], process=1, begin=0, end=99)
    s.poll((0, 20), partition=Q, process=2, begin=1, end=2)
    for n in range(3):
        s.txn((30 + n, n + 1), (40 + n, n + 1, Q), process=10 + n, begin=3 + n, end=3.5 + n)
    s.send(10, at=0, process=3, begin=50, end=60)
    assert "g1c-realtime" in against(s.check(tmp_path / "later"))
    s = Story("log-0", Q)
    s.txn((20, 0, Q), reads=[(0, 10)], process=1, begin=0, end=99)
    s.poll((0, 20), partition=Q, process=2, begin=1, end=50)
    s.send(10, at=0, process=3, begin=50, end=60)
    assert told(s, tmp_path / "at once") == {}


def test_a_larger_cycle_around_one_that_was_told_is_not_told_again(tmp_path: Path) -> None:
    """The third follows the first in its process, and the second read of both."""
    s = Story("log-0", Q)
    s.txn((10, 0), reads=[(Q, (0, 20))], process=1, begin=0, end=9)
    s.txn((20, 0, Q), reads=[(0, 10), (1, 11)], process=2, begin=0, end=9)
    s.send(11, at=1, process=1, begin=1, end=9)
    assert told(s, tmp_path) == {"g1c": 1}
