"""Golden stories: polls in order, sends in order, real time."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.formats.history import OpType
from tests.support.checker.agreed import agreed
from tests.support.checker.story import P, Story, against, one


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


def test_real_time_order_of_an_unknown_append_whose_second_record_was_read(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=3, process=1, begin=0, end=5)
    s.send(20, 2, at=0, outcome="info", process=2, begin=6, end=9)
    s.poll((1, 21), (3, 10))
    assert "realtime-order" in against(s.check(tmp_path))


def test_when_a_consumer_counts_as_subscribed(tmp_path: Path) -> None:
    """From its subscription on until it is assigned; what was only weakly acknowledged besides
    does not excuse a skip twice."""
    s = three()
    s.send(13, at=3, acks=1)
    for f in ("", "subscribe", "assign"):
        if f:
            s.op(f, "ok", process=9, partitions=(P,))  # type: ignore[arg-type]
        s.poll((0, 10), (1, 11), (2, 12))
        s.poll((4, 14))
        s.poll((0, 10))
        s.poll((2, 12))
        s.poll((4, 14))
    anomalies = s.check(tmp_path).anomalies
    told = [(a.name, a.count, a.allowed.partition(" ")[0]) for a in anomalies]
    assert sorted(t for t in told if t[0].endswith("poll") or t[0].endswith("skip")) == [
        ("int-poll-skip", 1, "it"),
        ("nonmonotonic-poll", 2, "a"),
        ("nonmonotonic-poll", 3, ""),
        ("poll-skip", 2, ""),
        ("poll-skip", 3, "a"),
        ("poll-skip", 4, "it"),
    ]


@pytest.mark.parametrize(("outcome", "counted"), [("ok", 1), ("info", 0)])
def test_a_refused_send_has_a_place_only_where_it_was_read(
    tmp_path: Path, outcome: OpType, counted: int
) -> None:
    s = Story()
    s.send(5, at=2)
    s.send(10, 2, outcome="fail")
    s.poll((0, 11), (1, 10), outcome=outcome)
    found = against(s.check(tmp_path))
    assert found.pop("aborted-read") == 2
    assert found.get("int-nonmonotonic-send", 0) == counted


@pytest.mark.parametrize(("first", "second"), [(1, -1), (-1, 1), (1, 1), (-1, -1)])
def test_weak_acknowledgements_promise_no_place(tmp_path: Path, first: int, second: int) -> None:
    s = Story()
    s.send(10, at=5, acks=first, begin=0, end=9)
    s.send(20, at=4, acks=second, begin=1, end=9)
    weak = (first, second) != (-1, -1)
    assert against(s.check(tmp_path)) == ({} if weak else {"nonmonotonic-send": 1})


@pytest.mark.parametrize("read", [True, False])
def test_a_weakly_acknowledged_record_that_was_read_has_its_place(
    tmp_path: Path, read: bool
) -> None:
    s = Story()
    s.send(10, at=1, begin=0, end=5)
    s.send(20, at=0, acks=1, process=2, begin=6, end=9)
    if read:
        s.poll((0, 20))
    assert against(s.check(tmp_path)) == ({"realtime-order": 1} if read else {})


@pytest.mark.parametrize(
    ("before", "after", "outcome", "found"),
    [
        (1, 0, "ok", {"nonmonotonic-send": 1}),
        (5, 5, "ok", {"nonmonotonic-send": 1, "inconsistent-offsets": 1}),
        (1, 0, "info", {"nonmonotonic-send": 1}),
        (5, 4, "fail", {}),
        (5, 6, "ok", {}),
    ],
)
def test_where_the_later_send_of_a_process_lands(
    tmp_path: Path, before: int, after: int, outcome: OpType, found: dict[str, int]
) -> None:
    s = Story()
    s.send(10, at=before, begin=0, end=9)
    s.send(20, at=after, begin=1, end=9, outcome=outcome)
    assert against(s.check(tmp_path)) == found


def test_the_sends_of_one_operation_are_no_two_sends_of_a_process(tmp_path: Path) -> None:
    s = Story()
    s.txn((10, 1), (11, 0))
    assert against(s.check(tmp_path)) == {"int-nonmonotonic-send": 1}


def realtime(s: Story, folder: Path) -> list[tuple[int, bool]]:
    """How many sends landed in front of earlier ones: counts, and whether that is allowed."""
    anomalies = [a for a in s.check(folder).anomalies if a.name == "realtime-order"]
    return [(a.count, bool(a.allowed)) for a in anomalies]


def test_what_was_known_before_only_by_a_weak_acknowledgement(tmp_path: Path) -> None:
    """The record was read in the end, so its place is certain, but not known before that."""
    s = Story()
    s.send(10, at=1, acks=1, begin=0, end=5)
    s.send(20, at=0, process=2, begin=6, end=9)
    s.poll((0, 20), (1, 10), begin=8, end=20)
    assert realtime(s, tmp_path) == [(1, True)]


def test_a_weak_send_of_which_only_a_later_record_was_read(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=3, begin=0, end=5)
    s.send(20, 2, at=0, outcome="info", acks=1, process=2, begin=6, end=9)
    s.poll((1, 21), (3, 10))
    assert realtime(s, tmp_path) == [(1, True)]


def test_only_an_ok_read_makes_a_weak_send_certain_where_values_are_shared(tmp_path: Path) -> None:
    outcomes: tuple[OpType, ...] = ("ok", "info")
    for outcome in outcomes:
        s = Story()
        s.send(10, at=1, begin=0, end=5)
        s.send(20, at=0, acks=1, process=2, begin=6, end=9)
        s.poll((0, 20), outcome=outcome)
        for process in (3, 4):
            s.send(30, outcome="info", process=process)
        assert realtime(s, tmp_path / outcome) == [(1, outcome != "ok")]


def test_certain_and_weak_inversions_are_told_apart(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=2, begin=0, end=5)
    s.send(11, at=9, acks=1, process=2, begin=0, end=5)
    s.send(20, at=0, process=3, begin=6, end=9)
    s.send(21, at=4, process=4, begin=6, end=9)
    assert realtime(s, tmp_path) == [(1, False), (1, True)]


def test_what_has_no_place_stands_in_front_of_nothing(tmp_path: Path) -> None:
    """A send acknowledged without an offset, one of unknown outcome that nobody read, and one
    that has the other's very offset."""
    s = Story()
    s.send(10, at=1, begin=0, end=5)
    s.send(20, process=2, begin=6, end=9)
    s.send(21, at=0, outcome="info", process=3, begin=6, end=9)
    s.send(22, at=1, process=4, begin=6, end=9)
    assert against(s.check(tmp_path)) == {"inconsistent-offsets": 1}


