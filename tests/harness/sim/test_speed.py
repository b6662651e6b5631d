"""What the bench of the simulated world says of a run, and that many runs leave nothing behind."""

from __future__ import annotations

import gc
import json
import sys

import pytest

from harness.bench import simulator
from harness.bench.simulator import PARTS
from harness.cli import main
from harness.search.generator import TIMINGS
from harness.sim.run import RUNS_PER_COLLECTION, batched_collections, simulate
from tests.support.sim_schedules import plan


def test_the_bench_tells_rates_and_where_the_time_goes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["bench", "sim", "--seconds", "0.6", "--quiet", "--json"])
    assert ended.value.code == 0
    storm, search = json.loads(capsys.readouterr().out)
    assert (storm["shape"], search["shape"]) == ("storm", "search")
    for each in (storm, search):
        assert each["verdicts"] == {"valid": each["runs"]}
        assert min(each["virtual_per_s"], each["events_per_s"], each["schedules_per_s"]) > 0
        assert tuple(each["shares"]) == PARTS
        assert abs(sum(each["shares"].values()) - 1) < 0.01
    assert search["virtual_s"] / search["runs"] < storm["virtual_s"] / storm["runs"]
    # To judge a storm is cheaper than to run it, or the checker reads what nobody asked for.
    assert storm["shares"]["checker"] < storm["shares"]["core"]


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


def test_many_runs_leave_nothing_behind() -> None:
    """What a run leaves in cycles is gone after a few more, although nobody collects garbage."""
    schedule = plan(duration_ms=100, timings=TIMINGS)

    def objects() -> int:
        for _ in range(RUNS_PER_COLLECTION):
            simulate(schedule, seed=1)
        return len(gc.get_objects())

    with batched_collections():
        assert not gc.isenabled()
        objects()
        first = objects()
        assert abs(objects() - first) < 100, "one run makes many thousand"
    assert gc.isenabled()
