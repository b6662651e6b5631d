"""Truncate-on-fetch: the epoch lookup, cases A to G, and every pair of short logs.

A conversation between a leader and a follower is printed as one line a round:

    (4, 2) -> diverging (1, 2), cut to 2      request (fetch offset, last epoch), answer, effect
    (2, 1) -> 2e3 3e3                         or the records that came
"""

from __future__ import annotations

import pytest

from node.core import follower
from node.core.epochs import EpochCache, EpochEnd, diverges, truncation_target
from node.core.messages import FetchRequest, FetchResponse
from node.core.protocol import KAFKA
from node.core.replica import Replica, load
from node.formats.errors import WireError
from node.formats.wire import fetch_body
from tests.support.replica_bench import PARTITION, Bench, Pair, bare_log, fill, show


def cache_of(*entries: tuple[int, int]) -> EpochCache:
    cache = EpochCache()
    for epoch, start in entries:
        cache.note(epoch, start)
    return cache


def entries(r: Replica) -> dict[int, int]:
    return dict(r.log.cache.entries())


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
    assert entries(bench.r) == {0: 0, 2: 1, 7: 5}


# -- cases A to G ---------------------------------------------------------------------------------

CASES = {
    # name: leader's log, its epoch, its cache, follower's log, its cache,
    #     the conversation, the follower's log after it
    "A": ("0e1 1e1 2e1 3e1", 2, {1: 0, 2: 4}, "0e1 1e1", {1: 0},
        ["(2, 1) -> 2e1 3e1"], "0e1 1e1 2e1 3e1"),
    "B": ("0e1 1e1 2e2 3e2", 3, {1: 0, 2: 2, 3: 4}, "0e1 1e1", {1: 0},
        ["(2, 1) -> 2e2 3e2"], "0e1 1e1 2e2 3e2"),
    "C": ("0e1 1e1", 2, {1: 0, 2: 2}, "0e1 1e1 2e1 3e1", {1: 0},
        ["(4, 1) -> diverging (1, 2), cut to 2"], "0e1 1e1"),
    "D": ("0e1 1e1", 3, {1: 0, 3: 2}, "0e1 1e1 2e2 3e2", {1: 0, 2: 2},
        ["(4, 2) -> diverging (1, 2), cut to 2"], "0e1 1e1"),
    "E": ("0e1 1e1 2e3 3e3", 4, {1: 0, 3: 2, 4: 4}, "0e1 1e1 2e2 3e2", {1: 0, 2: 2},
        ["(4, 2) -> diverging (1, 2), cut to 2", "(2, 1) -> 2e3 3e3"], "0e1 1e1 2e3 3e3"),
    "F": ("0e1 1e1", 3, {1: 0, 3: 2}, "0e1 1e2 2e2", {1: 0, 2: 1},
        ["(3, 2) -> diverging (1, 2), cut to 1", "(1, 1) -> 1e1"], "0e1 1e1"),
    "G": ("0e1 1e3", 4, {1: 0, 3: 1, 4: 2}, "0e2", {2: 0},
        ["(1, 2) -> diverging (1, 1), cut to 0", "(0, -1) -> 0e1 1e3"], "0e1 1e3"),
    "figure 2": ("0e1 1e1", 2, {1: 0, 2: 2}, "0e1 1e1 2e1 3e1", {1: 0},
        ["(4, 1) -> diverging (1, 2), cut to 2"], "0e1 1e1"),
    "alternating unclean leaders: three rounds": (
        "0e1 1e3 2e5", 5, {1: 0, 3: 1, 5: 2}, "0e0 1e2 2e4", {0: 0, 2: 1, 4: 2},
        ["(3, 4) -> diverging (3, 2), cut to 2",
         "(2, 2) -> diverging (1, 1), cut to 1",
         "(1, 0) -> diverging (0, 0), cut to 0",
         "(0, -1) -> 0e1 1e3 2e5"], "0e1 1e3 2e5"),
    "only the last record differs": (
        "0e0 1e2 2e5", 5, {0: 0, 2: 1, 5: 2}, "0e0 1e2 2e4", {0: 0, 2: 1, 4: 2},
        ["(3, 4) -> diverging (2, 2), cut to 2", "(2, 2) -> 2e5"], "0e0 1e2 2e5"),
    "KIP-279 scenario 1, n < 20: a fetch inside the leader's batch": (
        "0-10e1 11-20e1 21-30e3", 3, {1: 0, 3: 21}, "0-10e1 11-15e2", {1: 0, 2: 11},
        ["(16, 2) -> diverging (1, 21), cut to 11",
         "(11, 1) -> 11-20e1 21-30e3"], "0-10e1 11-20e1 21-30e3"),
    "KIP-279 scenario 1, n = 20: the same log end": (
        "0-10e1 11-20e1 21-30e3", 3, {1: 0, 3: 21}, "0-10e1 11-20e2", {1: 0, 2: 11},
        ["(21, 2) -> diverging (1, 21), cut to 11",
         "(11, 1) -> 11-20e1 21-30e3"], "0-10e1 11-20e1 21-30e3"),
    "KIP-279 scenario 1, n > 20: a cut inside the follower's batch": (
        "0-10e1 11-20e1 21-30e3", 3, {1: 0, 3: 21}, "0-10e1 11-25e2", {1: 0, 2: 11},
        ["(26, 2) -> diverging (1, 21), cut to 11",
         "(11, 1) -> 11-20e1 21-30e3"], "0-10e1 11-20e1 21-30e3"),
    "KAFKA-7415: the leader wrote nothing in its epoch": (
        "0e1 1e1", 3, {1: 0, 3: 2}, "0e1 1e1 2e2", {1: 0, 2: 2},
        ["(3, 2) -> diverging (1, 2), cut to 2"], "0e1 1e1"),
    "an empty follower never diverges": ("0e3", 4, {3: 0, 4: 1}, "", {},
        ["(0, -1) -> 0e3"], "0e3"),
    "an empty leader takes everything away": ("", 3, {3: 0}, "0e1 1e2", {1: 0, 2: 1},
        ["(2, 2) -> diverging (2, 0), cut to 0"], ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_case(case: str) -> None:
    leads, epoch, leads_cache, follows, follows_cache, said, after = CASES[case]
    pair = Pair(leads, follows, epoch)
    assert entries(pair.leader.r) == leads_cache, "the leader's own epoch is in from its election"
    assert entries(pair.follower.r) == follows_cache
    assert pair.talk() == "\n".join(said)
    assert show(pair.follower.r.log) == after == show(pair.leader.r.log)
    assert pair.follower.r.log.chain == pair.leader.r.log.chain


def test_a_cut_inside_a_batch_takes_the_whole_batch() -> None:
    log = bare_log("0-10e1 11-25e2")
    assert log.truncate(21) == 11, "no hole: the log ends where the last whole batch ends"
    assert show(log) == "0-10e1"
    fill(log, "11-20e1")


def test_a_leader_of_no_record_that_follows_again_asks_by_its_last_record() -> None:
    """KAFKA-10706: n2 led epoch 2, wrote nothing, and must not ask for epoch 2 for ever."""
    pair = Pair("0e1 1e1 2e3", "0e1 1e1", 3)
    once_led = Bench("n2", "0e1 1e1")
    once_led.metadata("n2", 2)
    assert entries(once_led.r) == {1: 0, 2: 2}
    once_led.metadata("n1", 3, at=2)
    pair.follower = once_led
    fetches = [m for _, m, _ in once_led.sent() if isinstance(m, FetchRequest)]
    assert [(f.offset, f.last_epoch) for f in fetches] == [(2, 1)]
    answer = pair.ask(fetches[0])
    assert answer is not None
    follower.on_response(once_led.ctx, once_led.r, "n1", *answer)
    assert show(once_led.r.log) == "0e1 1e1 2e3"
    assert entries(once_led.r) == {1: 0, 3: 2}


# -- what a follower must not believe -------------------------------------------------------------


def test_records_and_hw_of_a_diverging_answer_are_not_for_this_log() -> None:
    """KAFKA-14704."""
    pair = Pair("0e1 1e1 2e3 3e3", "0e1 1e1 2e2 3e2", 4)
    request = pair.take_fetch()
    answer = pair.ask(request)
    assert answer is not None
    with_records = fetch_body(4, 4, [pair.leader.r.log.read(2, max_bytes=99, below=3)[0][0]])
    follower.on_response(pair.follower.ctx, pair.follower.r, "n1", answer[0], with_records)
    assert show(pair.follower.r.log) == "0e1 1e1"
    assert pair.follower.r.hw == 0


def test_a_diverging_answer_that_comes_twice_cuts_once() -> None:
    """The second copy comes when the log has been mended and is as long as before: a
    second cut would remove what the leader counts."""
    pair = Pair("0-7e1 8e3 9e3", "0-7e1 8e2 9e2", 3)
    diverging = pair.ask(pair.take_fetch())
    assert diverging is not None
    follower.on_response(pair.follower.ctx, pair.follower.r, "n1", *diverging)
    assert pair.round(), "8e3 9e3"
    assert pair.ask(pair.take_fetch()) is None
    assert pair.leader.r.peers["n2"].leo == 10, "from here on the leader may acknowledge 8e3 9e3"

    follower.on_response(pair.follower.ctx, pair.follower.r, "n1", *diverging)
    assert show(pair.follower.r.log) == "0-7e1 8e3 9e3"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"offset": 1}, "an answer to an older question"),
        ({"offset": 3}, "an answer to a question never asked"),
        ({"last_epoch": 0}, "about another log that ended there too"),
        ({"request_epoch": 3}, "asked in an older leader epoch"),
        ({"request_epoch": 5}, "asked in a newer leader epoch"),
    ],
)
def test_an_answer_to_another_question_changes_nothing(change: dict[str, int], why: str) -> None:
    pair = Pair("0e1 1e1 2e3", "0e1 1e1", 4)
    answer = pair.ask(pair.take_fetch())
    assert answer is not None
    response, body = answer
    fields = {f: getattr(response, f) for f in response.__struct_fields__} | change
    taken = follower.on_response(
        pair.follower.ctx, pair.follower.r, "n1", FetchResponse(**fields), body
    )
    assert not taken, why
    assert show(pair.follower.r.log) == "0e1 1e1"
    assert pair.follower.sent() == []


