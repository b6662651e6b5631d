"""What clients are told: produce outcomes with their `appended` flag, and what may be read."""

from __future__ import annotations

import pytest

from node.core import batch as batches
from node.core import leader, messages
from node.core.leader import MAX_PENDING_ACKS
from node.core.messages import AnyMessage, Error, FetchRequest, FetchResponse, ProduceResponse
from node.core.serve import MAX_CONSUMER_WAITS
from tests.support.broker_world import World
from tests.support.replica_bench import PARTITION, Bench, high_watermark, records, show


def leading(log: str = "", isr: str = "n1 n2", *, min_isr: int = 2) -> Bench:
    """n1 leads epoch 1."""
    b = Bench("n1", log)
    b.metadata("n1", 1, isr, min_isr=min_isr)
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


# -- acknowledged ---------------------------------------------------------------------------------


def test_acks_0_is_never_answered() -> None:
    b = leading()
    b.produce("0e1", acks=0)
    b.produce(acks=0, body=b"garbage")
    b.metadata("n2", 2, at=2)
    b.produce("1e1", acks=0)
    assert told(b) == []
    assert show(b.r.log) == "0e1"


def test_acks_1_is_answered_at_once() -> None:
    b = leading()
    answer = b.produce("0e1", acks=1)
    assert answer is not None
    assert (answer.error, answer.appended, answer.base_offset) == (Error.NONE, True, 0)
    assert b.r.hw == 0


def test_acks_all_is_answered_when_the_high_watermark_has_passed_it() -> None:
    b = leading()
    b.produce("0e1", corr=10)
    b.produce(corr=11, body=batches.build(2, b"1-2e1"))
    b.fetch("n2", 1, 1)
    assert told(b) == [(10, "", True)]
    assert b.r.hw == 1
    b.fetch("n2", 3, 1)
    assert told(b) == [(11, "", True)]
    acks = [(e["base_offset"], e["leo"], e["hw"]) for e in b.events("ack")]
    assert acks == [(0, 1, 1), (1, 3, 3)]


# -- refused: certainly nothing was appended ------------------------------------------------------


def test_refused_below_min_isr() -> None:
    b = leading(isr="n1")
    b.produce("x")
    assert told(b) == [(1, "not-enough-replicas", False)]
    assert show(b.r.log) == ""
    b.produce("0e1", acks=1)
    assert told(b) == [(1, "", True)], "acks=1 does not ask for them"


@pytest.mark.parametrize("role", ["follower", "none"])
def test_a_replica_that_does_not_lead_refuses(role: str) -> None:
    b = leading()
    b.metadata("n2" if role == "follower" else "", 2, at=2)
    for acks in (1, -1):
        b.produce("x", acks=acks)
    assert b.r.role == role
    assert [(error, appended) for _, error, appended in told(b)] == [("not-leader", False)] * 2
    assert show(b.r.log) == ""


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


# -- unknown: appended, and nobody knows what becomes of it ---------------------------------------


def test_the_isr_falls_below_min_isr_after_the_append() -> None:
    b = leading()
    b.produce("0e1")
    b.metadata("n1", 1, "n1", at=2)
    assert told(b) == [(1, "not-enough-replicas-after-append", True)]
    b.fetch("n2", 1, 1)
    b.metadata("n1", 1, "n1 n2", at=3)
    assert (b.r.hw, told(b)) == (1, []), "it commits later, and is not answered twice"


@pytest.mark.parametrize("successor", ["n2", "", "n1"])
def test_leadership_is_lost_after_the_append(successor: str) -> None:
    b = leading()
    b.produce("0e1")
    b.metadata(successor, 2, at=2)
    assert told(b) == [(1, "leadership-lost", True)]
    assert show(b.r.log) == "0e1", "the next fetch decides what becomes of it"


def test_the_time_is_over_after_the_append() -> None:
    b = leading()
    b.produce("0e1", corr=1, timeout_ms=500)
    b.produce("1e1", corr=2, timeout_ms=200)
    b.sleep(199)
    assert told(b) == []
    b.sleep(1)
    assert told(b) == [(2, "request-timed-out", True)]
    b.sleep(300)
    assert told(b) == [(1, "request-timed-out", True)]
    b.fetch("n2", 2, 1)
    assert (b.r.hw, told(b)) == (2, [])


