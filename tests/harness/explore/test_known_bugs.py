"""Counterexamples of known bugs, within bounds that follow from what they do, as runs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from checker.engine.local import check_run
from checker.formats.verdict import RunResult, Verdict
from harness.explore.bounds import Bounds, ExploreRequest
from harness.explore.run import FILE, explore
from node.core.bugs import KNOWN_BUGS
from node.formats.errors import UsageError
from node.formats.json_input import read_file

SHORTEST: Final = {
    "M1": (Bounds(kills=2), 4),
    "M1b": (Bounds(elections=1, kills=1, restarts=0), 3),
    "M1c": (Bounds(crashes=1, records=2), 3),
    "M2": (Bounds(cuts=1, elections=2, records=2, calm=True), 5),
    "M2b": (Bounds(cuts=1, elections=2, records=2, calm=True), 5),
    "M2e": (Bounds(cuts=1, elections=2, records=2, calm=True), 5),
    "M5b": (Bounds(fencings=1, losses=1, kills=1, restarts=0), 4),
    "M6": (Bounds(kills=2, min_isr=2), 4),
    "M8": (Bounds(power_cuts=2), 4),
    "M9": (Bounds(flush="async", min_isr=2, power_cuts=1, kills=1), 4),
    "M10": (Bounds(fencings=1, losses=1, kills=1, restarts=0), 4),
    "M11": (Bounds(cuts=1, elections=1, records=2, losses=1, kills=1, restarts=0), 5),
    "M12": (Bounds(crashes=1, records=2), 3),
    "M17": (Bounds(elections=1), 2),
    "M18": (Bounds(kills=1), 2),
    "M19": (Bounds(reads=1), 2),
    "M20": (Bounds(kills=1), 2),
    "M22": (Bounds(kills=2), 3),
    "M24": (Bounds(brokers=3, copies=2, moves=1, kills=2, restarts=0), 2),
    "M25": (Bounds(kills=2, restarts=1), 4),
    "I1": (Bounds(retries=1, kills=1, restarts=0), 3),
    "R4b": (Bounds(brokers=3, crashes=1, records=2), 3),
    "R6": (Bounds(brokers=1, crashes=1), 2),
    "R7": (Bounds(brokers=1, crashes=1), 2),
}
"""By the code of a bug: its bounds, and the number of actions of its shortest counterexample, which
is the same without reductions."""
QUICK: Final = {"I1", "M1b", "M12", "M17", "M2", "R6"}


@pytest.mark.parametrize(
    "code",
    [pytest.param(code, marks=[] if code in QUICK else pytest.mark.nightly) for code in SHORTEST],
)
def test_a_known_bug_has_a_shortest_path_that_the_checker_judges_invalid(
    code: str, tmp_path: Path
) -> None:
    within, actions = SHORTEST[code]
    (bug,) = [bug for bug in KNOWN_BUGS if bug.code == code]
    bounds = replace(within, protocol=bug.protocol, bugs=(bug.name,)).checked()
    made = explore(ExploreRequest(bounds=bounds, breaks=bug.breaks, store=tmp_path))
    assert made.found is not None
    assert made.found.counted == actions
    assert made.exit_code == 1
    # The shortest of M6 and M24 breaks an invariant before a client has lost anything.
    assert (made.found.property if code in ("M6", "M24") else bug.breaks) in made.broken
    assert "liveness" not in made.broken
    folder = Path(made.folder)
    judged = read_file(folder / "results.json", RunResult)
    assert (judged.verdict, judged.sentence) == (Verdict.INVALID, made.sentence)
    assert check_run(folder) == judged
    again = explore(ExploreRequest(replay=folder))
    assert (again.sentence, again.broken) == (made.sentence, made.broken)
    assert read_file(folder / "results.json", RunResult) == judged


def test_a_path_without_the_bug_is_none_that_can_be_repeated(tmp_path: Path) -> None:
    bounds = Bounds(bugs=("ack-before-isr",), kills=1).checked()
    made = explore(ExploreRequest(bounds=bounds, store=tmp_path))
    file = Path(made.folder) / FILE
    file.write_text(file.read_text().replace('["ack-before-isr"]', "[]"))
    with pytest.raises(UsageError, match="leads to no violation"):
        explore(ExploreRequest(replay=Path(made.folder)))
    with pytest.raises(
        UsageError, match="not a folder that `explore` wrote: there is no such file"
    ):
        explore(ExploreRequest(replay=tmp_path))
