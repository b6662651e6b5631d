"""In-sync set and high watermark: the arithmetic, the rules of growing and shrinking, and what a
leader does with every answer the controller can give."""

from __future__ import annotations

from itertools import product

import pytest

from node.core.high_watermark import isr_high_watermark, majority_high_watermark
from node.core.isr_change import may_expand
from node.core.messages import Error
from tests.support.replica_bench import Bench

# -- arithmetic -----------------------------------------------------------------------------------

ENDS = {"n1": 9, "n2": 7, "n3": 4}


@pytest.mark.parametrize(
    ("maximal", "ends", "committed", "min_isr", "expected"),
    [
        pytest.param("n1 n2 n3", ENDS, 3, 2, 4, id="the slowest member decides"),
        pytest.param("n1 n2", ENDS, 2, 2, 7, id="who is no member does not count"),
        pytest.param("n1", ENDS, 1, 1, 9, id="alone"),
        pytest.param("n1", ENDS, 1, 2, None, id="below MinISR nothing commits"),
        pytest.param("n1 n2 n3", ENDS, 1, 2, None, id="the committed set is what is counted"),
        pytest.param("n1 n2 n4", ENDS, 3, 2, None, id="a member never heard of blocks"),
    ],
)
def test_the_high_watermark_of_an_isr(
    maximal: str, ends: dict[str, int], committed: int, min_isr: int, expected: int | None
) -> None:
    found = isr_high_watermark(maximal.split(), ends, committed_isr=committed, min_isr=min_isr)
    assert found == expected


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([7], 7),
        ([7, 0], None),
        ([7, 6], 6),
        ([7, 6, 0], 6),
        ([9, 9, 0, 0], None),  # sorted[N/2] would say 9: half is no majority
        ([5, 4, 3, 2], 3),
        ([4, 3, 2, 1, 0, 0], 1),
        ([4, 3, 2, 1, 0], 2),
        ([3, 3, 3, 3], 3),
    ],
)
def test_the_high_watermark_of_a_majority(ends: list[int], expected: int | None) -> None:
    names = [f"v{i}" for i in range(len(ends))]
    leos = dict(zip(names, ends, strict=True))
    assert majority_high_watermark(names, leos, epoch_start=0) == expected


def test_a_majority_is_what_counting_says() -> None:
    """All groups up to five voters: the highest offset that more than half of them have."""
    for voters in range(1, 6):
        names = [f"v{i}" for i in range(voters)]
        for ends in product(range(4), repeat=voters):
            had = [o for o in range(1, 4) if 2 * sum(e >= o for e in ends) > voters]
            leos = dict(zip(names, ends, strict=True))
            found = majority_high_watermark(names, leos, epoch_start=0)
            assert found == (max(had) if had else None), ends


def test_older_terms_commit_only_with_a_record_of_this_one() -> None:
    ends = {"v1": 8, "v2": 7, "v3": 0}
    assert majority_high_watermark(("v1", "v2", "v3"), ends, epoch_start=7) is None
    assert majority_high_watermark(("v1", "v2", "v3"), ends, epoch_start=6) == 7
    assert majority_high_watermark(("v1", "v2", "v3"), {"v1": 8}, epoch_start=6) is None


@pytest.mark.parametrize(
    ("offset", "ago_us", "expected"),
    [(10, 0, True), (10, 1000, True), (10, 1001, False), (9, 0, False), (7, 0, False)],
)
def test_complete_enough_to_join(offset: int, ago_us: int, expected: bool) -> None:
    joins = may_expand(fetch_offset=offset, hw=7, leso=10, caught_up_ago_us=ago_us, lag_us=1000)
    assert joins is expected


# -- the high watermark on a leader ---------------------------------------------------------------


def test_the_high_watermark_follows_the_slowest_and_never_falls() -> None:
    b = Bench("n1", "0e1 1e1 2e1")
    b.metadata("n1", 1)
    seen = []
    for replica, offset in [("n2", 2), ("n3", 1), ("n3", 3), ("n2", 1), ("n3", 0), ("n2", 3)]:
        b.fetch(replica, offset, 1)
        seen.append(f"{replica} at {offset}: {b.r.hw}")
    assert seen == [
        "n2 at 2: 0",  # n3 not heard of
        "n3 at 1: 1",
        "n3 at 3: 2",
        "n2 at 1: 2",  # an old fetch that comes late
        "n3 at 0: 2",
        "n2 at 3: 2",
    ]


