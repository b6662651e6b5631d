"""Each rule about steps is broken by a broker that does not follow it, and found at that step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from harness.sim.metadata_rules import _broker
from harness.sim.run import simulate
from nemesis.faults import Cut, Isolate, Kill, Link, Pause, Reassign
from nemesis.faults.admin import ElectUnclean, SetMinIsr
from nemesis.formats.schedule import Schedule
from node.core import (
    admin,
    election,
    follower,
    high_watermark,
    isr_change,
    leader,
    partitions,
    push,
    retention,
    truncation,
)
from node.core.context import Context
from node.core.controller import Controller
from node.core.epochs import EpochEnd
from node.core.groups import coordinator, decide
from node.core.groups.coordinator import WaitingAnswer
from node.core.image import BrokerRecord, PartitionRecord
from node.core.producers import Producers, Standing
from node.core.quorum import Quorum
from node.core.recovery import Recovery
from node.core.replica import NEVER, PendingAlter, Replica
from node.formats.messages import Error, Heartbeat
from tests.support.sim_schedules import plan, storm

KAFKA = storm(1, protocol="kafka")
PRODUCERS = replace(KAFKA, workload=replace(KAFKA.workload, idempotent=True))
MOVES = storm(1, protocol="kafka", brokers=4, kinds=("reassign",))
MEMBERS = replace(KAFKA, workload=replace(KAFKA.workload, members=3))
KIP_279 = storm(5, protocol="kip-279")
QUORUM, PUSH = storm(1, protocol="quorum"), storm(2, protocol="quorum-push")
DEAF = plan(
    Cut(at_ms=800, on="v1", to="n2", two_way=False, for_ms=3000),
    Kill(at_ms=1200, on="n3", for_ms=1000),
)
ALONE = plan(Isolate(at_ms=800, on="leader:log-0", for_ms=3000), protocol="quorum")
UNANSWERED = plan(
    Link(at_ms=500, on="n1", to="v1", action="drop", kinds=("alter-partition",), for_ms=2500),
    Pause(at_ms=900, on="n2", for_ms=1600),
)
_MOVE = Reassign(at_ms=500, partition="log-0", replicas="n2,n4")
AT_ONCE = plan(_MOVE, brokers=4, replication_factor=2, min_isr=2)
ALL_CUT = storm(3, protocol="kafka", flush="async", kinds=("kill", "power-cut"))
ORDERED = plan(
    SetMinIsr(at_ms=300, min_isr=1),
    Kill(at_ms=500, on="n2,n3", for_ms=3000),
    Kill(at_ms=3000, on="n1", for_ms=3500),
    ElectUnclean(at_ms=5600, partition="log-0"),
    duration_ms=7000,
    min_isr=2,
)
DELETES = storm(1, protocol="kafka", retention_records=2)
_reconciled, _beats = decide._reconciled, Controller.on_heartbeat
_completed, _longest = election._completed, Recovery.on_info


def _once(ctx: Context, pending: PendingAlter) -> None:
    pending.retry_at_us = NEVER
    ctx.send(ctx.controller, pending.request)


def _at_once(state: PartitionRecord, *rules: Any) -> PartitionRecord | None:
    done = _completed(replace(state, min_isr=1, adding=()), *rules)
    return done and replace(done, min_isr=state.min_isr)


def _shortest(recovery: Recovery, image: Any, source: str, info: Any) -> str | None:
    if _longest(recovery, image, source, info) is None:
        return None
    return min((end, name) for name, end in recovery._open[info.partition].answers.items())[1]


BROKEN: list[tuple[Schedule, Any, str, Any, str]] = [
    (KAFKA, leader, "_check_fetch", lambda *_: Error.NONE, "answered a fetch"),
    (KAFKA, leader, "_note_fetch", lambda *_: None, "counts n"),
    (KAFKA, isr_change, "may_expand", lambda **_: True, "against the rules of expansion"),
    (KAFKA, isr_change, "maybe_expand", lambda *_: None, "does not propose"),
    (KAFKA, high_watermark, "isr_high_watermark", lambda *_, **__: None, "and should be at"),
    (KAFKA, election, "broker_left", lambda *_, **__: None, "which are not active"),
    (KAFKA, Replica, "save_hw", lambda *_: None, "stored"),
    (MOVES, partitions, "_delete", lambda *_: None, "keeps its log or high watermark"),
    (PRODUCERS, Producers, "judge", lambda *_: (Standing.GAP, None), "appended 0 records"),
    (DEAF, Controller, "tick", lambda *_: 1 << 62, "did not fence"),
    (
        *(DEAF, Controller, "on_heartbeat"),
        lambda c, ctx, *m: (_beats(c, ctx, *m), c._heard_us.update({m[1].broker: ctx.now_us})),
        "did not fence n2",
    ),
    (UNANSWERED, isr_change, "_send", _once, "did not repeat"),
    (ALONE, Quorum, "_lost_majority", lambda *_: False, "asked lately"),
    (MEMBERS, coordinator, "WaitingAnswer", lambda to, _, m: WaitingAnswer(to, 0, m), "committed"),
    (MEMBERS, decide, "_reconciled", lambda *a: _reconciled(*a[:3], ()), "did not give it up"),
    (KAFKA, Controller, "_on_shutdown", lambda *_: None, "for stopping"),
    (KAFKA, leader, "serve_waiting", lambda *_, **__: None, "holds a fetch"),
    (MOVES, election, "_completed", lambda *_: None, "does not complete the move"),
    (AT_ONCE, election, "_completed", _at_once, "ended a move of log-0 with ISR ('n2',)"),
    (ALL_CUT, Recovery, "on_info", _shortest, "elected n3 to lead log-0, and the logs end at"),
    (MOVES, partitions, "_remove", lambda *_: None, "which is placed on others"),
    (storm(4, protocol="kafka"), follower, "truncation_target", lambda _, n, __: n, "should be at"),
    (KIP_279, truncation, "end_v1", lambda r, epoch: EpochEnd(epoch, 0), "said end of epoch"),
    (KIP_279, truncation, "decide", lambda r, _: truncation.CutTo(r.leo), "should be at"),
    (PUSH, push, "_may_be_equal", lambda r, m: EpochEnd(m.last_epoch, m.offset), "matched records"),
    (ORDERED, admin, "_elect_unclean", lambda *_: admin.Decision(), "elected a leader, and nobody"),
    (ORDERED, election, "min_isr_set", lambda *_: None, "set MinISR 1, and log-0 has 2"),
    (KAFKA, Controller, "_reply", lambda *_: None, "answered [], and should answer"),
    (MEMBERS, decide, "_fence", lambda *_: Error.FENCED_MEMBER_EPOCH, "not no error"),
    (MEMBERS, coordinator.Coordinator, "_decide", lambda *_: None, "did not answer"),
    (DELETES, retention, "follow", lambda *_: None, "begins its log at 0, its leader at"),
    (DELETES, retention, "_trace", lambda *_: None, "and did not trace that"),
    (QUORUM, Quorum, "_won", lambda q: len(q._granted) == len(q.voters), "has the votes"),
]


@pytest.mark.parametrize("broken", BROKEN, ids=[row[2] for row in BROKEN])
def test_a_broker_that_departs_from_its_protocol_is_found_at_that_step(
    broken: tuple[Schedule, Any, str, Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule, owner, name, other, found = broken
    monkeypatch.setattr(owner, name, other)
    result = simulate(schedule, seed=schedule.workload.seed, stop_at="never")
    broken_rules = [v for v in result.violations if v.invariant.endswith("-as-specified")]
    assert not any(violation.visible for violation in broken_rules)
    assert [v for v in broken_rules if found in v.sentence], [v.sentence for v in broken_rules]


def test_a_broker_is_stopping_only_if_its_registered_process_says_so() -> None:
    was = BrokerRecord(broker="n1", broker_epoch=7, incarnation=2, fenced=False)
    for epoch, says in ((5, ["takes n1 for stopping, whose process did not say so"]), (7, [])):
        step: Any = SimpleNamespace(
            message=Heartbeat(broker="n1", broker_epoch=epoch, want_shutdown=True)
        )
        assert [*_broker(step, was, replace(was, stopping=True))] == says
