"""Messages that leave before the commit of their turn."""

from __future__ import annotations

import pytest

from node.core.api import Mark, Outgoing
from node.core.before_commit import split
from node.core.messages import MetadataRequest
from node.formats.trace import ACK, APPEND, DIVERGING, HW, ROLE, TraceEvent, event

LATE, EARLY, BUG = (
    Outgoing(mark.value, MetadataRequest(), mark=mark)
    for mark in (Mark.AFTER_COMMIT, Mark.AT_ONCE, Mark.BEFORE_COMMIT)
)


def append(base: int, leo: int, partition: str = "p") -> TraceEvent:
    return event(
        APPEND, partition, base_offset=base, leo=leo, leader_epoch=1, hash="", role="leader"
    )


def high_watermark(hw: int, partition: str = "p") -> TraceEvent:
    return event(HW, partition, hw=hw, leo=99, leader_epoch=1, role="leader", batch_end=hw, hash="")


def ack(leo: int) -> TraceEvent:
    return event(ACK, "p", base_offset=0, leo=leo, acks=1, hw=0, isr=["n1"], client="c1")


ROLE_TAKEN = event(
    ROLE, "p", role="leader", leader="n1", leader_epoch=1, partition_epoch=0, leo=0, hw=0
)
REFUSES = event(
    DIVERGING, "p", follower="n2", fetch_offset=1, last_fetched_epoch=0, epoch=0, end_offset=0
)


def leave(*trace: TraceEvent) -> list[str]:
    early, later = split([LATE, EARLY, BUG, EARLY], trace)
    assert len(early) + len(later) == 4
    assert LATE in later
    assert BUG in early
    return [out.to for out in early]


@pytest.mark.parametrize(
    "trace",
    [
        (),
        (append(5, 8),),
        (high_watermark(5), ack(5), append(5, 8), append(8, 9)),
        (append(5, 8), high_watermark(5), ack(5), REFUSES),
        (append(5, 8), high_watermark(9, "another")),
    ],
)
def test_they_leave_if_the_trace_holds_without_the_commit(trace: tuple[TraceEvent, ...]) -> None:
    assert leave(*trace) == ["at_once", "before_commit", "at_once"]


@pytest.mark.parametrize(
    "trace",
    [
        (append(5, 8), high_watermark(6)),
        (append(5, 8), append(8, 9), high_watermark(6)),
        (append(5, 8), ack(8)),
        (append(5, 8, "other"), append(5, 8), high_watermark(8, "other")),
        (ROLE_TAKEN, append(0, 1)),
    ],
)
def test_they_wait_where_the_trace_claims_what_the_disk_may_lack(
    trace: tuple[TraceEvent, ...],
) -> None:
    assert leave(*trace) == ["before_commit"]


def test_a_turn_without_such_messages_is_left_as_it_is() -> None:
    assert split([LATE, LATE], [append(0, 1)]) == ((), [LATE, LATE])
