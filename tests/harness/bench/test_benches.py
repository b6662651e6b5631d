"""The figures of benches, and their tables."""

from __future__ import annotations

import json

import pytest

from harness.bench.peers import MeasuredSystem, PeersFound, Rates, peers_table, run_peers_bench
from harness.bench.requests import PeersBench
from harness.runs.progress import Progress
from node.formats.errors import UsageError
from tests.support.command import exit_code

ABSENT = MeasuredSystem(label="nobody's", system="nobodys")


@pytest.mark.integration
def test_a_system_is_loaded_in_each_round_and_one_that_is_absent_is_named() -> None:
    settings = PeersBench(clients=(2,), rounds=2, budget_s=0.5)
    present = MeasuredSystem(label="present", system="floodmark")
    found = run_peers_bench(settings, Progress(quiet=True), (present, ABSENT))
    (rates,) = found.rates
    assert (rates.label, rates.clients) == ("present", 2)
    assert len(rates.acked_s) == len(found.synced_us) == 2
    assert min(*rates.acked_s, *rates.p50_ms) > 0
    assert rates.clients_core >= 0, "0 where a core is shared by many"
    assert all(p99 >= p50 for p50, p99 in zip(rates.p50_ms, rates.p99_ms, strict=True))
    assert min(found.synced_us) > 0
    (sentence,) = found.absent
    assert "nobody's: unknown system 'nobodys'" in sentence
    assert sentence in peers_table(found)
    with pytest.raises(UsageError, match="no system to measure: nobody's: unknown system"):
        run_peers_bench(PeersBench(), Progress(quiet=True), (ABSENT,))


def test_the_table_has_medians_ranges_and_the_rate_beside_nats() -> None:
    def rates(label: str, *acked_s: float) -> Rates:
        return Rates(
            label=label, clients=1, acked_s=acked_s, p50_ms=(1.0,), p99_ms=(2.0,), clients_core=0.25
        )

    found = PeersFound(
        rates=(rates("floodmark, sync", 300, 500, 100), rates("NATS, sync always", 600)),
        synced_us=(),
        absent=(),
    )
    first, second = peers_table(found).splitlines()[2:4]
    assert first.split() == [
        *("floodmark,", "sync", "1", "300", "[100", "to", "500]", "1.00", "2.00", "25%", "0.50")
    ]
    assert second.endswith(" 1.00")


@pytest.mark.integration
def test_the_bench_states_rates_and_shares(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["bench", "sim", "--budget", "0.1s", "--quiet", "--json"]) == 0
    storm, search = json.loads(capsys.readouterr().out)
    assert (storm["shape"], search["shape"]) == ("storm", "search")
    for each in (storm, search):
        assert each["verdicts"] == {"valid": each["runs"]}
        assert min(each["virtual_per_s"], each["events_per_s"], each["schedules_per_s"]) > 0
