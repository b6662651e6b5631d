"""The recovery of a run says what it waited for, and final reads get their time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.runs.storm import Storm
from harness.sim.run import simulate
from tests.support.sim_schedules import plan


@pytest.mark.parametrize(
    ("leader", "isr", "epoch", "acked", "waited_for"),
    [
        (None, ("n1",), 3, {"log-0"}, "log-0 had no leader"),
        (None, (), -1, set(), "log-0 acknowledged nothing"),
        ("n1", ("n1",), 3, {"log-0"}, "n2 and n3 of log-0 not in sync"),
        ("n1", ("n1", "n2", "n3"), 3, set(), "log-0 acknowledged nothing"),
        ("n1", ("n1", "n2", "n3"), 3, {"log-0"}, ""),
    ],
)
def test_what_was_not_back_is_named(
    leader: str | None, isr: tuple[str, ...], epoch: int, acked: set[str], waited_for: str
) -> None:
    storm: Any = Storm.__new__(Storm)
    view = SimpleNamespace(
        leader=lambda _: leader,
        isr=lambda _: isr,
        leader_epoch=lambda _: epoch,
        replicas=lambda _: ("n1", "n2", "n3"),
    )
    storm.cluster = SimpleNamespace(view=view, tells_in_sync=True)
    storm.clients = SimpleNamespace(status=SimpleNamespace(progress=dict.fromkeys(acked, 1)))
    assert storm._not_recovered({"log-0": 0}, {"log-0"}) == waited_for


def test_final_reads_may_take_as_long_as_the_storm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.runs.storm.PATIENCE_S", 0.0)
    assert simulate(plan(duration_ms=1000), seed=1).verdict.value == "valid"
