"""Breakpoints of one process, without the process."""

from __future__ import annotations

from node.core.turn import Turn, TurnStep
from node.formats.trace import APPEND, HW
from node.runtime.breakpoints import Armed, Breakpoint


def test_a_breakpoint_counts_on_while_another_stops_the_turn() -> None:
    points = {1: Breakpoint(APPEND), 2: Breakpoint(HW, nth=2)}
    armed = Armed("n1", 1, points)
    turn = Turn([{"event": APPEND}, {"event": HW}], [], [], 0)
    assert turn.steps[-1] is TurnStep.SEND
    first = armed.reached(turn)
    armed.remove(1)
    second = armed.reached(turn)
    assert [found and found.number for found in (first, second)] == [1, 2]
