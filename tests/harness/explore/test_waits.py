"""Which wait ends next: the shortest that leads further, also out of a circle."""

from __future__ import annotations

import pytest

from harness.explore.bounds import Bounds
from harness.explore.local_steps import LocalSteps
from harness.explore.waits import Action, Waits


def made_up(monkeypatch: pytest.MonkeyPatch, ends: dict[int, dict[str, int]]) -> Waits:
    """Waits of made-up states: by state, the waits that may end, the shortest first, and the state
    after each."""
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


def test_the_shortest_wait_that_changes_anything_ends_next(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = made_up(
        monkeypatch, {0: {"fetch": 0, "heartbeat": 1, "flush": 2}, 1: {"fetch": 1}, 2: {}}
    )
    assert name_of(waits.next((0,), ())) == "heartbeat"
    assert waits.next((1,), ()) is None
    assert not waits.is_circular((1,), ())


def test_a_circle_is_left_by_the_shortest_wait_that_leads_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = made_up(
        monkeypatch,
        {
            0: {"fetch": 1, "heartbeat": 2, "flush": 3},
            1: {"fetch": 0, "heartbeat": 3},
            2: {"fetch": 3, "heartbeat": 2},
            3: {"fetch": 2, "heartbeat": 3},
        },
    )
    assert name_of(waits.next((0,), ())) == "heartbeat"
    for at in (2, 3):
        assert waits.next((at,), ()) is None
        assert waits.is_circular((at,), ())


def test_two_circles_that_never_end_are_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait leads round by itself: none of them leads further."""
    waits = made_up(monkeypatch, {at: {"fetch": at ^ 1, "heartbeat": at ^ 2} for at in range(4)})
    assert waits.next((0,), ()) is None
    assert waits.is_circular((0,), ())


def test_the_wait_that_leads_out_of_two_circles_ends_next(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {at: {"fetch": at ^ 1, "heartbeat": at ^ 2, "flush": 4} for at in range(4)}
    waits = made_up(monkeypatch, {**ends, 4: {}})
    assert name_of(waits.next((0,), ())) == "flush"
    assert waits.next((4,), ()) is None
    assert not waits.is_circular((4,), ())
