"""The discipline of clients, as short scripts: what may be claimed of an operation, and when."""

from __future__ import annotations

import pytest

from harness.clients.consumer import Consumer
from harness.clients.types import Answer
from node.core import batch
from node.core.batch import Produced
from node.core.messages import Error, FetchRequest, MetadataRequest, ProduceRequest, ProduceResponse
from tests.support.harness_script import BROKERS, Scripted, consumer, producer, records

RETRIED = [
    Error.NOT_LEADER,
    Error.FENCED_LEADER_EPOCH,
    Error.NOT_ENOUGH_REPLICAS,
    Error.OVERLOADED,
    Error.UNKNOWN_PARTITION,
]


def test_a_send_that_is_acknowledged_is_ok_with_its_offset() -> None:
    client = producer().step().leaders("n2").produced(offset=40)
    assert client.story() == ["send invoke", "send ok @40"]
    assert client.pending(ProduceRequest).to == "n2"


def test_nothing_is_sent_before_a_leader_is_known() -> None:
    client = producer().step()
    assert client.number_of(ProduceRequest) == 0
    assert client.pending(MetadataRequest).to == "n1"


def test_silent_brokers_are_asked_one_after_the_other() -> None:
    client = producer().step().after(600)
    asked = [sent.to for sent in client.out if isinstance(sent.message, MetadataRequest)]
    assert asked == ["n1", "n2", "n3"]


def test_without_any_leader_a_send_fails_for_it_was_never_sent() -> None:
    client = producer().step().after(3000)
    assert client.story() == ["send invoke", "send fail no leader known"]
    assert client.number_of(ProduceRequest) == 0


def test_a_timeout_is_unknown_and_retires_the_process() -> None:
    client = producer(interval_us=1).step().leaders("n2").after(3000)
    assert client.story()[:2] == ["send invoke", "send info timeout"]
    processes = [op.process for op in client.ops if op.type == "invoke"]
    assert processes == [0, 10]
    assert client.ops[2].sends[0].value == 10 << 32


def test_an_ok_or_a_fail_keeps_the_process_and_goes_on_numbering() -> None:
    client = producer(interval_us=1).step().leaders("n2").produced(offset=0).after(1)
    client.produced(Error.CORRUPT_BATCH).after(1)
    invokes = [op for op in client.ops if op.type == "invoke"]
    assert [(op.process, op.sends[0].value) for op in invokes] == [(0, 0), (0, 5), (0, 10)]


@pytest.mark.parametrize("error", RETRIED)
def test_a_definite_refusal_is_tried_again_in_the_same_operation(error: Error) -> None:
    client = producer().step().leaders("n1").produced(error, leader="n3").after(60)
    assert client.pending(ProduceRequest).to == "n3"
    first, second = (s for s in client.out if isinstance(s.message, ProduceRequest))
    assert first.body == second.body
    assert first.message.corr != second.message.corr
    client.produced(offset=7)
    assert client.story() == ["send invoke", "send ok @7"]


def test_refused_until_the_deadline_is_a_fail_with_the_last_reason() -> None:
    client = producer().step().leaders("n1")
    while len(client.ops) == 1:
        client.produced(Error.NOT_ENOUGH_REPLICAS, leader="n1").after(70)
        if client.number_of(MetadataRequest) > 1:
            client.leaders("n1")
    assert client.story()[-1] == "send fail not-enough-replicas"


def test_after_an_attempt_without_answer_nothing_is_tried_again() -> None:
    client = producer().step().leaders("n1").after(2000).leaders("n2", epoch=2).after(999)
    assert client.number_of(ProduceRequest) == 1
    assert client.story() == ["send invoke"]
    assert client.after(1).story()[-1] == "send info timeout"


