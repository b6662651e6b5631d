"""The words of a page on faults that hit nothing, and on clusters that do nothing."""

from __future__ import annotations

import pytest

from harness.formats.process_exits import Exit
from harness.formats.run_info import RunInfo
from reports.evidence.faults import Executed
from reports.evidence.operations import AckGap
from reports.evidence.standstill import Idle, idle_majority, in_vain

INFO = RunInfo(brokers=("n1", "n2", "n3"), failover_ms=5)
GAP = AckGap("log-0", 10_000, 40_000)


def fault(what: str, start_ms: int, end_ms: int, *nodes: str, healed: bool = True) -> Executed:
    return Executed(
        *(0, what, "done"),
        start_us=start_ms * 1000,
        end_us=end_ms * 1000,
        nodes=nodes,
        healed=healed,
    )


def test_a_fault_that_was_refused_and_one_on_a_node_that_was_stopped_already_are_named() -> None:
    pause, late = fault("pause", 1, 9, "n3"), fault("power-cut", 4, 6, "n2", "n3")
    refused = Executed(2, "kill", "skipped", detail="n1 is down already")
    assert in_vain([pause, late]) == ["power-cut hit n3 during a pause"]
    assert in_vain([refused]) == ["kill skipped: n1 is down already"]
    after, other = fault("kill", 10, 12, "n3"), fault("kill", 2, 3, "n1")
    assert in_vain([pause, after, other, fault("delay", 2, 3, "n3")]) == []


@pytest.mark.parametrize(
    ("faults", "exits", "idle"),
    [
        ([], [], Idle(("n1", "n2", "n3"), 10_000, 40_000)),
        # A leader is dead: the others had time to elect one.
        ([fault("kill", 10, 60, "n1")], [], Idle(("n2", "n3"), 10_000, 40_000)),
        # Whoever comes back needs a failover, too.
        ([fault("kill", 10, 20, "n1", "n2")], [], Idle(("n1", "n2", "n3"), 25_000, 40_000)),
        ([fault("kill", 10, 31, "n1", "n2")], [], None),
        ([fault("kill", 9, 12, "n1"), fault("kill", 14, 36, "n2", "n3")], [], None),
        ([fault("cut", 5, 50)], [], None),
        ([fault("cut", 5, 9, healed=False)], [], None),
        ([fault("kill", 10, 60, "n1")], [Exit(node="n2", t_us=20_000, code=1)], None),
        ([fault("kill", 10, 60, "n1")], [Exit(node="n2", t_us=12_000, code=1)], None),
    ],
)
def test_a_majority_that_could_have_gone_on_is_named(
    faults: list[Executed], exits: list[Exit], idle: Idle | None
) -> None:
    assert idle_majority(GAP, INFO, faults, exits) == idle


def test_a_majority_of_brokers_without_one_of_voters_is_none() -> None:
    info = RunInfo(brokers=("n1",), voters=("v1", "v2", "v3"), failover_ms=5)
    assert idle_majority(GAP, info, [fault("kill", 9, 50, "v1", "v2")], []) is None
    assert idle_majority(GAP, info, [fault("kill", 9, 50, "v1")], []) is not None
    assert idle_majority(GAP, RunInfo(brokers=("n1",)), [], []) is None
