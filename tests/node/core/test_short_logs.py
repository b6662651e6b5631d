"""Truncate-on-fetch on pairs of short logs: never too much, never too little. `test_matrix` has all
pairs, without what comes after the cut."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

from tests.support.log_notation import bare_log
from tests.support.stage_histories import HistoriesStage

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
    """Return a log of batches: its i-th batch of an epoch has that writer's i-th size."""
    text, at = [], 0
    for i, epoch in enumerate(epochs):
        size = sizes[epoch][i - epochs.index(epoch)]
        text.append(f"{at}e{epoch}" if size == 1 else f"{at}-{at + size - 1}e{epoch}")
        at += size
    return " ".join(text)


SIZES = {
    "single records": {epoch: [1, 1, 1, 1] for epoch in range(1, 5)},
    "batches of unlike sizes": {1: [2, 1, 3, 1], 2: [3, 2, 1, 2], 3: [1, 4, 1, 1], 4: [5, 1, 2, 1]},
}


def paired(leads: str, follows: str) -> HistoriesStage:
    """Return the leader n1 of epoch 4 and its follower n2, each with its log. Nothing commits,
    since n3 is not there."""
    stage = HistoriesStage()
    stage.pair(leads.replace(" ", ","), 4, follows.replace(" ", ","), isr="n1,n3")
    return stage


def test_pairs_of_short_logs_through_leader_and_follower() -> None:
    """All pairs up to three records of three epochs."""
    for ours, theirs in legal_pairs(3, 3):
        leads, follows = (written(log, SIZES["single records"]) for log in (ours, theirs))
        stage = paired(leads, follows)
        ours_has, theirs_has = (stage.nodes[n].r.log.cache.entries() for n in ("n1", "n2"))
        assert ours_has == [*bare_log(leads).cache.entries(), (4, len(ours))], "its own is in too"
        assert theirs_has == bare_log(follows).cache.entries()
        stage.run(most=8)
        assert not stage.mail, "no end of it"
        assert stage.log("n2") == leads
        assert stage.nodes["n2"].r.log.chain == stage.nodes["n1"].r.log.chain