@pytest.mark.parametrize(
    "error",
    [Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Error.LEADERSHIP_LOST, Error.REQUEST_TIMED_OUT],
)
def test_an_error_after_an_append_is_unknown_and_is_not_tried_again(error: Error) -> None:
    client = producer().step().leaders("n1").produced(error, appended=True, offset=3).after(2000)
    assert client.story() == ["send invoke", f"send info @3 {error}"]
    assert client.number_of(ProduceRequest) == 1


@pytest.mark.parametrize("error", [Error.CORRUPT_BATCH, Error.INVALID_REQUEST])
def test_a_refusal_that_nothing_would_change_fails_at_once(error: Error) -> None:
    client = producer().step().leaders("n1").produced(error)
    assert client.story() == ["send invoke", f"send fail {error}"]


def test_a_late_answer_is_ignored() -> None:
    client = producer().step().leaders("n1").after(3000).produced(offset=12)
    assert client.story() == ["send invoke", "send info timeout"]


def test_an_answer_from_somebody_else_is_ignored() -> None:
    client = producer().step().leaders("n1")
    corr = client.pending(ProduceRequest).message.corr
    client.answer("n2", ProduceResponse(corr=corr, partition="log-0", base_offset=1))
    assert client.story() == ["send invoke"]


def test_acks_zero_is_unknown_the_moment_it_leaves() -> None:
    client = producer(acks=0, interval_us=0).step().leaders("n1")
    assert client.story()[:2] == ["send invoke", "send info acks=0"]
    assert client.pending(ProduceRequest).message.acks == 0
    client.after(10)
    assert 5 <= client.number_of(ProduceRequest) <= 12


def test_acks_zero_looks_for_the_leader_again_though_nobody_refuses() -> None:
    client = producer(acks=0, interval_us=10_000).step().leaders("n1").after(600)
    assert client.number_of(MetadataRequest) >= 2
    client.leaders("n3", epoch=2).after(20)
    assert client.pending(ProduceRequest).to == "n3"


def test_an_old_metadata_answer_does_not_bring_back_the_past() -> None:
    client = producer().step().leaders("n2", epoch=5)
    client.produced(Error.NOT_LEADER)
    client.after(60).leaders("n1", epoch=4)
    assert client.number_of(ProduceRequest) == 1
    client.after(60).leaders("n3", epoch=6).after(60)
    assert client.pending(ProduceRequest).to == "n3"


def test_threads_of_one_client_are_processes_of_their_own() -> None:
    client = producer(width=3).step().leaders("n1")
    assert [op.process for op in client.ops] == [0, 1, 2]
    assert len({op.sends[0].value for op in client.ops}) == 3
    assert len({s.message.corr for s in client.out}) == len(client.out)


def test_a_stopped_producer_finishes_what_it_began_and_begins_nothing() -> None:
    client = producer(interval_us=1).step().leaders("n1")
    client.session.stop()
    assert not client.session.idle
    client.produced(offset=0).after(5000)
    assert client.session.idle
    assert client.story() == ["send invoke", "send ok @0"]


# -- consumers


def test_a_consumer_reads_on_from_where_it_was() -> None:
    client = consumer().step().leaders("n1").fetched([records(0, 100), records(5, 300)], hw=10)
    client.after(10)
    assert client.story()[:4] == [
        "assign invoke",
        "assign ok",
        "poll invoke",
        "poll ok 0+5=100 5+5=300",
    ]
    read = client.ops[3].reads[0]
    assert (read.start, read.hw, read.node) == (0, 10, "n1")
    assert [run.epoch for run in read.records] == [1, 1]
    assert client.pending(FetchRequest).message.offset == 10


def test_partitions_are_polled_in_turn() -> None:
    client = consumer(("log-0", "log-1")).step().leaders("n1", partitions=("log-0", "log-1"))
    for _ in range(4):
        client.fetched().after(10)
    polled = [op.reads[0].partition for op in client.ops if op.f == "poll" and op.type == "invoke"]
    assert polled[:4] == ["log-0", "log-1", "log-0", "log-1"]


