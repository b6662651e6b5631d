"""Protocols before KIP-966 do not promise to notice a restart with a shorter log."""

from __future__ import annotations

import random

import pytest

from harness.search.grammar.phrases import compose
from harness.sim.run import simulate
from nemesis.faults import PowerCut
from node.core import protocol as protocols
from tests.support.sim_schedules import plan

CLEAN_ONLY = sorted(p.name for p in protocols.REGISTRY.values() if p.clean_only)
BACK_WITHIN_ITS_SESSION = PowerCut(on="leader:log-0", at_ms=1000, for_ms=100, keep_percent=0)


@pytest.mark.parametrize(
    ("protocol", "flush", "diverges"),
    [
        ("kip-279", "async", True),
        ("liftbridge", "async", True),
        ("kip-279", "sync", False),
        ("kafka", "async", False),
    ],
)
def test_a_leader_that_lost_its_tail_leads_on_in_its_epoch(
    protocol: str, flush: str, diverges: bool
) -> None:
    schedule = plan(BACK_WITHIN_ITS_SESSION, protocol=protocol, flush=flush, flush_interval_ms=5000)
    found = simulate(schedule, seed=1).checked.anomalies
    assert ("divergence" in {each.name for each in found}) is diverges


@pytest.mark.parametrize("protocol", CLEAN_ONLY)
def test_a_search_asks_no_more_than_is_promised(protocol: str) -> None:
    drawn = [compose(random.Random(seed), protocol).cluster for seed in range(60)]
    assert {cluster.flush for cluster in drawn} == {"sync"}
    assert not any(cluster.unclean_election for cluster in drawn)
