"""A quorum acknowledges what is committed, and no sooner (its histories: `scripts/voters.txt`)."""

from __future__ import annotations

import pytest

from node.core import batch as batches
from node.core import leader
from node.core.api import Mark
from node.core.protocol import QUORUM
from node.formats.messages import ProduceRequest
from tests.support.stage_histories import Variant
from tests.support.stage_replica import PARTITION
from tests.support.stage_voters import Node
from tests.support.world import logs_of


@pytest.mark.parametrize("switched", [(), ("R6",), ("R7",)])
def test_an_acknowledgement_before_the_commit_can_promise_what_is_lost(
    switched: tuple[str, ...],
) -> None:
    """A sole voter is its own majority: it acknowledges in the turn of the append. If the message
    leaves before the commit, a crash between the two loses what was acknowledged."""
    node = Node("n1", Variant(QUORUM, switched), ("n1",))
    node.ctx.effects.messages.clear()
    committed = dict(logs_of(node.disk)[PARTITION])
    request = ProduceRequest(partition=PARTITION, acks=-1)
    leader.on_produce(node.ctx, node.r, "c1", request, batches.build(1, b"x"))
    (ack,) = node.ctx.effects.messages
    assert (ack.to, node.records()) == ("c1", ["*1", "x1"])
    if ack.mark is Mark.BEFORE_COMMIT:  # it has left; the turn's commit never happens
        logs_of(node.disk)[PARTITION] = committed
    node.start(0)
    assert node.records() == (["*1", "*2"] if switched else ["*1", "x1", "*2"])
