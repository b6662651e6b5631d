"""Link rules: their script, their draws, and the order in which messages of any traffic arrive."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nemesis.links.rule import LinkRule
from nemesis.links.table import LinkDecision, LinkTable
from tests.support.scripts import proving, read

RULES = read(Path(__file__).with_name("rules.txt"))


test_script = proving(RULES)


def test_percent_is_about_right_and_repeatable() -> None:
    def fates() -> list[bool]:
        table, rng = LinkTable(), random.Random(7)
        table.add(LinkRule(senders=("n1",), receivers=("n2",), action="drop", percent=30))
        return [bool(table.decide("n1", "n2", {}, 0, rng).times) for _ in range(2000)]

    assert fates() == fates()
    assert 1300 < sum(fates()) < 1500


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
