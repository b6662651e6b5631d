"""Liftbridge in storms, and what remains possible in it as documented.

Its two documented weak spots are an answer without an epoch (KIP-279's histories) and restarts that
nobody finds out. So storms are run twice: as documented, with milder weather; and with the answer
mended (truncate on fetch, all else as documented), where nothing may go wrong in any weather unless
power cuts take unflushed records.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from node.core import protocol
from tests.node.core.test_storms import PARTITIONS, Storm
from tests.support.core_storm import CLIMATES, ChaosStorm, Climate

MENDED = replace(
    protocol.LIFTBRIDGE, name="liftbridge, mended", truncation=protocol.Truncation.ON_FETCH
)
WEATHER = [
    name
    for name, known in CLIMATES.items()
    if known.protocol == "kafka" and not known.flush_interval_ms
]
"""All climates under a controller in which a restart loses nothing."""


def climate(name: str, of: str) -> Climate:
    """A climate under another protocol; its sleeps and patience are as short as its lag."""
    known = CLIMATES[name]
    timings = known.timings
    if timings.lag_ms <= timings.idle_wait_ms:
        timings = msgspec.structs.replace(
            timings, idle_wait_ms=timings.lag_ms // 3, leader_timeout_ms=timings.session_ms
        )
    return replace(known, protocol=of, timings=timings)


@pytest.mark.parametrize("voters", [1, 3])
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(s, marks=pytest.mark.slow) for s in (2, 3))])
def test_as_documented_with_clean_restarts(seed: int, voters: int) -> None:
    storm = Storm(seed, voters, protocol="liftbridge")
    storm.run()
    assert storm.problems() == []
    assert storm.acknowledged() > 20, "a storm in which nothing is written proves nothing"
    assert all(storm.world.leader(p) for p in PARTITIONS), "every partition has a leader again"


@pytest.mark.parametrize("name", WEATHER)
def test_all_but_the_answer_is_sound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(protocol.REGISTRY, MENDED.name, MENDED)
    storm = ChaosStorm(1, climate(name, MENDED.name))
    storm.run(20)
    assert storm.problems() == []
    assert storm.acknowledged() > 0, "a storm in which nothing is written proves nothing"


@pytest.mark.slow
@pytest.mark.parametrize("name", WEATHER)
@pytest.mark.parametrize("seed", range(100, 106))
def test_in_more_storms(seed: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(protocol.REGISTRY, MENDED.name, MENDED)
    storm = ChaosStorm(seed, climate(name, MENDED.name))
    storm.run()
    assert storm.problems() == []


def test_some_storm_meets_kip_279() -> None:
    """A paused leader wrote on in its epoch, was deposed, and is elected again before it lagged out
    of the ISR. Its follower wrote in the epoch between, and asks for an epoch that the leader never
    had: it is told an offset of another one and cuts nothing or too little. With the epoch in the
    answer the same storm ends well."""
    for seed in range(1, 30):
        storm = ChaosStorm(seed, climate("slow links", "liftbridge"))
        storm.run(20)
        problems = storm.problems()
        assert not any("acknowledged" in each for each in problems), problems
        if problems:
            assert " not as " in problems[0]
            return
    pytest.fail("no storm of 29 has met it")


def test_some_power_cut_of_one_replica_endangers_what_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member of the ISR lost a committed record, nobody asked, and it may be elected."""
    monkeypatch.setitem(protocol.REGISTRY, MENDED.name, MENDED)
    breaches = []
    for seed in range(1, 30):
        storm = ChaosStorm(seed, climate("power cuts", MENDED.name))
        try:
            storm.run(20)
        except AssertionError as breach:
            breaches.append(str(breach))
            break
    seen = ("candidate-completeness", "leader-completeness", "log-matching")
    assert any(breach.startswith(seen) for breach in breaches), breaches
