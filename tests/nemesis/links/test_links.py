"""Link rules: what becomes of each message, and the order in which messages arrive."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis.links.delay_queue import DelayQueue, QueuedMessage
from nemesis.links.rule import Counts, LinkRule
from nemesis.links.table import LinkDecision, LinkTable
from node.formats.errors import UsageError
from node.formats.trace import matches

FETCH = {"kind": "fetch", "offset": 5, "partition": "log-0"}


def rule(action: str = "drop", senders: str = "n1", receivers: str = "n2", **rest: Any) -> LinkRule:
    return LinkRule(
        senders=tuple(senders.split()), receivers=tuple(receivers.split()), action=action, **rest
    )  # type: ignore[arg-type]


def arrivals(table: LinkTable, *, now: int = 0, link: str = "n1 n2", **fields: Any) -> list[int]:
    sender, receiver = link.split()
    decision = table.decide(sender, receiver, FETCH | fields, now, random.Random(0))
    return list(decision.times)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], [1000]),
        ([rule("drop")], []),
        ([rule("drop", "n2", "n1")], [1000]),
        ([rule("drop", "*", "n2")], []),
        ([rule("drop", "n1", "*")], []),
        ([rule("drop", "", "n2")], [1000]),
        ([rule("drop", "n3 n1", "n4 n2")], []),
        ([rule("drop", kinds=("fetch",))], []),
        ([rule("drop", kinds=("fetch-response",))], [1000]),
        ([rule("drop", match={"offset": 5})], []),
        ([rule("drop", match={"offset": 6})], [1000]),
        ([rule("drop", match={"offset": {"at_least": 5}})], []),
        ([rule("drop", match={"offset": {"at_least": 6}})], [1000]),
        ([rule("drop", match={"offset": {"at_most": 5}})], []),
        ([rule("drop", match={"offset": {"at_most": 4}})], [1000]),
        ([rule("drop", match={"offset": {"at_least": 4, "at_most": 6}})], []),
        ([rule("drop", match={"missing": 1})], [1000]),
        ([rule("drop", match={"missing": {"at_least": 1}})], [1000]),
        ([rule("drop", match={"partition": {"at_least": 1}})], [1000]),
        ([rule("drop", match={"offset": 5, "partition": "log-1"})], [1000]),
        ([rule("delay", delay_ms=2)], [3000]),
        ([rule("delay", delay_ms=2), rule("delay", delay_ms=3)], [6000]),
        ([rule("delay", delay_ms=2), rule("drop")], []),
        ([rule("duplicate")], [1000, 1000]),
        ([rule("duplicate", delay_ms=4)], [1000, 5000]),
        ([rule("duplicate", delay_ms=4), rule("delay", delay_ms=1)], [2000, 6000]),
        ([rule("duplicate"), rule("duplicate")], [1000, 1000, 1000]),
        ([rule("hold"), rule("delay", delay_ms=1)], []),
    ],
)
def test_what_becomes_of_a_message(rules: list[LinkRule], expected: list[int]) -> None:
    table = LinkTable()
    for each in rules:
        table.add(each)
    assert arrivals(table, now=1000) == expected


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [({"given": True}, ["told"]), ({"given": False}, ["null", "absent"]), (True, [])],
)
def test_a_field_may_be_asked_to_be_there(wanted: object, fits: list[str]) -> None:
    """The end of an epoch in an answer is a pair of numbers: no plain value fits all."""
    headers: dict[str, dict[str, object]] = {
        "told": {"diverging": (1, 4)},
        "null": {"diverging": None},
        "absent": {},
    }
    assert [n for n, header in headers.items() if matches(header, {"diverging": wanted})] == fits


def test_a_hold_names_its_rule_and_yields_to_a_drop() -> None:
    table = LinkTable()
    held = table.add(rule("hold"))
    assert table.decide("n1", "n2", FETCH, 0, random.Random(0)) == LinkDecision((), held)
    table.add(rule("drop"))
    assert table.decide("n1", "n2", FETCH, 0, random.Random(0)) == LinkDecision(())


def test_a_node_always_reaches_itself() -> None:
    table = LinkTable()
    table.add(rule("drop", "*", "*"))
    assert arrivals(table, link="n1 n1") == [0]


def test_a_limit_ends_a_rule() -> None:
    table = LinkTable()
    number = table.add(rule("drop", kinds=("fetch",), limit=2))
    passed = [
        len(arrivals(table, kind=kind)) for kind in ["fetch", "fetch-response", "fetch", "fetch"]
    ]
    assert passed == [0, 1, 0, 1]
    assert table.remove(number) == Counts(matched=2, dropped=2)


def test_removal_tells_what_was_done_and_ends_it() -> None:
    table = LinkTable()
    slow, lossy = table.add(rule("delay", delay_ms=1)), table.add(rule("drop", kinds=("vote",)))
    for kind in ("fetch", "vote", "fetch"):
        arrivals(table, kind=kind)
    assert table.remove(slow) == Counts(matched=2, delayed=2)
    assert table.remove(lossy) == Counts(matched=1, dropped=1)
    assert table.remove(lossy) is None
    assert arrivals(table, now=1000, kind="vote") == [1000]


def test_percent_is_about_right_and_repeatable() -> None:
    def fates() -> list[bool]:
        table, rng = LinkTable(), random.Random(7)
        table.add(rule("drop", percent=30))
        return [bool(table.decide("n1", "n2", FETCH, 0, rng).times) for _ in range(2000)]

    assert fates() == fates()
    assert 1300 < sum(fates()) < 1500


def test_order_outlives_the_rule_that_delayed() -> None:
    table = LinkTable()
    number = table.add(rule("delay", delay_ms=10))
    assert arrivals(table, now=0) == [10_000]
    table.remove(number)
    assert not table.is_idle(5000)
    assert arrivals(table, now=5000) == [10_000]
    assert arrivals(table, now=5000, link="n2 n1") == [5000]
    assert table.is_idle(10_000)
    assert arrivals(table, now=10_000) == [10_000]


def test_fields_are_asked_for_only_where_a_rule_needs_them() -> None:
    table = LinkTable()
    table.add(rule("drop", "n1", "n2"))
    assert not table.needs_fields("n1", "n2")
    table.add(rule("drop", "n1", "n3", kinds=("vote",)))
    assert table.needs_fields("n1", "n3")
    assert not table.needs_fields("n1", "n2")


@pytest.mark.parametrize(
    "wrong", [{"action": "melt"}, {"percent": 0}, {"percent": 101}, {"delay_ms": -1}, {"limit": 0}]
)
def test_impossible_rules_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="link rule"):
        rule(**({"action": "drop"} | wrong))


NODES = st.sampled_from(["n1", "n2", "n3", "v1", "c1"])
# Milliseconds since the message before, sender, receiver.
TRAFFIC = st.lists(st.tuples(st.integers(0, 30), NODES, NODES), max_size=60)
DELAYS = st.lists(
    st.builds(
        LinkRule,
        senders=st.lists(NODES, min_size=1).map(tuple),
        receivers=st.lists(NODES, min_size=1).map(tuple),
        action=st.sampled_from(["delay", "drop", "duplicate"]),
        percent=st.sampled_from([20, 100]),
        delay_ms=st.integers(0, 50),
        jitter_ms=st.integers(0, 50),
        limit=st.none() | st.integers(1, 5),
    ),
    max_size=4,
)


@given(TRAFFIC)
def test_an_empty_table_is_transparent(traffic: list[tuple[int, str, str]]) -> None:
    table, now = LinkTable(), 0
    for pause, sender, receiver in traffic:
        now += pause * 1000
        assert table.is_idle(now)
        assert table.decide(sender, receiver, {}, now, random.Random(0)) == LinkDecision((now,))


@given(TRAFFIC, DELAYS, st.integers(0, 60), st.integers(0, 2**32))
def test_nothing_overtakes_on_a_link(
    traffic: list[tuple[int, str, str]], rules: list[LinkRule], healed_after: int, seed: int
) -> None:
    table, rng = LinkTable(), random.Random(seed)
    numbers = [table.add(each) for each in rules]
    last: dict[tuple[str, str], int] = {}
    now = 0
    for place, (pause, sender, receiver) in enumerate(traffic):
        now += pause * 1000
        if place == healed_after:
            for number in numbers:
                table.remove(number)
        times = table.decide(sender, receiver, {}, now, rng).times
        for time_us in times[:1]:
            assert time_us >= max(now, last.get((sender, receiver), 0))
            last[sender, receiver] = time_us
            if sender == receiver:
                assert time_us == now
        assert all(copy_us >= times[0] for copy_us in times[1:])


def test_late_copies_hold_nobody_up() -> None:
    """Otherwise each copy would wait for the one before, and the link be busy for seconds."""
    table, rng = LinkTable(), random.Random(0)
    table.add(rule("duplicate", delay_ms=500))
    for now in (1000, 2000, 3000):
        assert table.decide("n1", "n2", {}, now, rng).times == (now, now + 500_000)


def kept(load: str, size: int = 1) -> QueuedMessage[str]:
    return QueuedMessage("n1", "n2", load, size)


def loads(found: list[QueuedMessage[str]]) -> str:
    return "".join(message.load for message in found)


def test_queue_gives_back_in_order_and_on_time() -> None:
    queue: DelayQueue[str] = DelayQueue()
    for until, load in [(20, "c"), (10, "a"), (10, "b")]:
        assert queue.delay(until, kept(load))
    assert queue.next_due() == 10
    assert loads(queue.due(9)) == ""
    assert loads(queue.due(15)) == "ab"
    assert loads(queue.due(20)) == "c"
    assert (len(queue), queue.next_due()) == (0, None)


def test_queue_holds_until_released() -> None:
    queue: DelayQueue[str] = DelayQueue()
    for number, load in [(1, "a"), (2, "b"), (1, "c")]:
        assert queue.hold(number, kept(load))
    assert queue.held == 3
    assert loads(queue.release(1)) == "ac"
    assert loads(queue.release(1)) == ""
    assert queue.held == 1


def test_a_full_queue_drops_the_newest() -> None:
    queue: DelayQueue[str] = DelayQueue(max_messages=3, max_bytes=100)
    assert queue.hold(1, kept("a"))
    assert queue.delay(5, kept("b", 90))
    assert not queue.delay(1, kept("too large", 10))
    assert queue.delay(6, kept("c"))
    assert not queue.hold(1, kept("one too many"))
    assert queue.overflow == 2
    assert loads(queue.due(9)) == "bc"
    assert queue.delay(9, kept("d", 90))