def test_records_before_the_position_are_not_read_twice() -> None:
    client = consumer().step().leaders("n1").fetched([records(0, 100, size=3)], hw=3).after(10)
    client.fetched([records(0, 100, size=8)], hw=8)
    assert client.story()[-1] == "poll ok 3+5=103"


def test_a_poll_without_answer_fails_and_retires_nobody() -> None:
    client = consumer().step().leaders("n1").after(1000)
    polls = [text for text in client.story() if text.startswith("poll")]
    assert polls[:3] == ["poll invoke", "poll fail timeout", "poll invoke"]
    assert {op.process for op in client.ops} == {8}


def test_a_refused_poll_is_tried_again_at_the_new_leader() -> None:
    client = consumer().step().leaders("n1").fetched(error=Error.NOT_LEADER, leader="n3").after(60)
    assert client.pending(FetchRequest).to == "n3"
    assert "poll ok 0+5=1" in client.fetched([records(0, 1)], hw=5).story()


def test_out_of_range_restarts_at_the_log_end_as_a_new_process() -> None:
    client = consumer().step().leaders("n1").fetched([records(0, 100)], hw=5).after(10)
    client.fetched(error=Error.OFFSET_OUT_OF_RANGE, log_end=2).after(20)
    assert client.story()[-4:] == [
        "poll fail offset-out-of-range",
        "assign invoke",
        "assign ok",
        "poll invoke",
    ]
    assert client.pending(FetchRequest).message.offset == 2
    assert [op.process for op in client.ops[-4:]] == [8, 18, 18, 18]


def test_a_damaged_record_is_read_as_unreadable() -> None:
    damaged = bytearray(records(0, 100))
    damaged[-20] ^= 0xFF
    client = consumer().step().leaders("n1").fetched([bytes(damaged)], hw=5)
    assert "=-1" in client.story()[-1]


@pytest.mark.parametrize("body", [b"short", bytes(16) + b"no batch at all"])
def test_an_answer_that_is_no_answer_fails_the_poll(body: bytes) -> None:
    client = consumer().step().leaders("n1").fetched(body=body)
    assert client.story()[-1].startswith("poll fail corrupt answer")


def test_a_final_reader_ends_when_targets_and_high_watermarks_are_reached() -> None:
    client = consumer(("log-0", "log-1"), {"log-0": 5, "log-1": 0})
    session = client.session
    assert isinstance(session, Consumer)
    client.step().leaders("n1", partitions=("log-0", "log-1"))
    client.fetched(hw=0).after(10).fetched(hw=0).after(10)
    assert session.missing == {"log-0": 0}
    client.fetched([records(0, 100)], hw=10).after(10)
    assert not session.done
    client.fetched([records(5, 200)], hw=10).after(10)
    assert session.done
    assert all(op.final for op in client.ops)


def test_same_inputs_same_effects() -> None:
    def story() -> tuple[object, ...]:
        client = producer(interval_us=30_000, width=2).step().leaders("n1")
        client.produced(offset=0).after(500).produced(Error.NOT_LEADER).after(5000)
        return client.ops, client.out

    assert story() == story()


def test_metadata_of_other_kinds_of_messages_does_no_harm() -> None:
    client = producer().step()
    client.step(Answer("n1", client.out[0].message))
    assert client.story() == ["send invoke"]
    assert client.out[0].to in BROKERS


# -- idempotent producers -------------------------------------------------------------------------


def stamps(client: Scripted) -> list[Produced]:
    """What each attempt says of its producer."""
    sent = [one.body for one in client.out if isinstance(one.message, ProduceRequest)]
    found = [batch.view(body).produced for body in sent if body is not None]
    assert all(found)
    return [produced for produced in found if produced is not None]


