"""Counterexamples as schedules: the faults that the actions of a path become."""

from __future__ import annotations

from harness.explore.bounds import Bounds
from harness.explore.explorer import Counterexample
from harness.explore.model import Model
from harness.explore.to_schedule import _Due, _schedule, schedules
from nemesis.faults import Release
from nemesis.formats.schedule import Schedule
from node.core.messages import FetchRequest

BOUNDS = Bounds(cuts=1, delays=2)


def released(schedule: Schedule) -> list[str]:
    return [fault.of for fault in schedule.faults if isinstance(fault, Release)]


def test_a_release_delivers_the_held_message_and_not_the_oldest() -> None:
    first, second = (("n2", "n1", FetchRequest(partition="log-0", offset=n), None) for n in (0, 1))
    due = [
        _Due(("delay", "delays"), (), 10.0, first),
        _Due(("cut", (1, 2)), (), 20.0),
        _Due(("delay", "delays"), (), 30.0, second),
        _Due(("heal", (1, 2)), (), 40.0),
        _Due(("release", 1), (), 50.0, second),
        _Due(("release", 0), (), 60.0, first),
    ]
    made = _schedule(BOUNDS, due, [0] * len(due), 100.0, 0, 0)
    assert released(made) == ["cut-1", "delay-2", "delay-0"]


def test_a_path_says_which_message_it_releases() -> None:
    moves = Model(BOUNDS)
    state, path = moves.boot(), []
    for wanted in ("send", "delay", "release"):
        found = next(edge for edge in moves.edges(state) if edge.action[0] == wanted)
        path.append(found.action)
        state = found.state
    told = Counterexample(
        actions=tuple(path), invariant="x", property="liveness", sentence="", counted=2
    )
    assert released(next(schedules(moves, told, 2))) == ["delay-1"]
