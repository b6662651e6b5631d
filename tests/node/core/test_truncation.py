"""Truncate-on-fetch: caches of logs, and an answer that comes twice (all else: `scripts/`)."""

from __future__ import annotations

from node.core import follower
from tests.support.stage_replica import Bench, Pair, bare_log, show


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
