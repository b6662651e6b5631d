"""Truncate-on-fetch: the epoch lookup (the conversations are histories in `scripts/`)."""

from __future__ import annotations

import pytest

from node.core import follower
from node.core.epochs import EpochCache, EpochEnd, diverges, truncation_target
from tests.support.stage_replica import Bench, Pair, bare_log, show


def cache_of(*entries: tuple[int, int]) -> EpochCache:
    cache = EpochCache()
    for epoch, start in entries:
        cache.note(epoch, start)
    return cache


# -- the lookup -----------------------------------------------------------------------------------

FIGURE_3 = ((1, 0), (2, 2), (3, 4))


@pytest.mark.parametrize(
    ("cache", "leo", "epoch", "answer"),
    [
        pytest.param((), 0, 7, (7, 0), id="empty cache: the epoch asked, at the log end"),
        pytest.param(FIGURE_3, 4, 3, (3, 4), id="the latest epoch ends at the log end"),
        pytest.param(FIGURE_3, 9, 3, (3, 9), id="the latest epoch ends at the log end, later"),
        pytest.param(FIGURE_3, 4, 2, (2, 4), id="an older epoch ends where the next begins"),
        pytest.param(FIGURE_3, 4, 1, (1, 2), id="the first epoch"),
        pytest.param(FIGURE_3, 4, 0, (0, 0), id="below the first: itself, start of the first"),
        pytest.param(((3, 5), (6, 8)), 9, 1, (1, 5), id="below the first, which starts later"),
        pytest.param(((1, 0), (5, 3)), 9, 4, (1, 3), id="an unknown epoch: the one below it"),
        pytest.param(((1, 0), (5, 3)), 9, 8, (5, 9), id="above all: the last, at the log end"),
    ],
)
def test_where_an_epoch_ends(
    cache: tuple[tuple[int, int], ...], leo: int, epoch: int, answer: tuple[int, int]
) -> None:
    assert cache_of(*cache).end_of(epoch, leo) == EpochEnd(*answer)


@pytest.mark.parametrize(
    ("ours", "last_epoch", "offset", "expected"),
    [
        ((2, 4), 2, 4, False),
        ((2, 4), 2, 3, False),
        ((2, 4), 2, 5, True),  # case C: same epoch, too long
        ((1, 4), 2, 4, True),  # case G: not longer, but of an epoch never seen here
        ((1, 2), 2, 4, True),
    ],
)
def test_a_log_diverges_by_epoch_or_by_offset(
    ours: tuple[int, int], last_epoch: int, offset: int, expected: bool
) -> None:
    assert diverges(EpochEnd(*ours), last_epoch=last_epoch, fetch_offset=offset) is expected


def test_the_local_end_of_the_diverging_epoch_counts_too() -> None:
    assert truncation_target(cache_of((1, 0), (2, 1)), 3, EpochEnd(1, 2)) == 1
    assert truncation_target(cache_of((1, 0)), 4, EpochEnd(1, 2)) == 2


def test_an_epoch_that_wrote_nothing_gives_way() -> None:
    cache = cache_of((1, 0), (2, 4), (3, 4))
    assert cache.entries() == [(1, 0), (3, 4)]
    assert cache.note(1, 4), "the record at 4 is of epoch 1: nobody wrote in epoch 3"
    assert cache.entries() == [(1, 0)]
    assert cache.latest == 1


def test_a_cut_at_the_log_end_still_drops_the_entry_there() -> None:
    log = bare_log("0e1 1e1")
    log.begin_epoch(2)
    assert log.cache.entries() == [(1, 0), (2, 2)]
    assert log.truncate(2) == 2
    assert log.cache.entries() == [(1, 0)]
    assert log.truncate(99) == 2


def test_the_cache_of_a_stored_log_is_the_cache_it_had() -> None:
    bench = Bench("n2", "0e0 1-3e2 4e2 5e7")
    bench.metadata("n1", 8)
    assert bench.r.log.cache.entries() == [(0, 0), (2, 1), (7, 5)]


# -- what a follower must not believe -------------------------------------------------------------


def test_a_diverging_answer_that_comes_twice_cuts_once() -> None:
    """The second copy comes when the log has been repaired to the same length: a second cut would
    remove what the leader counts."""
    pair = Pair("0-7e1 8e3 9e3", "0-7e1 8e2 9e2", 3)
    diverging = pair.ask(pair.take_fetch())
    assert diverging is not None
    follower.on_response(pair.follower.ctx, pair.follower.r, "n1", *diverging)
    assert pair.round(), "8e3 9e3"
    assert pair.ask(pair.take_fetch()) is None
    assert pair.leader.r.peers["n2"].leo == 10, "from here on the leader may acknowledge 8e3 9e3"

    follower.on_response(pair.follower.ctx, pair.follower.r, "n1", *diverging)
    assert show(pair.follower.r.log) == "0-7e1 8e3 9e3"
