"""Golden stories: offsets, and values that should not be there."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

from checker.checks.findings import Origin
from checker.checks.unknown_values import joined_origins
from harness.formats.history import Read, RecordRun
from node.formats.trace import METADATA_PARTITION
from tests.support.checker.story import P, Story, against, one


def test_offsets_and_values_in_one_to_one(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.send(20, at=2)
    s.poll((0, 10, 2), start=0)
    s.poll((2, 20), start=2)
    assert against(s.check(tmp_path)) == {}


def test_two_values_read_at_one_offset(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, outcome="info")
    s.poll((0, 10), process=8)
    s.poll((0, 20), process=9)
    found = one(s.check(tmp_path), "inconsistent-offsets")
    assert (found.offset, found.count) == (0, 1)
    assert "offset 0 holds 10 and 20" in found.message
    assert [(w.offset, w.value) for w in found.witnesses] == [(0, 10), (0, 20)]


def test_two_values_acknowledged_at_one_offset(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0, process=1, begin=0, end=5)
    s.send(20, at=1, process=2, begin=0, end=5)
    assert one(s.check(tmp_path), "inconsistent-offsets").offset == 1


def test_an_unknown_send_conflicts_only_once_it_was_read(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0, outcome="info", process=1)
    s.send(20, at=1, process=2)
    assert against(s.check(tmp_path / "unread")) == {}
    s.poll((0, 10))
    assert "inconsistent-offsets" in against(s.check(tmp_path / "read"))


def test_a_weak_acknowledgement_may_name_an_offset_used_again(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0, acks=1)
    s.send(20, outcome="info", process=2)
    s.poll((0, 20))
    result = s.check(tmp_path)
    assert against(result) == {}
    assert one(result, "inconsistent-offsets").allowed


def test_one_value_at_two_offsets(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.poll((0, 10), (1, 10))
    found = one(s.check(tmp_path), "duplicate")
    assert (found.count, found.offset) == (1, 0)
    assert "value 10 is at 0 and at 1" in found.message


def test_acknowledged_at_one_offset_and_read_at_another(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=7)
    s.poll((3, 10))
    assert against(s.check(tmp_path))["duplicate"] == 1


def test_the_offset_of_a_failed_send_counts_for_nothing(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0, outcome="fail")
    s.send(20, at=0)
    s.poll((0, 20))
    assert against(s.check(tmp_path)) == {}


def test_a_read_that_leaves_offsets_out(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.send(20, at=4)
    s.poll((0, 10, 2), (4, 20), start=0)
    found = one(s.check(tmp_path / "required"), "offset-hole")
    assert (found.count, found.offset) == (2, 2)
    s.run["promise"]["contiguous_offsets"] = False
    assert against(s.check(tmp_path / "not-required")) == {}


def test_a_read_that_begins_after_its_start(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=3)
    s.poll((3, 10), start=1)
    assert one(s.check(tmp_path), "offset-hole").count == 2


def test_a_read_may_begin_anywhere(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=3)
    s.poll((3, 10), start=3)
    assert against(s.check(tmp_path)) == {}


def test_offsets_near_the_end_of_64_bits(tmp_path: Path) -> None:
    s = Story()
    far = 2**62
    s.send(10, 2, at=far)
    s.send(20, at=far + 2)
    s.poll((far, 10, 2), (far + 2, 20), start=far)
    assert against(s.check(tmp_path)) == {}


def test_a_value_nobody_ever_sent(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.poll((0, 10), (1, 777))
    found = one(s.check(tmp_path), "phantom")
    assert (found.count, found.offset) == (1, 1)
    assert "value 777 at offset 1" in found.message


def test_a_value_that_was_sent_to_another_partition(tmp_path: Path) -> None:
    s = Story("log-0", "log-1")
    sent = s.send(10, 2, at=0, partition="log-1")
    s.poll((0, 11), partition="log-0")
    s.poll((0, 10, 2), partition="log-1")
    found = one(s.check(tmp_path), "misrouted")
    assert found.partition == "log-0"
    assert found.witnesses[1].op == sent
    assert "was sent to log-1" in found.message


def test_a_phantom_that_is_only_in_a_log(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.poll((0, 10))
    s.log("n2", (10, 1), (777, 1))
    assert "in the log of n2" in one(s.check(tmp_path), "phantom").message


def test_a_send_without_completion_is_no_phantom(tmp_path: Path) -> None:
    s = Story()
    s.send(10, outcome=None)
    s.poll((0, 10))
    assert against(s.check(tmp_path)) == {}


def test_a_failed_send_that_was_read(tmp_path: Path) -> None:
    s = Story()
    sent = s.send(10, outcome="fail")
    read = s.poll((0, 10))
    found = one(s.check(tmp_path), "aborted-read")
    assert [w.op for w in found.witnesses] == [read, sent]


def test_a_failed_send_that_stands_in_a_log(tmp_path: Path) -> None:
    s = Story()
    s.send(10, outcome="fail")
    s.log("n1", (10, 1), hw=0)
    assert against(s.check(tmp_path)) == {"aborted-write": 1}


def test_an_unknown_send_may_be_read(tmp_path: Path) -> None:
    s = Story()
    s.send(10, outcome="info")
    s.poll((0, 10))
    assert against(s.check(tmp_path)) == {}


def test_a_record_that_cannot_be_understood(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.poll((0, 10), (1, -1))
    found = against(s.check(tmp_path))
    assert found["unreadable-record"] == 1
    assert "phantom" not in found


def test_values_that_are_not_unique_make_the_property_unknown(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 3, at=0)
    s.send(12, at=3)
    result = s.check(tmp_path)
    assert "two sends to log-0 claim the same value 12" in result.properties[2].reason


def test_two_sends_that_claim_one_value_among_others(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 3, at=0)
    s.send(12, 2, at=3)
    s.send(20, 2, at=5)
    s.poll((0, 10, 3), (3, 12, 2), (5, 20, 2))
    result = s.check(tmp_path)
    assert against(result) == {}, "the history is at fault, not the system"
    order = next(p for p in result.properties if p.property == "offsets-and-order")
    assert "claim the same value 12" in order.reason


def test_the_log_of_the_controllers_holds_no_values_of_clients(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.log("n1", (777, 1), partition=METADATA_PARTITION)
    assert against(s.check(tmp_path)) == {}


def test_of_several_duplicates_that_of_the_lowest_offset_is_told(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, at=1)
    s.poll((0, 10), (1, 20), (5, 20), (9, 10))
    found = one(s.check(tmp_path), "duplicate")
    assert (found.offset, found.count) == (0, 2)
    assert [(w.offset, w.value) for w in found.witnesses] == [(0, 10), (9, 10), (1, 20), (5, 20)]


def test_each_read_of_an_operation_has_its_own_start(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, at=3, process=2)
    records = ((0, 10), (3, 20))
    reads = [Read(partition=P, start=n, records=(RecordRun(n, value),)) for n, value in records]
    s.op("poll", "ok", reads=reads, process=9)
    assert against(s.check(tmp_path)) == {}


def test_the_value_after_those_of_a_send_is_not_its_own(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 2, at=0)
    s.poll((0, 10, 2), (2, 12))
    assert against(s.check(tmp_path)) == {"phantom": 1}


def test_of_two_values_of_nobody_here_one_was_sent_elsewhere(tmp_path: Path) -> None:
    s = Story("log-0", "log-1")
    s.send(10, at=0, partition="log-1")
    s.poll((0, 10), (1, 11))
    s.poll((0, 10), partition="log-1")
    assert against(s.check(tmp_path)) == {"misrouted": 1, "phantom": 1}


def test_of_sends_that_claim_one_value_the_one_that_begins_last_counts() -> None:
    claims = [Origin("log-1", op, 0, "c1", 0, first) for first, op in ((5, 9), (7, 2), (7, 3))]
    for parts in permutations([{8: claim} for claim in claims]):
        assert joined_origins(parts) == {8: claims[-1]}