def test_a_record_of_unknown_place_stands_between_no_others(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 3, outcome="info")
    s.poll((0, 10), (1, 12))
    assert against(s.check(tmp_path)) == {}


def test_weak_sends_of_one_process_in_order_are_not_told_of(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0, acks=1)
    s.send(20, at=1, acks=1)
    assert "nonmonotonic-send" not in {a.name for a in s.check(tmp_path).anomalies}


def test_a_send_read_at_two_offsets_stands_at_the_lower(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=5, begin=0, end=9)
    s.send(20, outcome="info", begin=1, end=9)
    s.poll((4, 20), (5, 10))
    s.poll((9, 20), process=8)
    assert against(s.check(tmp_path)) == {"nonmonotonic-send": 1, "duplicate": 1}


def test_the_place_that_a_send_of_unknown_outcome_names_is_no_weak_acknowledgement(
    tmp_path: Path,
) -> None:
    """One of its records was read, so that the other must be there too."""
    s = three()
    s.send(20, 2, at=5, outcome="info", acks=1, process=2)
    s.send(30, at=7, process=3)
    s.poll((5, 20))
    s.poll((7, 30))
    assert against(s.check(tmp_path))["poll-skip"] == 1
    assert agreed(s)["poll-skip"] == 1


def test_an_offset_named_by_a_send_of_unknown_outcome_was_known_at_no_moment(
    tmp_path: Path,
) -> None:
    s = Story()
    s.send(10, at=5, outcome="info", begin=0, end=1)
    s.send(20, at=3, process=2, begin=2, end=3)
    assert against(s.check(tmp_path)) == {}
