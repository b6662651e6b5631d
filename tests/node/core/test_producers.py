"""Idempotent producers: what a log knows of them (answers of leaders: `scripts/producers.txt`)."""

from __future__ import annotations

import pytest

from node.core import batch as batches
from node.core.batch import EMPTY_CHAIN, Produced
from node.core.producers import Producers, Standing
from node.formats.errors import WireError
from node.formats.wire_bounds import MAX_PRODUCER_EPOCH, MAX_PRODUCERS, MAX_SEQUENCE


def batch(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7) -> bytes:
    return batches.build(count, b"x" * count, produced=Produced(producer, epoch, sequence))


# -- the state ------------------------------------------------------------------------------------


def test_of_too_many_producers_that_one_goes_which_wrote_longest_ago() -> None:
    known = Producers()
    for producer in range(MAX_PRODUCERS):
        known.note(Produced(producer, 0, 0), producer, producer + 1)
    known.note(Produced(0, 0, 1), MAX_PRODUCERS, MAX_PRODUCERS + 1)
    known.note(Produced(MAX_PRODUCERS, 0, 0), MAX_PRODUCERS + 1, MAX_PRODUCERS + 2)
    assert len(known) == MAX_PRODUCERS
    assert known.judge(Produced(1, 0, 1), 1)[0] is Standing.UNKNOWN
    assert known.judge(Produced(0, 0, 2), 1)[0] is Standing.NEXT


# -- the batch ------------------------------------------------------------------------------------


def test_a_batch_says_what_its_producer_is_and_keeps_its_payload() -> None:
    placed = batches.placed(batches.view(batch(3, 2)), 40, 5)
    found = batches.view(placed.data)
    assert (found.produced, found.payload, found.count) == (Produced(7, 0, 3), b"xx", 2)
    assert (found.base_offset, found.epoch, found.control) == (40, 5, False)
    assert batches.produced_by(placed.data) == Produced(7, 0, 3)


def test_batches_without_a_producer_are_what_they_were() -> None:
    """Byte for byte: stored logs stay readable, and their prefix hashes stay."""
    plain = batches.build(2, b"xx")
    assert plain.hex() == "0" * 24 + "01" + "00000002" + "0b7e7f3d" + "00000002" + "7878"
    assert batches.view(plain).produced is None
    assert batches.produced_by(plain) is None
    assert batches.chain(EMPTY_CHAIN, batches.view(plain)).hex() == "64ba0c7f73f88c50"


def test_the_prefix_hash_covers_the_producer() -> None:
    one, other = (batches.view(batch(sequence)) for sequence in (0, 1))
    assert one.payload == other.payload
    assert batches.chain(EMPTY_CHAIN, one) != batches.chain(EMPTY_CHAIN, other)


@pytest.mark.parametrize(
    "produced",
    [(-1, 0, 0), (7, -1, 0), (7, MAX_PRODUCER_EPOCH + 1, 0), (7, 0, -1), (7, 0, MAX_SEQUENCE)],
)
def test_numbers_of_a_producer_out_of_range_are_refused(produced: tuple[int, int, int]) -> None:
    with pytest.raises(WireError, match="producer"):
        batches.view(batches.build(1, b"x", produced=Produced(*produced)))


def test_a_batch_that_is_too_short_for_its_producer_is_refused() -> None:
    short = batches.HEADER.pack(0, 0, batches.IDEMPOTENT_VERSION, 4, 0, 1) + b"xxxx"
    with pytest.raises(WireError, match="does not fit"):
        batches.view(short)
    assert batches.produced_by(short) is None
