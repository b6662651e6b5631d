"""The invariant checker finds a violation at the step that causes it, and none in correct runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from checker.formats.verdict import Verdict
from harness.formats.history import Op, Read, RecordRun
from harness.formats.run_info import Promise
from harness.sim.invariant_checker import InvariantChecker, Violation
from harness.sim.node import SimNode
from harness.sim.run import simulate
from nemesis import ready_made
from nemesis.faults import Kill, Link
from nemesis.formats.schedule import After, Schedule, load
from node.core.protocol import KAFKA
from tests.support.sim_schedules import plan, storm

# A follower stops hearing the leader, which acknowledges all the same (bug M18), and dies.
DEAF_FOLLOWERS = (
    Link(
        at_ms=1000,
        on="n1,n2,n3",
        to="n1,n2,n3",
        action="drop",
        kinds=("fetch-response",),
        two_way=True,
        match={"partition": "log-0"},
    ),
    Kill(at_ms=1300, on="leader:log-0", for_ms=3000),
)


def test_a_lost_acknowledged_write_is_seen_when_the_leader_without_it_is_elected() -> None:
    schedule = plan(*DEAF_FOLLOWERS, bugs=("ack-before-isr",))
    result = simulate(schedule, seed=1, stop_at="visible")
    violation = next(violation for violation in result.violations if violation.visible)
    assert violation.invariant == "acknowledged-lost"
    leader = next(w for w in violation.witnesses if w.what == "log end")
    # The run has ended in that very turn: the new leader's first events are the last of the trace.
    assert (result.trace[-1]["node"], result.trace[-1]["t_us"]) == (leader.node, violation.t_us)
    assert result.info.state == "interrupted"
    # The checker says the same of a run that goes on to its end.
    whole = simulate(schedule, seed=1, stop_at="never")
    assert whole.verdict is whole.checked.verdict is Verdict.INVALID
    assert violation.property == "no-lost-acknowledged-write"
    assert (violation.property in whole.broken, whole.only_seen_by) == (True, "")


def test_a_read_below_the_last_high_watermark_of_a_leader_that_dropped_its_log_is_none() -> None:
    """A move ends in the turn in which its old leader commits and answers: the log is gone then."""
    checker = InvariantChecker(lambda name: None, KAFKA, Promise(), lambda: (1, 1))
    moved: dict[str, Any] = {"event": "hw", "partition": "log-0", "hw": 3, "leo": 3, "node": "n1"}
    moved |= {"leader_epoch": 6, "role": "leader", "batch_end": 3, "hash": "0123456789abcdef"}
    checker.turn("n1", [moved])
    for end, broken in ((3, []), (4, ["read-below-hw"])):
        reads = (Read(partition="log-0", start=0, records=(RecordRun(0, 10, end),)),)
        op = Op(op=end, t_us=1, process=5, client="c5", type="ok", f="poll", reads=reads)
        checker.on_history(op)
        assert [violation.invariant for violation in checker.violations] == broken


def test_records_committed_and_deleted_in_one_turn_are_not_compared() -> None:
    """Retention deletes a head at an append; the leader commits in the same turn."""
    nodes: dict[str, Any] = {}
    checker = InvariantChecker(nodes.get, KAFKA, Promise(), lambda: (1, 1))

    def moves(node: str, hw: int, chain: str, start: int = 0, before: str = "") -> list[str]:
        ends = {start: before, hw: chain}
        log = SimpleNamespace(
            start=start,
            hash_at=lambda offset: (offset, ends.get(offset, "")),
            hashes=lambda above, upto: [(hw, chain)] if above < hw <= upto else [],
        )
        nodes[node] = SimpleNamespace(replicas={"log-0": SimpleNamespace(log=log)})
        event = {"event": "hw", "node": node, "partition": "log-0", "hw": hw, "leo": hw}
        checker.turn(node, [{**event, "role": "leader", "batch_end": hw, "hash": chain}])
        return [violation.invariant for violation in checker.violations]

    assert moves("n1", 3, "aa") == []
    assert moves("n1", 10, "dd", start=7, before="cc") == []
    assert moves("n2", 5, "bb") == []
    assert moves("n2", 7, "cc") == []
    assert moves("n3", 7, "xx") == ["log-matching"]


FEW, MANY = range(3), range(100, 130)


@pytest.mark.parametrize(
    ("seeds", "flush"),
    [
        (FEW, "sync"),
        pytest.param(MANY, "sync", marks=pytest.mark.nightly),
        pytest.param(MANY, "async", marks=pytest.mark.nightly),
    ],
    ids=["few", "many", "many async"],
)
@pytest.mark.parametrize("protocol", ["kafka", "kip-279", "quorum"])
def test_storms_on_correct_protocols_break_nothing(protocol: str, seeds: range, flush: str) -> None:
    for seed in seeds:
        result = simulate(storm(seed, protocol=protocol, flush=flush), seed=seed)
        assert not result.violations, (seed, result.sentence)
        if seeds == FEW:
            assert result.checked.verdict in (Verdict.VALID, Verdict.NOT_EXERCISED)
            assert result.stalled == ()


def test_a_head_that_differs_from_what_was_committed_must_not_be_deleted() -> None:
    """KIP-279's first scenario, and retention reaches the records in which the two logs differ."""
    schedule = ready_made.load("kip-279-scenario-1")
    load = schedule.workload
    more = [
        replace(load.operations[-1], after=After(event="hw", match={"node": "n2", "hw": hw}))
        for hw in (31, 41)
    ]
    schedule = replace(
        schedule,
        cluster=replace(schedule.cluster, retention_records=2),
        workload=replace(load, operations=(*load.operations, *more)),
    )
    result = simulate(schedule, seed=1, stop_at="never")
    by_name = {violation.invariant: violation for violation in result.violations}
    assert by_name["deletes-committed"].property == "log-and-metadata"
    assert by_name["deletes-committed"].sentence == (
        "n2 begins its log of log-0 at 21, where what it deleted below is not what was committed"
    )


