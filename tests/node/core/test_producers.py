"""Idempotent producers: what a log knows of them (answers of leaders: `scripts/producers.txt`)."""

from __future__ import annotations

import pytest

from node.core import batch as batches
from node.core.batch import EMPTY_CHAIN, Produced
from node.core.producers import WINDOW, Producers, Standing, Written
from node.formats.errors import WireError
from node.formats.wire_bounds import MAX_PRODUCER_EPOCH, MAX_PRODUCERS, MAX_SEQUENCE


def written(*sizes: int, epoch: int = 0, sequence: int = 0) -> Producers:
    """Return the producers that follow from a log of batches of these sizes, all of producer 7."""
    known, base = Producers(), 0
    for size in sizes:
        known.note(Produced(7, epoch, sequence), base, base + size)
        base, sequence = base + size, sequence + size
    return known


def batch(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7) -> bytes:
    return batches.build(count, b"x" * count, produced=Produced(producer, epoch, sequence))


# -- the state ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("producer", "epoch", "sequence", "count", "standing"),
    [
        (7, 0, 6, 1, Standing.NEXT),
        (7, 0, 7, 1, Standing.GAP),
        (7, 0, 3, 3, Standing.DUPLICATE),
        (7, 0, 0, 1, Standing.DUPLICATE),
        (7, 0, 3, 2, Standing.OLD),  # begins like one of them, and is another
        (7, 1, 0, 1, Standing.NEXT),
        (7, 1, 6, 1, Standing.GAP),
        (8, 0, 0, 1, Standing.NEXT),
        (8, 0, 6, 1, Standing.UNKNOWN),
    ],
)
def test_what_a_batch_is_to_a_log(
    producer: int, epoch: int, sequence: int, count: int, standing: Standing
) -> None:
    known = written(1, 2, 3)  # sequences 0, 1-2, 3-5
    assert known.judge(Produced(producer, epoch, sequence), count)[0] is standing


def test_a_duplicate_names_the_original() -> None:
    assert written(1, 2, 3).judge(Produced(7, 0, 1), 2) == (Standing.DUPLICATE, Written(0, 1, 1, 3))


def test_a_new_epoch_fences_the_one_before_and_forgets_its_batches() -> None:
    known = written(1, 2)
    known.note(Produced(7, 2, 0), 3, 4)
    assert known.judge(Produced(7, 1, 0), 1)[0] is Standing.FENCED
    assert known.judge(Produced(7, 2, 0), 1) == (Standing.DUPLICATE, Written(2, 0, 3, 4))
    assert known.judge(Produced(7, 2, 1), 2)[0] is Standing.NEXT


def test_the_last_five_batches_are_known_and_older_ones_are_old() -> None:
    known = written(*[1] * (WINDOW + 2))
    verdicts = [known.judge(Produced(7, 0, n), 1)[0] for n in range(WINDOW + 3)]
    assert verdicts == [Standing.OLD] * 2 + [Standing.DUPLICATE] * WINDOW + [Standing.NEXT]


def test_of_too_many_producers_that_one_goes_which_wrote_longest_ago() -> None:
    known = Producers()
    for producer in range(MAX_PRODUCERS):
        known.note(Produced(producer, 0, 0), producer, producer + 1)
    known.note(Produced(0, 0, 1), MAX_PRODUCERS, MAX_PRODUCERS + 1)
    known.note(Produced(MAX_PRODUCERS, 0, 0), MAX_PRODUCERS + 1, MAX_PRODUCERS + 2)
    assert len(known) == MAX_PRODUCERS
    assert known.judge(Produced(1, 0, 1), 1)[0] is Standing.UNKNOWN
    assert known.judge(Produced(0, 0, 2), 1)[0] is Standing.NEXT


def test_a_rebuilt_state_knows_nothing_but_the_log() -> None:
    known = written(1, 1, 1)
    known.rebuild([(0, 2, Produced(9, 0, 0))])
    assert known.judge(Produced(7, 0, 0), 1)[0] is Standing.NEXT
    assert known.judge(Produced(9, 0, 0), 2) == (Standing.DUPLICATE, Written(0, 0, 0, 2))


# -- the batch ------------------------------------------------------------------------------------


def test_a_batch_says_what_its_producer_is_and_keeps_its_payload() -> None:
    placed = batches.placed(batch(3, 2), 40, 5)
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
