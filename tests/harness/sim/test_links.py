"""Link rules mean the same in the simulator as in the hub, down to the message."""

from __future__ import annotations

import pytest

from nemesis.links.rule import LinkRule
from node.formats import wire
from node.formats import wire as wire_format
from node.formats.errors import UsageError
from node.formats.messages import (
    AlterPartition,
    AnyMessage,
    EpochEndResponse,
    Error,
    FetchRequest,
    FetchResponse,
    MetadataResponse,
    ProduceRequest,
)
from node.formats.trace import matches

MESSAGES: tuple[tuple[AnyMessage, bytes | None], ...] = (
    (FetchRequest(partition="log-0", replica="n2", offset=7, corr=3), None),
    (FetchResponse(partition="log-0", diverging=(2, 9)), wire_format.fetch_body(4, 12, [b"abc"])),
    (FetchResponse(partition="log-0", error=Error.NOT_LEADER), b"short"),
    (ProduceRequest(partition="log-1", acks=1), b"batch"),
    (MetadataResponse(leaders={"log-0": ("n1", 4)}), None),
    (EpochEndResponse(partition="log-0", asked=2), None),
    (
        AlterPartition(
            partition="log-0",
            broker="n1",
            broker_epoch=5,
            leader_epoch=1,
            partition_epoch=2,
            isr=(("n1", -1), ("n2", 6)),
        ),
        None,
    ),
)
NESTED = {"leaders", "isr"}
"""Fields whose values no rule can name: they are lists in a list, or in a table."""


@pytest.mark.parametrize(("message", "body"), MESSAGES)
def test_a_rule_sees_the_fields_that_the_hub_would_see(
    message: AnyMessage, body: bytes | None
) -> None:
    peeked = wire_format.peek(wire.encode("n1", "n2", message, body))
    mine = wire_format.fields_of(message, body)
    assert mine.keys() == peeked.keys()
    for name, value in peeked.items():
        for wanted in (value, {"at_least": 3}, {"given": True}, "fetch"):
            match = {name: wanted}
            assert matches(mine, match) == matches(peeked, match), (name, wanted)
            if wanted is value and name in NESTED:
                with pytest.raises(UsageError, match=f"link rule: match: {name}: "):
                    LinkRule(senders=("*",), receivers=("*",), action="drop", match=match)
                continue
            rule = LinkRule(senders=("*",), receivers=("*",), action="drop", match=match)
            assert rule.fits(mine) == rule.fits(peeked), (name, wanted)
