"""The recovery of a run says what it waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.runs.storm import Storm


class View:
    """A view of one partition on three nodes."""

    def __init__(self, leader: str | None, isr: tuple[str, ...], epoch: int) -> None:
        self.leader = lambda _: leader
        self.isr = lambda _: isr
        self.leader_epoch = lambda _: epoch
        self.replicas = lambda _: ("n1", "n2", "n3")


@pytest.mark.parametrize(
    ("view", "acked", "waited_for"),
    [
        (View(None, ("n1",), 3), {"log-0"}, "log-0 had no leader"),
        (View(None, (), -1), set(), "log-0 acknowledged nothing"),
        (View("n1", ("n1",), 3), {"log-0"}, "n2 and n3 of log-0 not in sync"),
        (View("n1", ("n1", "n2", "n3"), 3), set(), "log-0 acknowledged nothing"),
        (View("n1", ("n1", "n2", "n3"), 3), {"log-0"}, ""),
    ],
)
def test_what_was_not_back_is_named(view: View, acked: set[str], waited_for: str) -> None:
    storm: Any = Storm.__new__(Storm)
    storm._cluster = SimpleNamespace(view=view, tells_in_sync=True)
    storm._clients = SimpleNamespace(status=SimpleNamespace(progress=dict.fromkeys(acked, 1)))
    assert storm._not_recovered({"log-0": 0}, {"log-0"}) == waited_for