def test_only_the_leader_is_believed() -> None:
    pair = Pair("0e1 1e1 2e3", "0e1 1e1", 4)
    answer = pair.ask(pair.take_fetch())
    assert answer is not None
    f = pair.follower
    assert not follower.on_response(f.ctx, f.r, "n3", *answer)
    f.metadata("", 5, at=2)
    assert not follower.on_response(f.ctx, f.r, "n1", *answer), "nobody leads now"
    f.metadata("n1", 6, at=3)
    assert not follower.on_response(f.ctx, f.r, "n1", *answer), "the same leader, a newer epoch"
    assert show(f.r.log) == "0e1 1e1"


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        ("3e4", "it leaves a hole"),
        ("1e4", "it is here already"),
        ("2e0", "its epoch is below that of the last record"),
        ("2e4 4e4", "there is a hole in it"),
        ("2e5 3e4", "the epoch falls in it"),
    ],
)
def test_records_that_do_not_continue_the_log_are_refused(batch: str, why: str) -> None:
    log = bare_log("0e1 1e1")
    with pytest.raises(WireError):
        fill(log, batch)
    assert show(log) == "0e1 1e1", why


def test_a_corrupt_answer_is_asked_for_again_after_a_pause() -> None:
    f = Bench("n2", "0e1")
    f.metadata("n1", 2)
    f.sent()
    broken = FetchResponse(partition=PARTITION, offset=1, last_epoch=1, request_epoch=2, log_end=2)
    follower.on_response(f.ctx, f.r, "n1", broken, fetch_body(2, 1, [b"no batch"]))
    assert f.sent() == [], "not at once: it would be as broken again"
    assert show(f.r.log) == "0e1"
    f.sleep(100)
    assert [m.offset for _, m, _ in f.sent() if isinstance(m, FetchRequest)] == [1]


def test_a_cut_below_the_saved_high_watermark_is_saved_too() -> None:
    """Else a restart takes new, uncommitted records for committed ones: they end there as well."""
    f = Bench("n2", "0-4e1 5-9e2")
    f.metadata("n1", 3)
    f.r.set_hw(f.ctx, 10)
    f.r.save_hw(f.ctx)
    answer = FetchResponse(
        partition=PARTITION, offset=10, last_epoch=2, request_epoch=3, diverging=(1, 5)
    )
    follower.on_response(f.ctx, f.r, "n1", answer, fetch_body(3, 0, []))
    fill(f.r.log, "5-12e3")
    assert (f.r.hw, f.r.leo) == (5, 13)
    after_a_restart = load(f.ctx, PARTITION, KAFKA, durable=True)
    assert after_a_restart.hw == 5
