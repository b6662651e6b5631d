"""Corrupt batches, crowds and unexpected messages (other answers: `scripts/produce.txt`)."""

from __future__ import annotations

import pytest

from node.core import batch as batches
from node.core import messages
from node.core.leader import MAX_PENDING_ACKS
from node.core.messages import AnyMessage, Error, FetchResponse, ProduceResponse
from node.core.serve import MAX_CONSUMER_WAITS
from tests.support.stage_replica import PARTITION, Bench, high_watermark, records
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


# -- garbage --------------------------------------------------------------------------------------


def test_a_broker_survives_every_kind_of_message_from_anybody() -> None:
    """Each kind of message, from an outsider, to each kind of node."""
    world = World(0)
    world.run_for(500)
    world.create_topic()
    fill = {
        "partition": PARTITION,
        "broker": "n9",
        "replica": "n9",
        "leader": "n9",
        "epoch": 0,
        "asked": 0,
        "incarnation": 1,
        "broker_epoch": 9,
        "term": 0,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "isr": (),
        "last_epoch": 0,
        "last_offset": 0,
        "request_term": 0,
        "granted": True,
        "topic": "t",
        "partitions": 1,
        "intact_since": 0,
        "replication_factor": 1,
        "min_isr": 1,
        "end_offset": 0,
    }
    kinds: list[type[AnyMessage]] = list(messages.AnyMessage.__args__)  # type: ignore[attr-defined]
    for kind in kinds:
        for partition in (PARTITION, "__cluster_metadata-0", "nowhere-0"):
            known = {f: fill[f] for f in kind.__struct_fields__ if f in fill}
            if "partition" in known:
                known["partition"] = partition
            for body in (None, b"", b"garbage that is longer than sixteen bytes"):
                for node in ("n1", "n2", "v1"):
                    world.ask(node, kind(**known), body)  # type: ignore[arg-type]
    world.run_for(3000)
    world.mail.clear()
    world.produce(world.leader(PARTITION) or "", PARTITION, 77, b"still here")
    world.run_for(200)
    assert not world.answers()[77].error
