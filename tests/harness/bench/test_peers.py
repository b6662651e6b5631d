"""`floodmark bench peers`: systems take turns, and one that is not there is said to be so."""

from __future__ import annotations

import pytest

from harness.bench.peers import (
    MeasuredSystem,
    PeersBench,
    PeersFound,
    Rates,
    peers_table,
    run_peers_bench,
)
from harness.runs.progress import Progress
from node.formats.errors import UsageError

pytestmark = pytest.mark.integration

ABSENT = MeasuredSystem(label="nobody's", system="nobodys")


def test_a_system_is_loaded_in_each_round_and_one_that_is_absent_is_named() -> None:
    settings = PeersBench(clients=(2,), rounds=2, budget_s=0.5)
    present = MeasuredSystem(label="present", system="floodmark")
    found = run_peers_bench(settings, Progress(quiet=True), (present, ABSENT))
    (rates,) = found.rates
    assert (rates.label, rates.clients) == ("present", 2)
    assert len(rates.acked_s) == len(found.limits) == 2
    assert min(*rates.acked_s, *rates.p50_ms) > 0
    assert rates.clients_core >= 0, "0 where a core is shared by many"
    assert all(p99 >= p50 for p50, p99 in zip(rates.p50_ms, rates.p99_ms, strict=True))
    for limits in found.limits:
        assert min(limits.fdatasync_us, limits.loopback_us, limits.lmdb_us) > 0
    (sentence,) = found.absent
    assert "nobody's: unknown system 'nobodys'" in sentence
    assert sentence in peers_table(found)


def test_without_any_system_nothing_is_measured() -> None:
    with pytest.raises(UsageError, match="no system to measure: nobody's: unknown system"):
        run_peers_bench(PeersBench(), Progress(quiet=True), (ABSENT,))


def test_the_table_has_medians_ranges_and_the_rate_beside_nats() -> None:
    def rates(label: str, *acked_s: float) -> Rates:
        return Rates(
            label=label, clients=1, acked_s=acked_s, p50_ms=(1.0,), p99_ms=(2.0,), clients_core=0.25
        )

    found = PeersFound(
        rates=(rates("floodmark, sync", 300, 500, 100), rates("NATS, sync always", 600)),
        limits=(),
        absent=(),
    )
    first, second = peers_table(found).splitlines()[2:4]
    assert first.split() == [
        *("floodmark,", "sync", "1", "300", "[100", "to", "500]", "1.00", "2.00", "25%", "0.50")
    ]
    assert second.endswith(" 1.00")
