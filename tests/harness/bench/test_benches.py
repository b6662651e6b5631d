"""The figures of benches, and their tables."""

from __future__ import annotations

import json

import pytest

from tests.support.command import exit_code


@pytest.mark.integration
def test_the_bench_states_rates_and_shares(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["bench", "sim", "--budget", "0.1s", "--quiet", "--json"]) == 0
    storm, search = json.loads(capsys.readouterr().out)
    assert (storm["shape"], search["shape"]) == ("storm", "search")
    for each in (storm, search):
        assert each["verdicts"] == {"valid": each["runs"]}
        assert min(each["virtual_per_s"], each["events_per_s"], each["schedules_per_s"]) > 0
