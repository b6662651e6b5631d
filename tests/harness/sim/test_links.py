"""Link rules mean the same in the simulator as in the hub, down to the message."""

from __future__ import annotations

import random

import pytest

from harness.sim.event_queue import START_US, EventQueue
from harness.sim.network import LATENCY_US, Envelope, Network
from nemesis.links.rule import LinkRule
from node.core import wire
from node.core.messages import (
    AlterPartition,
    AnyMessage,
    EpochEndResponse,
    Error,
    FetchRequest,
    FetchResponse,
    MetadataResponse,
    ProduceRequest,
)
from node.formats import wire as wire_format
from node.formats.errors import FloodmarkError, UsageError
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


class Wires:
    """A network between n1 and n2 that notes what arrives, and when, in ms after the start."""

    def __init__(self) -> None:
        self.queue = EventQueue()
        self.network = Network(self.queue, random.Random(1))
        self.arrived: list[tuple[float, int]] = []
        self.network.join("n2", self._arrive)

    def _arrive(self, envelope: Envelope) -> None:
        sent_us = self.queue.now_us - START_US - LATENCY_US
        self.arrived.append((sent_us / 1000, envelope[2].corr))

    def send(self, *numbers: int) -> None:
        for number in numbers:
            message = FetchRequest(partition="log-0", offset=number, corr=number)
            self.network.send("n1", "n2", message, None)

    def rule(self, **fields: object) -> int:
        return self.network.add_rule(
            LinkRule(senders=("n1",), receivers=("n2",), **fields)  # type: ignore[arg-type]
        )

    def until(self, ms: int) -> None:
        self.queue.run(START_US + ms * 1000)


def test_a_delay_holds_back_what_comes_behind_it_also_after_its_end() -> None:
    wires = Wires()
    number = wires.rule(action="delay", delay_ms=8, limit=1)
    wires.send(1, 2)
    wires.until(3)
    wires.network.remove_rule(number)
    wires.send(3)
    wires.until(30)
    wires.send(4)
    wires.until(40)
    assert wires.arrived == [(8, 1), (8, 2), (8, 3), (30, 4)]


def test_a_late_copy_is_overtaken() -> None:
    wires = Wires()
    wires.rule(action="duplicate", delay_ms=5, limit=1)
    wires.send(1)
    wires.until(1)
    wires.send(2)
    wires.until(10)
    assert wires.arrived == [(0, 1), (1, 2), (5, 1)]


def test_held_messages_are_decided_again_when_their_rule_ends() -> None:
    wires = Wires()
    held = wires.rule(action="hold", kinds=("fetch",))
    wires.send(1, 2)
    wires.until(5)
    dropped = wires.rule(action="drop", match={"offset": {"at_most": 1}})
    assert wires.network.remove_rule(held).held == 2
    wires.until(9)
    assert wires.network.remove_rule(dropped).dropped == 1
    assert wires.arrived == [(5, 2)]
    with pytest.raises(FloodmarkError, match="there is no link rule 1"):
        wires.network.remove_rule(held)
