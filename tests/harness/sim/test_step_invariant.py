"""Each rule about steps is broken by a broker that does not follow it, and found at that step."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from harness.sim.run import simulate
from nemesis.formats.schedule import Schedule
from node.core import (
    election,
    follower,
    high_watermark,
    isr_change,
    leader,
    partitions,
    push,
    truncation,
)
from node.core.controller import Controller
from node.core.epochs import EpochEnd
from node.core.producers import Producers, Standing
from node.core.quorum import Quorum
from node.core.replica import Replica
from node.formats.messages import Error
from tests.support.sim_schedules import storm

KAFKA = storm(1, protocol="kafka")
PRODUCERS = replace(KAFKA, workload=replace(KAFKA.workload, idempotent=True))
MOVES = storm(1, protocol="kafka", brokers=4, kinds=("reassign",))
KIP_279 = storm(5, protocol="kip-279")
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
    (storm(2, protocol="kafka"), Controller, "tick", lambda *_: 1 << 62, "did not fence"),
    (
        storm(4, protocol="kafka"),
        follower,
        "truncation_target",
        lambda cache, leo, diverging: leo,
        "should be at",
    ),
    (KIP_279, truncation, "end_v1", lambda r, epoch: EpochEnd(epoch, 0), "said end of epoch"),
    (KIP_279, truncation, "decide", lambda r, _: truncation.CutTo(r.leo), "should be at"),
    (
        storm(2, protocol="quorum-push"),
        push,
        "_may_be_equal",
        lambda r, request: EpochEnd(request.last_epoch, request.offset),
        "matched records",
    ),
    (
        storm(1, protocol="quorum"),
        Quorum,
        "_won",
        lambda quorum: len(quorum._granted) == len(quorum.voters),
        "has the votes",
    ),
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
