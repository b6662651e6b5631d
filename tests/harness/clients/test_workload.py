"""Workloads: payloads survive a round trip, damage shows, plans are fair."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from harness.clients import workload
from harness.formats.history import RecordRun
from node.core import batch

sizes = st.integers(min_value=16, max_value=200)
counts = st.integers(min_value=1, max_value=40)
values = st.integers(min_value=0, max_value=2**62)


def stored(partition: str, value: int, count: int, size: int, offset: int = 7) -> batch.BatchView:
    made = workload.encode_batch(partition, value, count, size)
    return batch.view(batch.stamp(made, offset, 3))


@given(value=values, count=counts, size=sizes)
def test_a_batch_is_read_as_the_one_run_that_was_written(value: int, count: int, size: int) -> None:
    runs = workload.decode_batch(stored("log-0", value, count, size))
    assert runs == (RecordRun(7, value, count, 3),)


@given(count=counts, size=sizes, data=st.data())
def test_a_flipped_bit_in_a_record_makes_that_record_unreadable(
    count: int, size: int, data: st.DataObject
) -> None:
    good = stored("log-0", 100, count, size)
    record = data.draw(st.integers(0, count - 1))
    bit = data.draw(st.integers(0, 16 * 8 - 1))
    payload = bytearray(good.payload)
    payload[4 + record * size + bit // 8] ^= 1 << bit % 8
    damaged = batch.build(count, bytes(payload))
    read = [
        run.value + step
        for run in workload.decode_batch(batch.view(damaged))
        for step in range(run.count)
    ]
    expected = [100 + number for number in range(count)]
    expected[record] = workload.UNREADABLE
    assert read == expected


@given(count=counts, payload=st.binary(max_size=300))
def test_foreign_payloads_never_raise_and_never_lose_a_record(count: int, payload: bytes) -> None:
    runs = workload.decode_payload(payload, count, base=0, epoch=1)
    assert sum(run.count for run in runs) == count


def test_a_control_batch_holds_no_records() -> None:
    control = batch.build(1, b"whatever the protocol needs", control=True)
    assert workload.decode_batch(batch.view(control)) == ()


def test_a_record_is_read_with_its_value_and_epoch() -> None:
    written = stored("log-0", 42, 3, 64)
    assert workload.decode_batch(written) == (RecordRun(7, 42, 3, 3),)


def test_every_partition_is_sent_to_equally_often_and_equal_seeds_send_alike() -> None:
    partitions = [f"log-{n}" for n in range(5)]
    one = workload.SendPlan(partitions, 100_000, random.Random("x"))
    other = workload.SendPlan(partitions, 100_000, random.Random("x"))
    sent = [one.partition() for _ in range(50)]
    assert sent == [other.partition() for _ in range(50)]
    assert set(Counter(sent).values()) == {10}
    pauses = [one.pause_us() for _ in range(1000)]
    assert all(50_000 <= pause <= 150_000 for pause in pauses)
    assert 95_000 < sum(pauses) / 1000 < 105_000


def test_uneven_load_has_batches_of_all_sizes_and_a_partition_that_gets_most() -> None:
    plan = workload.SendPlan(
        ["log-0", "log-1", "log-2"], 0, random.Random("x"), zipf=True, batch_most=50
    )
    sizes = [plan.records(1) for _ in range(2000)]
    assert set(sizes) >= {1, 2, 3, 50}
    assert max(sizes) == 50
    assert sum(size <= 10 for size in sizes) > sum(size > 10 for size in sizes)
    sent = Counter(plan.partition() for _ in range(6000))
    assert 1.7 < sent["log-0"] / sent["log-1"] < 2.3
    assert 2.6 < sent["log-0"] / sent["log-2"] < 3.4


def test_even_load_draws_what_it_always_drew() -> None:
    """The pace of old schedules must not change: sizes draw nothing where they are all the same."""
    one, other = (workload.SendPlan(["log-0"], 100, random.Random("x")) for _ in range(2))
    assert {one.records(5) for _ in range(9)} == {5}
    assert [one.pause_us() for _ in range(9)] == [other.pause_us() for _ in range(9)]


@given(partitions=st.integers(1, 40), consumers=st.integers(1, 12))
def test_consumers_together_read_every_partition(partitions: int, consumers: int) -> None:
    names = [f"log-{n}" for n in range(partitions)]
    read = [workload.polled_partitions(names, i, consumers) for i in range(consumers)]
    assert set().union(*read) == set(names)
    assert all(len(set(each)) == len(each) for each in read)
