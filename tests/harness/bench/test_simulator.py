"""The bench of the simulated world: its figures."""

from __future__ import annotations

import json

import pytest

from harness.cli import main


@pytest.mark.integration
def test_the_bench_states_rates_and_shares(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["bench", "sim", "--budget", "0.1s", "--quiet", "--json"])
    assert ended.value.code == 0
    storm, search = json.loads(capsys.readouterr().out)
    assert (storm["shape"], search["shape"]) == ("storm", "search")
    for each in (storm, search):
        assert each["verdicts"] == {"valid": each["runs"]}
        assert min(each["virtual_per_s"], each["events_per_s"], each["schedules_per_s"]) > 0