def test_a_follower_whose_log_end_is_inside_a_batch_of_its_leader_is_stuck() -> None:
    """The same scenario with n = 15: no batch of the leader begins where this log ends."""
    schedule = ready_made.load("kip-279-scenario-1")
    sends = list(schedule.workload.operations)
    sends[2] = replace(sends[2], count=4)
    schedule = replace(schedule, workload=replace(schedule.workload, operations=tuple(sends)))
    result = simulate(schedule, seed=1, stop_at="never")
    assert not result.violations
    assert "not-converged" in {found.name for found in result.checked.anomalies}
    assert simulate(under(schedule, "kip-279"), seed=1).verdict is Verdict.VALID


def under(schedule: Schedule, protocol: str) -> Schedule:
    return replace(schedule, cluster=replace(schedule.cluster, protocol=protocol))


def test_a_cluster_that_hangs_is_invalid_and_says_who_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of three brokers never come back: nothing can be committed any more."""
    start = SimNode.start

    def only_once(node: SimNode) -> None:
        if node.incarnation == 0:
            start(node)

    monkeypatch.setattr(SimNode, "start", only_once)
    result = simulate(plan(Kill(at_ms=1000, on="n2,n3"), duration_ms=2000), seed=1)
    assert result.verdict is Verdict.INVALID
    assert result.broken == ("liveness",)
    assert {"n2 is down", "n3 is down"} <= set(result.stalled)
    assert any(sentence.startswith("n1: leader of log-0") for sentence in result.stalled)


def test_voters_need_not_wait_for_the_whole_recovery_limit() -> None:
    schedule = storm(3, kinds=("kill",), protocol="quorum")
    run = simulate(schedule, seed=3)
    phases = run.info.phases
    assert run.verdict is Verdict.VALID, run.checked.sentence
    assert 0 < phases.heal_us <= phases.in_sync_us
    assert phases.stop_writing_us - phases.heal_us < run.info.recovery_limit_ms * 1000


@pytest.mark.parametrize("file", sorted((Path(__file__).parent / "no_alarms").iterdir()))
def test_a_correct_broker_raises_no_alarm_where_an_invariant_once_did(file: Path) -> None:
    schedule = load(file)
    result = simulate(schedule, seed=schedule.workload.seed, stop_at="any")
    assert result.violations == ()


def test_a_run_that_broke_an_invariant_inside_is_kept_as_invalid(tmp_path: Path) -> None:
    schedule = plan(bugs=())
    result = simulate(schedule, seed=1, stop_at="never", keep=tmp_path / "run")
    assert result.judged is result.checked
    broken = Violation("committed-on-majority", 7, 9, "n1 has another one")
    inside = dataclasses.replace(result, violations=(broken,), sentence="invalid: n1 has another")
    assert inside.judged.verdict is Verdict.INVALID
    assert inside.judged.broken == {broken.property: broken.invariant}
    assert inside.judged.sentence == "invalid: n1 has another"