def test_sequences_count_the_records_of_each_partition() -> None:
    both = ("log-0", "log-1")
    client = producer(interval_us=1, idempotent=True, partitions=both).step()
    client.leaders("n2", partitions=both)
    for offset in range(6):
        client.produced(offset=5 * offset).after(1)
    found = [
        (one.message.partition, produced.sequence)
        for one, produced in zip(
            (one for one in client.out if isinstance(one.message, ProduceRequest)),
            stamps(client),
            strict=True,
        )
        if isinstance(one.message, ProduceRequest)
    ]
    for partition in both:
        mine = [sequence for name, sequence in found if name == partition]
        assert mine == [5 * n for n in range(len(mine))]
        assert len(mine) >= 3


def test_an_idempotent_send_without_an_answer_is_sent_again_as_it_was() -> None:
    client = producer(idempotent=True).step().leaders("n2").after(740)
    assert client.number_of(ProduceRequest) == 1
    client.after(100).leaders("n3").after(1)
    first, second = (s for s in client.out if isinstance(s.message, ProduceRequest))
    assert (first.to, second.to) == ("n2", "n3")
    assert first.body == second.body
    client.produced(offset=7)
    assert client.story() == ["send invoke", "send ok @7"]


@pytest.mark.parametrize("error", [Error.REQUEST_TIMED_OUT, Error.LEADERSHIP_LOST])
def test_an_error_after_an_append_is_tried_again(error: Error) -> None:
    client = producer(idempotent=True).step().leaders("n1")
    client.produced(error, appended=True, leader="n3").after(60)
    assert client.pending(ProduceRequest).to == "n3"
    client.produced(offset=7)
    assert client.story() == ["send invoke", "send ok @7"]


def test_a_late_answer_to_an_attempt_that_was_given_up_says_nothing() -> None:
    client = producer(idempotent=True).step().leaders("n2")
    first = client.pending(ProduceRequest)
    client.after(800).leaders("n3").after(1)
    late = ProduceResponse(corr=first.message.corr, partition="log-0", base_offset=3)
    client.answer("n2", late)
    assert client.story() == ["send invoke"]


def test_once_in_doubt_a_send_never_fails() -> None:
    client = producer(idempotent=True).step().leaders("n1")
    client.produced(Error.LEADERSHIP_LOST, appended=True, leader="n1").after(60)
    while len(client.ops) == 1:
        client.produced(Error.NOT_ENOUGH_REPLICAS, leader="n1").after(70)
        if client.number_of(MetadataRequest) > 1:
            client.leaders("n1")
    assert client.story()[-1] == "send info not-enough-replicas"


@pytest.mark.parametrize(
    ("error", "appended", "end"),
    [
        (Error.OUT_OF_ORDER_SEQUENCE, False, "fail"),
        (Error.UNKNOWN_PRODUCER, False, "fail"),
        (Error.FENCED_PRODUCER_EPOCH, False, "fail"),
        (Error.DUPLICATE_SEQUENCE, True, "info"),
    ],
)
def test_a_batch_out_of_sequence_ends_and_begins_a_new_epoch(
    error: Error, appended: bool, end: str
) -> None:
    client = producer(idempotent=True, interval_us=1).step().leaders("n1")
    client.produced(offset=0).after(1)
    client.produced(error, appended=appended).after(60).leaders("n1").after(1)
    assert client.story()[3] == f"send {end} {error}"
    assert stamps(client) == [Produced(0, 0, 0), Produced(0, 0, 5), Produced(0, 1, 0)]


def test_after_info_the_producer_goes_on_in_its_next_epoch_as_another_process() -> None:
    client = producer(idempotent=True, interval_us=1).step().leaders("n1").after(3000)
    client.leaders("n1").after(1)
    assert [op.process for op in client.ops if op.type == "invoke"] == [0, 10]
    assert stamps(client)[-1] == Produced(0, 1, 0)


def test_a_batch_that_was_never_sent_uses_up_nothing() -> None:
    client = producer(idempotent=True, interval_us=1).step().after(3000)
    client.leaders("n1").after(1)
    assert client.story()[:2] == ["send invoke", "send fail no leader known"]
    assert stamps(client) == [Produced(0, 0, 0)]
