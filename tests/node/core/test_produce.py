"""Corrupt batches and crowds (other answers: `scripts/produce.txt`)."""

from __future__ import annotations

import pytest

from node.core import batch as batches
from node.core.leader import MAX_PENDING_ACKS
from node.core.messages import Error, FetchResponse, ProduceResponse
from node.core.serve import MAX_CONSUMER_WAITS
from tests.support.stage_replica import Bench, high_watermark, records
from tests.support.world import World


def leading(log: str = "") -> Bench:
    """n1 leads epoch 1."""
    b = Bench("n1", log)
    b.metadata("n1", 1, "n1 n2")
    b.sent()
    return b


def told(b: Bench) -> list[tuple[int, str, bool]]:
    """(correlation id, error, appended) of the produce answers sent since last asked."""
    return [
        (m.corr, m.error.value, m.appended)
        for _, m, _ in b.sent()
        if isinstance(m, ProduceResponse)
    ]


def answers(b: Bench) -> list[tuple[int, str, str, int]]:
    """(correlation id, error, records, HW) of the fetch answers to clients since last asked."""
    return [
        (m.corr, m.error.value, records(body), high_watermark(body))
        for to, m, body in b.sent()
        if isinstance(m, FetchResponse) and to == "c1"
    ]


# -- refused: certainly nothing was appended ------------------------------------------------------


GOOD = batches.build(2, b"payload")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0" * 40,
        GOOD[:-1],
        GOOD + b"x",
        GOOD + GOOD,
        GOOD[:-1] + b"X",
        batches.build(0, b""),
        GOOD[:12] + b"\x02" + GOOD[13:],
        GOOD[:24] + b"\x03" + GOOD[25:],
    ],
    ids=["empty", "zeros", "short", "long", "two", "flipped", "no records", "version", "count"],
)
def test_a_corrupt_batch_is_refused(body: bytes) -> None:
    b = leading()
    b.produce(body=body)
    assert told(b) == [(1, "corrupt-batch", False)]
    assert b.r.leo == 0


def test_too_many_waiting_are_refused() -> None:
    b = leading()
    for i in range(MAX_PENDING_ACKS):
        b.produce("x", corr=i)
    b.produce("x", corr=-7)
    assert told(b) == [(-7, "overloaded", False)]


def test_a_partition_that_is_not_here() -> None:
    world = World(0)
    world.run_for(500)
    world.create_topic()
    world.mail.clear()
    world.produce("n1", "log-9", 5, b"x")
    world.run_for(10)
    answer = world.answers()[5]
    assert (answer.error, answer.appended) == (Error.UNKNOWN_PARTITION, False)


# -- consumers ------------------------------------------------------------------------------------


def test_too_many_consumers_wait() -> None:
    b = leading("0e1")
    for i in range(MAX_CONSUMER_WAITS + 1):
        b.consume(1, wait_ms=1000, corr=i)
    assert [(corr, error) for corr, error, _, _ in answers(b)] == [
        (MAX_CONSUMER_WAITS, "overloaded")
    ]