def test_a_committed_shrink_lets_the_high_watermark_go_on() -> None:
    """KAFKA-13091: no later fetch is needed."""
    b = Bench("n1", "0e1 1e1")
    b.metadata("n1", 1)
    b.fetch("n2", 2, 1)
    assert b.r.hw == 0
    b.metadata("n1", 1, "n1 n2", at=2)
    assert b.r.hw == 2


def test_nothing_commits_below_min_isr_and_all_of_it_later() -> None:
    b = Bench("n1", "0e1 1e1")
    b.metadata("n1", 1, "n1", min_isr=2)
    assert b.r.hw == 0, "alone, and two are wanted"
    b.fetch("n2", 2, 1)
    (wish,) = b.proposals()
    assert b.r.hw == 0
    b.controller_says(to=wish, isr="n1 n2", at=2)
    assert b.r.hw == 2


def test_a_sole_replica_commits_by_itself_from_its_election_on() -> None:
    b = Bench("n1", "0e1 1e1")
    b.metadata("n1", 2, "n1", min_isr=1)
    assert b.r.hw == 2
    answer = b.produce("2e2")
    assert answer is not None
    assert (answer.error, b.r.hw) == (Error.NONE, 3)


def test_a_fetch_that_diverges_or_is_refused_counts_for_nothing() -> None:
    """KAFKA-13141: n2's divergent log is longer than the leader's."""
    b = Bench("n1", "0e1 1e1")
    b.metadata("n1", 3, "n1 n2", min_isr=2)
    b.fetch("n2", 4, 2)
    b.fetch("n2", 2, 1, epoch=2)
    b.fetch("n2", 2, 1, epoch=4)
    b.fetch("n2", 2, 1, from_process=99)
    b.fetch("n4", 2, 1)
    assert b.r.peers == {}
    assert b.r.hw == 0
    errors = [m.error.value for _, m, _ in b.sent() if hasattr(m, "error")]
    assert errors == [
        "",
        "fenced-leader-epoch",
        "unknown-leader-epoch",
        "stale-broker-epoch",
        "unknown-leader-epoch",
    ]
    b.fetch("n2", 2, 1)
    assert b.r.hw == 2


# -- growing: five rules --------------------------------------------------------------------------


class Outsider:
    """n1 leads epoch 2 since its log ended at 3, HW 0; n2 is in sync, n3 is not."""

    def __init__(self) -> None:
        self.b = Bench("n1", "0e1 1e1 2e1")
        self.b.metadata("n1", 2, "n1 n2")

    def joins(self, offset: int = 3, last_epoch: int = 1, **fetch: int) -> bool:
        self.b.sent()
        self.b.fetch("n3", offset, last_epoch, **fetch)
        wishes = self.b.proposals()
        assert all([m for m, _ in w.isr] == ["n1", "n2", "n3"] for w in wishes)
        return bool(wishes)


def test_a_complete_and_live_follower_joins() -> None:
    o = Outsider()
    assert o.joins()
    pending = o.b.r.pending_alter
    assert pending is not None
    assert pending.request.isr == (("n1", -1), ("n2", -1), ("n3", 103))
    assert o.b.r.maximal_isr == ("n1", "n2", "n3"), "counted from now on"
    assert o.b.r.isr == ("n1", "n2")


def test_rule_1_not_while_behind_for_longer_than_the_lag() -> None:
    o = Outsider()
    assert o.joins(3), "at the end: caught up"
    o = Outsider()
    o.b.fetch("n2", 3, 1)
    for i in range(3):
        o.b.produce(f"{3 + i}e2", acks=1)
    o.b.r.hw = 3
    assert not o.joins(3), "complete, but never seen at the log end"
    assert o.joins(6, 2)


def test_rule_2_not_below_the_high_watermark() -> None:
    o = Outsider()
    o.b.fetch("n2", 3, 1)
    o.b.produce("3e2", acks=1)
    o.b.fetch("n3", 4, 2)  # caught up once ...
    o.b.controller_says(Error.INELIGIBLE_REPLICA, to=o.b.proposals()[0], at=2)
    o.b.produce("4e2", acks=1)
    o.b.fetch("n2", 5, 2)
    assert o.b.r.hw == 5
    assert not o.joins(4, 2), "... within the lag, at the epoch's start, yet 4e2 is committed"


def test_rule_3_not_below_the_start_of_the_leaders_epoch() -> None:
    """KAFKA-7128: the new leader's own HW (0) is older than the true one (3)."""
    o = Outsider()
    assert o.b.r.hw == 0
    o.b.sleep(10)
    o.b.fetch("n3", 3, 1)
    (wish,) = o.b.proposals()
    o.b.controller_says(Error.INELIGIBLE_REPLICA, to=wish, at=2)
    assert not o.joins(2, 1), "caught up within the lag, above the HW, but not where epoch 2 began"
    assert o.joins(3, 1)


