"""The figures of the bench, and their tables."""

from __future__ import annotations

import argparse
import re

import pytest

from tests.lab import bench
from tests.lab.__main__ import main
from tests.lab.bench.simulator import run_sim_bench
from tests.support.paths import ROOT


@pytest.mark.integration
def test_simulated_runs_have_rates_and_are_valid() -> None:
    for each in run_sim_bench(0.1):
        assert set(each.verdicts) == {"valid"}
        assert min(each.virtual_per_s, each.events_per_s, each.schedules_per_s) > 0


@pytest.mark.nightly
def test_each_bench_prints_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--budget", "0.5", "--judged", "6"]) == 0
    assert main(["bench", "check", "--no-spark", "--ops", "10000", "--lines"]) == 0
    assert main(["bench", "check", "--no-spark", "--ops", "10000", "--group"]) == 0
    assert main(["bench", "sim", "--budget", "0.1"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    loads = [line.split() for line in lines if line.split()[0] in ("sync", "async")]
    assert [load[:2] for load in loads] == [
        [flush, clients] for flush in ("sync", "async") for clients in ("1", "8", "64")
    ]
    assert all(float(load[2].replace(",", "")) > 0 for load in loads)
    assert sum("from the last operation to the verdict" in line for line in lines) == 1
    assert sum("operations from lines" in line for line in lines) == 3
    assert [line.split()[0] for line in lines[-2:]] == ["storm", "search"]


def test_the_workflow_gives_the_bench_options_that_it_has() -> None:
    workflow = (ROOT / ".github/workflows/nightly.yml").read_text("utf-8")
    commands = re.findall(r"^ +bench (.+)$", workflow, re.MULTILINE)
    assert commands
    for words in commands:
        parser = argparse.ArgumentParser(exit_on_error=False)
        bench.add_options(parser)
        parser.parse_args(words.split())
