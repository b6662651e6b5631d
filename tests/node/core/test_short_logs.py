"""Truncate-on-fetch on every pair of short logs: never too much, never too little."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

import pytest

from node.core.epochs import diverges, truncation_target
from tests.support.stage_replica import Pair, bare_log, parse, show

# -- every pair of short logs ---------------------------------------------------------------------

Pairs = Iterator[tuple[tuple[int, ...], tuple[int, ...]]]


def one_writer(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Return whether two logs, as epochs, can come from a history with one writer an epoch: a log
    with a record of an epoch has every record that its writer had before it."""
    return all(a[: a.index(epoch)] == b[: b.index(epoch)] for epoch in set(a) & set(b))


def legal_pairs(length: int = 4, epochs: int = 4) -> Pairs:
    logs = [
        log
        for size in range(length + 1)
        for log in combinations_with_replacement(range(1, epochs + 1), size)
    ]
    return ((a, b) for a in logs for b in logs if one_writer(a, b))


def common_prefix(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Return the number of records that both begin with. With one writer an epoch, equal epochs
    from the start on are equal records."""
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    return same


def written(epochs: tuple[int, ...], sizes: dict[int, list[int]]) -> str:
    """Return a log of batches in our notation: its i-th batch of an epoch has that writer's i-th
    size."""
    text, at = [], 0
    for i, epoch in enumerate(epochs):
        size = sizes[epoch][i - epochs.index(epoch)]
        text.append(f"{at}e{epoch}" if size == 1 else f"{at}-{at + size - 1}e{epoch}")
        at += size
    return " ".join(text)


class Lookups:
    """The protocol's rules alone, on two logs, with none of the machinery: fast enough for all
    pairs, and the same functions that the machinery calls."""

    def __init__(self, leads: str, follows: str, leader_epoch: int) -> None:
        self.ours = bare_log(leads)
        self.ours.begin_epoch(leader_epoch)
        self.theirs = bare_log(follows)

    def rounds(self, floor: int) -> int:
        """Cut until the leader has nothing against it, never below `floor`."""
        theirs, ours = self.theirs, self.ours
        for round_ in range(10):
            if theirs.leo == 0:
                return round_
            end = ours.cache.end_of(theirs.last_epoch, ours.leo)
            if not diverges(end, last_epoch=theirs.last_epoch, fetch_offset=theirs.leo):
                return round_
            before = theirs.leo
            theirs.truncate(truncation_target(theirs.cache, theirs.leo, end))
            assert floor <= theirs.leo < before
        raise AssertionError("no end of it")


SIZES = {
    "single records": {epoch: [1, 1, 1, 1] for epoch in range(1, 5)},
    "batches of unlike sizes": {1: [2, 1, 3, 1], 2: [3, 2, 1, 2], 3: [1, 4, 1, 1], 4: [5, 1, 2, 1]},
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_every_pair_of_short_logs_is_mended_exactly(sizes: dict[int, list[int]]) -> None:
    pairs, most_rounds = 0, 0
    for ours, theirs in legal_pairs():
        leads, follows = written(ours, sizes), written(theirs, sizes)
        common = common_prefix(ours, theirs)
        prefix = parse(written(ours[:common], sizes))
        floor = prefix[-1][1] if prefix else 0
        both = Lookups(leads, follows, 5)
        most_rounds = max(most_rounds, both.rounds(floor))
        kept = show(both.theirs)
        assert leads.startswith(kept), f"{leads} against {follows}: {kept} is kept"
        if len(theirs) > common:
            assert both.theirs.leo == floor, f"{leads} against {follows}: {kept} is kept"
        assert both.theirs.cache.entries() == bare_log(kept).cache.entries()
        pairs += 1
    assert pairs == 2398
    assert most_rounds == 2


def test_pairs_of_short_logs_through_leader_and_follower() -> None:
    """The same through the real fetches; all pairs up to three records of three epochs."""
    for ours, theirs in legal_pairs(3, 3):
        leads, follows = (written(log, SIZES["single records"]) for log in (ours, theirs))
        pair = Pair(leads, follows, 4)
        ours_has, theirs_has = (r.log.cache.entries() for r in (pair.leader.r, pair.follower.r))
        assert ours_has == [*bare_log(leads).cache.entries(), (4, len(ours))], "its own is in too"
        assert theirs_has == bare_log(follows).cache.entries()
        pair.talk(most_rounds=4)
        assert show(pair.follower.r.log) == leads
        assert pair.follower.r.log.chain == pair.leader.r.log.chain
