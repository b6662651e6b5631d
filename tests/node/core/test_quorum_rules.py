"""A quorum acknowledges what is committed, and no sooner (its histories: `scripts/voters.txt`)."""

from __future__ import annotations

import pytest

from node.core import batch as batches
from node.core.api import Mark
from node.formats.messages import ProduceRequest
from tests.support.log_notation import PARTITION
from tests.support.lone_broker import LoneBroker, placed
from tests.support.stage_voters import records
from tests.support.world import logs_of

ALONE = placed(isr="n1", replicas="n1")


@pytest.mark.parametrize("switched", [(), ("R6",), ("R7",)])
def test_an_acknowledgement_before_the_commit_can_promise_what_is_lost(
    switched: tuple[str, ...],
) -> None:
    """A sole voter is its own majority: it acknowledges in the turn of the append. If the message
    leaves before the commit, a crash between the two loses what was acknowledged."""
    node = LoneBroker("n1", brokers=("n1",), protocol="quorum", bugs=switched)
    node.hears(ALONE)
    node.sent()
    committed = dict(logs_of(node.storage)[PARTITION])
    request = ProduceRequest(partition=PARTITION, acks=-1)
    node.takes("c1", request, batches.build(1, b"x"))
    (ack,) = node.ctx.effects.messages
    assert (ack.to, records(node)) == ("c1", ["*1", "x1"])
    if ack.mark is Mark.BEFORE_COMMIT:  # it has left; the turn's commit never happens
        logs_of(node.storage)[PARTITION] = committed
    node.boot()
    node.hears(ALONE)
    assert records(node) == (["*1", "*2"] if switched else ["*1", "x1", "*2"])