# -- consumers ------------------------------------------------------------------------------------


def test_a_consumer_sees_nothing_above_the_high_watermark() -> None:
    b = leading("0e1 1e1 2e1")
    b.fetch("n2", 2, 1)
    b.sent()
    for offset in range(4):
        b.consume(offset, corr=offset)
    assert answers(b) == [(0, "", "0e1 1e1", 2), (1, "", "1e1", 2), (2, "", "", 2), (3, "", "", 2)]


def test_a_batch_across_the_high_watermark_waits_whole() -> None:
    b = leading("0-4e1")
    b.r.hw = 3
    b.consume(0)
    assert answers(b) == [(0, "", "", 3)]


def test_a_waiting_consumer_wakes_when_the_high_watermark_passes() -> None:
    b = leading()
    b.consume(0, wait_ms=1000, corr=5)
    b.produce("0e1")
    assert answers(b) == [], "appended is not committed"
    b.fetch("n2", 1, 1)
    assert answers(b) == [(5, "", "0e1", 1)]
    b.sleep(2000)
    assert answers(b) == [], "once"


def test_a_waiting_consumer_hears_of_nothing_when_its_wait_is_over() -> None:
    b = leading("0e1")
    b.consume(1, wait_ms=300, corr=5)
    b.sleep(299)
    assert answers(b) == []
    b.sleep(1)
    assert answers(b) == [(5, "", "", 0)]


@pytest.mark.parametrize("successor", ["n2", ""])
def test_a_waiting_consumer_is_sent_away_when_leadership_is_lost(successor: str) -> None:
    b = leading("0e1")
    b.consume(1, wait_ms=1000, corr=5)
    b.metadata(successor, 2, at=2)
    assert [(corr, error) for corr, error, _, _ in answers(b)] == [(5, "not-leader")]


@pytest.mark.parametrize("offset", [-1, 3, 1 << 62])
def test_an_offset_out_of_range(offset: int) -> None:
    b = leading("0e1 1e1")
    b.consume(offset)
    ((_, error, found, _),) = answers(b)
    assert (error, found) == ("offset-out-of-range", "")


def test_a_fresh_leader_serves_below_the_high_watermark_it_knows() -> None:
    """KIP-207: 2 is committed, but all the new leader knows is 1."""
    b = Bench("n2", "0e1 1e1")
    b.metadata("n1", 1)
    b.r.hw = 1
    b.metadata("n2", 2, "n2 n3", at=2)
    b.sent()
    b.consume(0)
    assert answers(b) == [(0, "", "0e1", 1)]


def test_too_many_consumers_wait() -> None:
    b = leading("0e1")
    for i in range(MAX_CONSUMER_WAITS + 1):
        b.consume(1, wait_ms=1000, corr=i)
    assert [(corr, error) for corr, error, _, _ in answers(b)] == [
        (MAX_CONSUMER_WAITS, "overloaded")
    ]


def test_a_fetch_takes_what_fits_and_at_least_one_batch() -> None:
    b = leading("0e1 1e1 2e1 3e1")
    size = len(b.r.log.read(0, max_bytes=1, below=1)[0][0])
    found = []
    for limit in (0, 1, size, 2 * size, 2 * size + 1, 99 * size):
        request = FetchRequest(partition=PARTITION, max_bytes=limit, corr=limit)
        b.r.hw = 4
        leader.on_fetch(b.ctx, b.r, "c1", request)
        found.append(len(answers(b)[0][2].split()))
    assert found == [1, 1, 1, 2, 2, 4]


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
                    world.send(node, kind(**known), body)  # type: ignore[arg-type]
    world.run_for(3000)
    world.mail.clear()
    world.produce(world.leader(PARTITION) or "", PARTITION, 77, b"still here")
    world.run_for(200)
    assert not world.answers()[77].error
