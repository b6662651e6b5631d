"""Counterexamples of known bugs, within bounds that follow from what they do, as schedules."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from harness.explore.bounds import Bounds
from harness.explore.explorer import Counterexample
from harness.explore.model import Model
from harness.explore.requests import ExploreRequest
from harness.explore.run import explore
from harness.explore.to_schedule import _Due, _schedule, schedules
from harness.formats.finding import SCHEDULE
from harness.search.worlds.attempt import attempt
from nemesis.faults import Release
from nemesis.formats.schedule import Schedule, load
from node.core.bugs import KNOWN_BUGS
from node.core.messages import FetchRequest

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
def test_a_known_bug_has_a_shortest_counterexample_that_fails_in_the_simulated_world(
    code: str, tmp_path: Path
) -> None:
    within, actions = SHORTEST[code]
    (bug,) = [bug for bug in KNOWN_BUGS if bug.code == code]
    bounds = replace(within, protocol=bug.protocol, bugs=(bug.name,)).checked()
    made = explore(ExploreRequest(bounds=bounds, breaks=bug.breaks, store=tmp_path))
    found = made.result.counterexamples[0]
    assert found.counted == actions
    assert made.exit_code == 1
    assert made.confirmed is (code != "M12"), "no schedule of M12 fails there"
    if made.confirmed:
        schedule = load(Path(made.folder, SCHEDULE))
        # The shortest of M6 and M24 breaks an invariant before a client has lost anything.
        breaks = found.property if code in ("M6", "M24") else bug.breaks
        assert breaks in attempt(schedule, about=bug.breaks).broken
        assert schedule.workload.idempotent is bool(within.retries)


RELEASES = Bounds(cuts=1, delays=2)


def released(schedule: Schedule) -> list[str]:
    return [fault.of for fault in schedule.faults if isinstance(fault, Release)]


def test_a_release_delivers_the_held_message_and_not_the_oldest() -> None:
    first, second = (("n2", "n1", FetchRequest(partition="log-0", offset=n), None) for n in (0, 1))
    due = [
        _Due(("delay",), (), 10.0, first),
        _Due(("cut", (1, 2)), (), 20.0),
        _Due(("delay",), (), 30.0, second),
        _Due(("heal", (1, 2)), (), 40.0),
        _Due(("release", 1), (), 50.0, second),
        _Due(("release", 0), (), 60.0, first),
    ]
    made = _schedule(RELEASES, due, [0] * len(due), 100.0, 0, 0)
    assert released(made) == ["cut-1", "delay-2", "delay-0"]


def test_a_path_says_which_message_it_releases() -> None:
    moves = Model(RELEASES)
    state, path = moves.boot(), []
    for wanted in ("send", "delay", "release"):
        found = next(edge for edge in moves.edges(state) if edge.action[0] == wanted)
        path.append(found.action)
        state = found.state
    told = Counterexample(
        actions=tuple(path), invariant="x", property="liveness", sentence="", counted=2
    )
    assert released(next(schedules(moves, told, 2))) == ["delay-1"]
