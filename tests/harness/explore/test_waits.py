"""The order of waits: the shortest that leads further ends next, also out of a circle."""

from __future__ import annotations

import pytest

from harness.explore.bounds import Bounds
from harness.explore.local_steps import LocalSteps
from harness.explore.waits import Action, Waits


def made_up(monkeypatch: pytest.MonkeyPatch, ends: dict[int, dict[str, int]]) -> Waits:
    """Make waits of invented states: by state, the waits that may end, the shortest first, and the
    state after each."""
    waits = Waits(LocalSteps(Bounds()))

    def soon(nodes: tuple[int, ...], cuts: object) -> list[Action]:
        return [("expire", 0, (name,)) for name in ends[nodes[0]]]

    def quiet(nodes: tuple[int, ...], cuts: object, at: int, names: tuple[str]) -> tuple[int]:
        return (ends[nodes[0]][names[0]],)

    monkeypatch.setattr(waits, "soon", soon)
    monkeypatch.setattr(waits, "_quiet", quiet)
    return waits


def name_of(action: Action | None) -> str:
    return "" if action is None else action[2][0]


LINE = {0: {"fetch": 0, "heartbeat": 1, "flush": 2}, 1: {"fetch": 1}, 2: {}}
CIRCLE = {
    0: {"fetch": 1, "heartbeat": 2, "flush": 3},
    1: {"fetch": 0, "heartbeat": 3},
    2: {"fetch": 3, "heartbeat": 2},
    3: {"fetch": 2, "heartbeat": 3},
}
TWO_CIRCLES = {at: {"fetch": at ^ 1, "heartbeat": at ^ 2} for at in range(4)}
A_WAY_OUT = {**{at: {**ends, "flush": 4} for at, ends in TWO_CIRCLES.items()}, 4: {}}


@pytest.mark.parametrize(
    ("ends", "first", "at_rest", "circular"),
    [
        pytest.param(LINE, "heartbeat", (1,), False, id="the shortest that changes anything"),
        pytest.param(CIRCLE, "heartbeat", (2, 3), True, id="the shortest that leads out"),
        # Each wait leads round by itself: none of them leads further.
        pytest.param(TWO_CIRCLES, "", (0,), True, id="two circles that never end"),
        pytest.param(A_WAY_OUT, "flush", (4,), False, id="out of two circles"),
    ],
)
def test_the_wait_that_ends_next(
    monkeypatch: pytest.MonkeyPatch,
    ends: dict[int, dict[str, int]],
    first: str,
    at_rest: tuple[int, ...],
    circular: bool,
) -> None:
    waits = made_up(monkeypatch, ends)
    assert name_of(waits.next((0,), ())) == first
    for at in at_rest:
        assert waits.next((at,), ()) is None
        assert waits.is_circular((at,), ()) is circular
