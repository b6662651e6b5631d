"""The bench of the simulated world: its figures, and the part that a stack counts for."""

from __future__ import annotations

import json
import sys

import pytest

from harness.bench import simulator
from harness.bench.simulator import PARTS
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
        assert tuple(each["shares"]) == PARTS


def test_reading_a_log_counts_for_the_invariant_checker() -> None:
    seen = []

    def look() -> None:
        seen.append(simulator.part_of(sys._getframe(1)))

    in_core = compile("look()", "/x/node/core/log.py", "exec")
    exec(in_core, {"look": look})
    in_checker = compile("exec(inner)", "/x/harness/sim/invariant_checker.py", "exec")
    exec(in_checker, {"inner": in_core, "look": look})
    exec(compile("look()", "/x/harness/sim/disk.py", "exec"), {"look": look})
    assert seen == ["core", "invariants", "world"]
