"""Breakpoints that are set before a process starts (others: `processes/breakpoints.txt`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.formats.trace import APPEND, event
from node.runtime.breakpoints import Armed, Breakpoint, Breakpoints
from tests.support.runtime_fakes import FakeCore
from tests.support.runtime_rig import Node
from tests.support.waiting import until


@pytest.mark.integration
def test_breakpoints_of_the_start_are_in_force_from_the_first_turn(tmp_path: Path) -> None:
    first = Breakpoint(number=1, event="started")
    with Node(tmp_path, FakeCore, breakpoints=(first,)) as node:
        node.start()
        until(lambda: node.trace("break"), "the breakpoint")
        node.breakpoints.order([])
        assert node.stop() == 0


def test_without_a_pipe_nothing_ever_stops() -> None:
    points = Breakpoints(Armed("n1", 1, [Breakpoint(number=1, event="append")]))
    assert (
        points.reached(
            [event(APPEND, "log-0", base_offset=0, leo=1, leader_epoch=1, hash="", role="leader")]
        )
        is None
    )
    assert points.wake_fd == -1
