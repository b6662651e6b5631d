"""Golden stories: polls in order, sends in order, real time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checker.story import P, Story, against, one


def three() -> Story:
    """Three records at offsets 0 to 2, and one at 4: nobody knows of anything at 3."""
    s = Story(promise={"contiguous_offsets": False})
    for at, value in ((0, 10), (1, 11), (2, 12), (4, 14)):
        s.send(value, at=at)
    s.poll((0, 10, 3), (4, 14), process=100)
    return s


def test_polls_one_after_another(tmp_path: Path) -> None:
    s = three()
    s.poll((0, 10))
    s.poll((1, 11, 2))
    s.poll()
    s.poll((4, 14))
    assert against(s.check(tmp_path)) == {}


def test_a_poll_that_skips(tmp_path: Path) -> None:
    s = three()
    before = s.poll((0, 10))
    after = s.poll((2, 12))
    found = one(s.check(tmp_path), "poll-skip")
    assert (found.count, found.offset) == (1, 2)
    assert [w.op for w in found.witnesses] == [after, before]


def test_an_empty_poll_hides_no_skip(tmp_path: Path) -> None:
    s = three()
    s.poll((0, 10))
    s.poll()
    s.poll((2, 12))
    assert against(s.check(tmp_path)) == {"poll-skip": 1}


def test_a_gap_nobody_knows_a_record_in_is_no_skip(tmp_path: Path) -> None:
    s = three()
    s.poll((2, 12))
    s.poll((4, 14))
    assert against(s.check(tmp_path)) == {}


def test_a_poll_that_goes_back(tmp_path: Path) -> None:
    s = three()
    s.poll((0, 10, 3))
    s.poll((1, 11))
    assert against(s.check(tmp_path)) == {"nonmonotonic-poll": 1}


def test_a_poll_that_repeats(tmp_path: Path) -> None:
    s = three()
    s.poll((0, 10))
    s.poll((0, 10))
    assert against(s.check(tmp_path)) == {"nonmonotonic-poll": 1}


def test_another_process_has_its_own_place(tmp_path: Path) -> None:
    s = three()
    s.poll((0, 10, 3), process=7)
    s.poll((0, 10), process=8)
    assert against(s.check(tmp_path)) == {}


def test_only_an_ok_poll_moves_the_place(tmp_path: Path) -> None:
    s = three()
    s.poll((0, 10))
    s.poll((1, 11), outcome="info")
    s.poll((1, 11))
    assert against(s.check(tmp_path / "rewound")) == {}
    s.poll((4, 14), outcome="info")
    assert against(s.check(tmp_path / "judged")) == {"poll-skip": 1}


def test_an_assignment_drops_the_place_elsewhere(tmp_path: Path) -> None:
    s = three()
    s.poll((0, 10))
    s.op("assign", "ok", process=9, partitions=("other",))
    s.poll((2, 12))
    assert against(s.check(tmp_path)) == {}


def test_an_assignment_keeps_the_place_in_what_it_names(tmp_path: Path) -> None:
    s = three()
    s.poll((0, 10))
    s.op("assign", "ok", process=9, partitions=(P,))
    s.poll((2, 12))
    assert against(s.check(tmp_path)) == {"poll-skip": 1}


def test_a_failed_assignment_changes_nothing(tmp_path: Path) -> None:
    s = three()
    s.poll((0, 10))
    s.op("assign", "fail", process=9, partitions=("other",))
    s.poll((2, 12))
    assert against(s.check(tmp_path)) == {"poll-skip": 1}


def test_a_subscribed_consumer_may_jump(tmp_path: Path) -> None:
    s = three()
    s.op("subscribe", "ok", process=9, partitions=(P,))
    s.poll((0, 10))
    s.poll((2, 12))
    result = s.check(tmp_path)
    assert against(result) == {}
    assert "rebalance" in one(result, "poll-skip").allowed


def test_a_skip_inside_one_poll(tmp_path: Path) -> None:
    s = three()
    s.poll((0, 10), (2, 12))
    assert against(s.check(tmp_path)) == {"int-poll-skip": 1}


@pytest.mark.parametrize(("acks", "known"), [(1, False), (-1, False), (1, True)])
def test_a_skip_of_what_was_only_weakly_acknowledged(
    tmp_path: Path, acks: int, known: bool
) -> None:
    """Offsets 1 and 4 were acknowledged. With acks=1 their records may be lost, and a later leader
    leave gaps there: no consumer skipped anything, unless somebody read what was there."""
    s = Story()
    s.run["promise"] |= {"acks": acks, "durable_acks": acks == -1, "contiguous_offsets": False}
    for at in (0, 2, 3, 5):
        s.send(10 + at, at=at)
    s.send(11, at=1, acks=acks)
    s.send(14, at=4, acks=acks)
    s.poll((0, 10), (2, 12), (3, 13))
    s.poll((5, 15))
    if known:
        s.poll((1, 11), (2, 12), (3, 13), (4, 14), process=8)
    counts = {a.name: a.count for a in s.check(tmp_path).anomalies if a.name.endswith("skip")}
    assert counts == {"int-poll-skip": 1, "poll-skip": 1}, "told in any case"
    against_it = {n for n in against(s.check(tmp_path)) if n.endswith("skip")}
    assert against_it == (set(counts) if known or acks == -1 else set())


def test_a_step_back_inside_one_poll(tmp_path: Path) -> None:
    s = three()
    s.poll((1, 11), (0, 10))
    assert against(s.check(tmp_path)) == {"int-nonmonotonic-poll": 1}


def test_sends_of_one_process_in_order(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.send(20, at=2)
    assert against(s.check(tmp_path)) == {}


def test_a_later_send_of_one_process_lands_in_front(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=5, begin=0, end=9)
    late = s.send(20, at=4, begin=1, end=9)
    found = one(s.check(tmp_path), "nonmonotonic-send")
    assert (found.offset, found.witnesses[0].op) == (4, late)


def test_a_place_learned_from_a_read_counts(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=5, begin=0, end=9)
    s.send(20, outcome="info", begin=1, end=9)
    s.poll((4, 20), (5, 10))
    assert against(s.check(tmp_path)) == {"nonmonotonic-send": 1}


def test_the_records_of_one_send_in_order(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, outcome="info")
    s.poll((0, 11), (1, 10))
    assert against(s.check(tmp_path)) == {"int-nonmonotonic-send": 1}


def test_appends_in_real_time(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=1, process=1, begin=0, end=5)
    s.send(20, at=0, process=2, begin=5, end=9)
    assert against(s.check(tmp_path / "overlap")) == {}


def test_a_later_append_stands_in_front_of_an_earlier_one(tmp_path: Path) -> None:
    s = Story()
    early = s.send(10, at=1, process=1, begin=0, end=5)
    late = s.send(20, at=0, process=2, begin=6, end=9)
    found = one(s.check(tmp_path), "realtime-order")
    assert [w.op for w in found.witnesses] == [late, early]
    assert "was acknowledged 0.005 s into the storm" in found.message


def test_real_time_order_of_an_unknown_append_that_was_read(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=1, process=1, begin=0, end=5)
    s.send(20, outcome="info", process=2, begin=6, end=9)
    assert against(s.check(tmp_path / "unread")) == {}
    s.poll((0, 20), (1, 10))
    assert against(s.check(tmp_path / "read")) == {"realtime-order": 1}


def test_real_time_order_is_not_owed_by_weak_acknowledgements(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=1, process=1, begin=0, end=5, acks=1)
    s.send(20, at=0, process=2, begin=6, end=9)
    result = s.check(tmp_path)
    assert against(result) == {}
    assert one(result, "realtime-order").allowed


def test_real_time_order_is_per_partition(tmp_path: Path) -> None:
    s = Story("log-0", "log-1")
    s.send(10, at=1, process=1, begin=0, end=5)
    s.send(20, at=0, process=2, begin=6, end=9, partition="log-1")
    assert against(s.check(tmp_path)) == {}


def test_real_time_order_of_an_unknown_append_whose_second_record_was_read(
    tmp_path: Path,
) -> None:
    s = Story()
    s.send(10, at=3, process=1, begin=0, end=5)
    s.send(20, 2, at=0, outcome="info", process=2, begin=6, end=9)
    s.poll((1, 21), (3, 10))
    assert "realtime-order" in against(s.check(tmp_path))
