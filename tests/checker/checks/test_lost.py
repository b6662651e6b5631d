"""Golden stories: no lost acknowledged write."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.formats.verdict import Verdict
from tests.support.checker.story import NODES, P, Story, against, one


def test_everything_acknowledged_is_read(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 3, at=0)
    s.send(20, 2, at=3)
    s.poll((0, 10, 3), (3, 20, 2), start=0)
    s.final((0, 10, 3), (3, 20, 2))
    s.agree((10, 3), (20, 2))
    assert against(s.check(tmp_path)) == {}


def test_lost_when_readers_got_beyond_it(tmp_path: Path) -> None:
    s = Story()
    lost = s.send(10, 3, at=0)
    s.send(20, 2, at=3)
    s.poll((3, 20, 2))
    found = one(s.check(tmp_path), "lost")
    assert (found.count, found.offset, found.witnesses[0].op) == (3, 0, lost)
    assert "no replica's log" in found.message


def test_lost_when_its_offset_is_used_again(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    other = s.send(20, outcome="info")
    s.poll((0, 20))
    s.agree((20, 1))
    found = one(s.check(tmp_path), "lost")
    assert found.witnesses[1].op == other + 1
    assert "read value 20 there" in found.message
    assert "gone everywhere" in found.message


def test_lost_when_the_logs_have_another_value_there_and_nobody_reads(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, outcome="info")
    s.agree((20, 1))
    found = one(s.check(tmp_path), "lost")
    assert "log has value 20 there" in found.message


def test_lost_but_only_undelivered(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, at=1)
    s.poll((1, 20))
    s.log("n1")
    s.log("n2", (10, 1), (20, 1))
    s.log("n3")
    found = one(s.check(tmp_path), "lost")
    assert "only undelivered: 1 of 1 in some log, the first is held by n2 at offset 0." in (
        found.message
    )


def test_a_record_in_one_log_where_the_others_have_another_is_more_than_undelivered(
    tmp_path: Path,
) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.send(20, at=2)
    s.poll((2, 20))
    s.log("n1", (30, 1), (31, 1), (20, 1))
    s.log("n2", (10, 2), (20, 1))
    s.log("n3", (30, 1), (41, 1), (20, 1))
    found = one(s.check(tmp_path), "lost")
    assert found.message.endswith(
        "; 2 of 2 in some log, the first is held by n2 at offset 0, where n1 and n3 have value 30; "
        "the replicas diverge at 2 of them."
    )


def test_an_unread_batch_below_the_last_read_is_no_loss_if_it_was_read_by_somebody_else(
    tmp_path: Path,
) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, at=1)
    s.poll((1, 20), process=8)
    s.poll((0, 10), process=9)
    assert "lost" not in against(s.check(tmp_path))


def test_a_failed_or_unknown_send_is_owed_to_nobody(tmp_path: Path) -> None:
    s = Story()
    s.send(10, outcome="fail")
    s.send(11, outcome="info")
    s.send(12, outcome=None)
    s.send(20, at=0)
    s.poll((0, 20))
    s.agree((20, 1))
    assert against(s.check(tmp_path)) == {}


def test_an_unknown_send_is_owed_once_one_of_its_records_was_read(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 3, at=0, outcome="info")
    s.send(20, at=3)
    s.poll((0, 10), (3, 20))
    found = one(s.check(tmp_path), "lost")
    assert found.count == 2
    assert "was committed (a record of its batch was read)" in found.message


def test_tail_lost(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    tail = s.send(20, 2, at=1)
    s.poll((0, 10))
    s.agree((10, 1))
    found = one(s.check(tmp_path), "tail-lost")
    assert (found.count, found.offset, found.witnesses[0].op) == (2, 1, tail)
    assert "all are gone everywhere (logs of n1, n2 and n3)" in found.message


def test_acknowledged_without_an_offset_and_in_no_log(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=-1)
    s.agree()
    assert against(s.check(tmp_path)) == {"tail-lost": 1}


def test_the_tail_is_not_lost_while_a_replica_is_not_dumped(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    for node in NODES[:2]:
        s.log(node)
    result = s.check(tmp_path)
    assert against(result) == {}
    assert result.properties[0].verdict is Verdict.UNKNOWN
    assert "the logs of n3 leaves log-0 out" in result.properties[0].reason


def test_unseen_when_logs_have_it_and_final_reads_do_not_get_it(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, at=1)
    s.final((0, 10))
    s.agree((10, 1), (20, 1), hw=1)
    found = one(s.check(tmp_path), "unseen")
    assert (found.count, found.offset) == (1, 1)
    assert "held by n1 at offset 1, n2 at offset 1 and n3 at offset 1" in found.message


def test_not_unseen_before_the_final_reads(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.agree((10, 1))
    assert against(s.check(tmp_path)) == {}


def test_vanished_when_final_reads_pass_over_it(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, at=1)
    read = s.poll((0, 10), (1, 20))
    s.final((1, 20))
    found = one(s.check(tmp_path), "vanished")
    assert (found.count, found.offset, found.witnesses[0].op) == (1, 0, read)


def test_vanished_from_the_tail_of_every_log(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, at=1)
    s.poll((0, 10), (1, 20))
    s.final((0, 10))
    s.agree((10, 1))
    assert against(s.check(tmp_path))["vanished"] == 1


def test_vanished_without_any_log_when_the_final_answer_denies_it(tmp_path: Path) -> None:
    s = Story(capabilities=[])
    s.send(10, at=0)
    s.send(20, at=1)
    s.poll((0, 10), (1, 20))
    s.final((0, 10), hw=1)
    assert against(s.check(tmp_path)) == {"vanished": 1}


def test_not_vanished_while_the_final_reads_merely_stopped_early(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, at=1)
    s.poll((0, 10), (1, 20))
    s.final((0, 10))
    s.agree((10, 1), (20, 1))
    assert against(s.check(tmp_path)) == {}


def test_weak_acknowledgements_promise_nothing_even_in_a_strong_run(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0, acks=1)
    s.send(20, at=1)
    s.poll((1, 20))
    result = s.check(tmp_path)
    assert against(result) == {}
    assert one(result, "lost").allowed == "acks 0 or 1 do not promise that the record survives"


@pytest.mark.parametrize(
    ("promise", "excused"),
    [
        ({"acks": 1, "durable_acks": False}, {"lost"}),
        ({"unclean_election": True, "durable_acks": False}, {"lost", "vanished"}),
        ({"flush": "async", "durable_acks": False}, {"lost", "vanished"}),
        ({}, set()),
    ],
)
def test_policy(tmp_path: Path, promise: dict[str, object], excused: set[str]) -> None:
    s = Story(promise=promise)
    s.send(10, at=0)
    s.send(20, at=1)
    s.send(30, at=2)
    s.poll((1, 20), (2, 30))
    s.final((2, 30))
    result = s.check(tmp_path)
    assert {"lost", "vanished"} - set(against(result)) == excused
    assert {a.name for a in result.anomalies if a.allowed} == excused


def test_partitions_are_judged_apart(tmp_path: Path) -> None:
    s = Story("log-0", "log-1")
    s.send(10, at=0)
    s.send(20, at=1, partition="log-1")
    s.poll((1, 20), partition="log-1")
    s.poll((0, 10), partition=P)
    assert against(s.check(tmp_path)) == {}


def test_vanished_from_where_it_was_read_not_from_where_it_was_acknowledged(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=1)
    s.send(20, at=0)
    read = s.poll((2, 10))
    s.final((0, 20), (1, 20), (3, 20))
    found = one(s.check(tmp_path), "vanished")
    assert (found.offset, found.witnesses[0].op) == (2, read)


def test_what_is_passed_over_is_lost_once_wherever_the_logs_end(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, at=1)
    s.poll((1, 20))
    s.agree()
    assert against(s.check(tmp_path)) == {"lost": 1, "vanished": 1}


def test_an_unknown_send_of_which_a_part_was_read_is_not_undelivered(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, outcome="info")
    s.final((0, 10))
    assert against(s.check(tmp_path)) == {}


def test_a_record_is_lost_only_below_every_place_it_is_known_at(tmp_path: Path) -> None:
    """It may yet be read at the highest; and a reader passed it only from its lowest place on."""
    s = Story()
    s.send(10, at=0)
    s.send(20, at=5)
    s.poll((9, 10), outcome="info", process=8)
    s.poll((5, 20))
    assert against(s.check(tmp_path / "higher")) == {"duplicate": 1}
    s = Story()
    s.send(20, at=2)
    s.send(10, at=5)
    s.poll((2, 20), process=8)
    s.poll((9, 20))
    assert against(s.check(tmp_path / "lower")) == {"duplicate": 1}


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