def test_rule_4_fetches_of_an_older_epoch_do_not_count() -> None:
    o = Outsider()
    o.b.fetch("n3", 3, 1)
    o.b.metadata("n1", 3, "n1 n2", at=5)
    assert o.b.r.peers == {}, "everybody is unknown again"
    assert not o.joins(3, 1, epoch=2), "refused: it was sent in the epoch before"
    assert o.joins(3, 1)


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ({"fenced": True}, "fenced"),
        ({"epoch": 203}, "the fetch is of a process before the registered one"),
        ({"epoch": 50}, "the fetch is of a process this image does not know yet"),
    ],
)
def test_rule_5_only_the_registered_active_process(image: dict[str, int], why: str) -> None:
    o = Outsider()
    o.b.broker("n3", **image)  # type: ignore[arg-type]
    assert not o.joins(), why


def test_a_broker_that_is_no_replica_never_joins() -> None:
    o = Outsider()
    response = o.b.fetch("n4", 3, 1)
    assert response is not None
    assert response.error is Error.UNKNOWN_LEADER_EPOCH
    assert o.b.proposals() == []


# -- shrinking ------------------------------------------------------------------------------------


class Trio:
    """n1 leads n2 and n3 through time; followers fetch every 100 ms from where they are."""

    def __init__(self, log: str = "0e1") -> None:
        self.b = Bench("n1", log)
        self.b.metadata("n1", 1)
        self.b.sent()

    def pass_time(self, ms: int, **offsets: int | None) -> list[str]:
        """n2=None: n2 fetches nothing. Offsets below zero count from the log end. Proposed sets."""
        proposed = []
        for _ in range(ms // 100):
            for name, offset in offsets.items():
                if offset is not None:
                    at = offset if offset >= 0 else self.b.r.leo + 1 + offset
                    self.b.fetch(name, at, 1 if at else -1)
            self.b.sleep(100)
            proposed += [" ".join(m for m, _ in w.isr) for w in self.b.proposals()]
        return proposed


def test_a_follower_that_keeps_up_stays() -> None:
    t = Trio()
    for i in range(1, 60):
        t.b.produce(f"{i}e1", acks=1)
        assert t.pass_time(100, n2=-1, n3=-1) == []


def test_a_follower_always_one_fetch_behind_stays() -> None:
    """The log grows before each fetch; the last end it could know of is reached every time."""
    t = Trio()
    for i in range(1, 40):
        t.b.produce(f"{i}e1", acks=1)
        assert t.pass_time(100, n2=-1, n3=-2) == []


def test_a_follower_that_makes_no_progress_leaves_after_the_lag() -> None:
    t = Trio("0e1 1e1")
    assert t.pass_time(900, n2=-1, n3=1) == []
    assert t.pass_time(1000, n2=-1, n3=1)[0] == "n1 n2"
    assert t.b.r.maximal_isr == ("n1", "n2", "n3"), "until the controller says so"


def test_a_silent_follower_leaves_after_the_lag() -> None:
    t = Trio()
    assert t.pass_time(500, n2=-1, n3=-1) == []
    t.b.produce("1e1", acks=1)
    assert t.pass_time(900, n2=-1, n3=None) == []
    assert t.pass_time(1000, n2=-1, n3=None)[0] == "n1 n2"


def test_a_silent_follower_at_the_log_end_stays_while_nothing_is_written() -> None:
    t = Trio()
    t.pass_time(100, n2=-1, n3=-1)
    assert t.pass_time(5000, n2=-1, n3=None) == []


def test_a_fresh_leader_waits_for_one_lag_before_it_blames_anyone() -> None:
    """Fluss #3698: nobody has fetched from it yet."""
    b = Bench("n1", "0e1")
    b.ctx.now_us = 77_000_000
    b.metadata("n1", 5)
    b.fetch("n2", 1, 1)
    b.sent()
    b.sleep(990)
    assert b.proposals() == []
    b.sleep(1000)
    assert [m for m, _ in b.proposals()[0].isr] == ["n1", "n2"]


def test_a_leader_removes_lagging_followers_without_any_message() -> None:
    b = Bench("n1", "0e1")
    b.metadata("n1", 1)
    b.sent()
    b.sleep(3000)
    assert [m for m, _ in b.proposals()[0].isr] == ["n1"]


def test_a_leader_never_drops_itself() -> None:
    t = Trio()
    assert t.pass_time(4000, n2=None, n3=None)[0] == "n1"
