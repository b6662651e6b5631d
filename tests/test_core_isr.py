"""In-sync set and high watermark: the arithmetic, the rules of growing and shrinking, and what a
leader does with every answer the controller can give."""

from __future__ import annotations

from itertools import product

import pytest
from core_bench import Bench
from core_chaos import ChaosWorld

from node.core import leader
from node.core.isr import isr_high_watermark, majority_high_watermark, may_expand
from node.core.messages import AlterPartition, AlterPartitionResponse, Error, FetchRequest

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
def test_what_every_member_has(
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
def test_what_a_majority_has(ends: list[int], expected: int | None) -> None:
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
        "", "fenced-leader-epoch", "unknown-leader-epoch", "stale-broker-epoch",
        "unknown-leader-epoch",
    ]  # fmt: skip
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


def test_who_is_no_replica_never_joins() -> None:
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


def test_who_keeps_up_stays() -> None:
    t = Trio()
    for i in range(1, 60):
        t.b.produce(f"{i}e1", acks=1)
        assert t.pass_time(100, n2=-1, n3=-1) == []


def test_who_is_always_one_fetch_behind_stays() -> None:
    """The log grows before each fetch; the last end it could know of is reached every time."""
    t = Trio()
    for i in range(1, 40):
        t.b.produce(f"{i}e1", acks=1)
        assert t.pass_time(100, n2=-1, n3=-2) == []


def test_who_stands_still_goes_after_the_lag() -> None:
    t = Trio("0e1 1e1")
    assert t.pass_time(900, n2=-1, n3=1) == []
    assert t.pass_time(1000, n2=-1, n3=1)[0] == "n1 n2"
    assert t.b.r.maximal_isr == ("n1", "n2", "n3"), "until the controller says so"


def test_who_is_silent_goes_after_the_lag() -> None:
    t = Trio()
    assert t.pass_time(500, n2=-1, n3=-1) == []
    t.b.produce("1e1", acks=1)
    assert t.pass_time(900, n2=-1, n3=None) == []
    assert t.pass_time(1000, n2=-1, n3=None)[0] == "n1 n2"


def test_who_is_silent_at_the_log_end_stays_while_nothing_is_written() -> None:
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


def test_a_leader_looks_for_laggards_even_if_nobody_speaks_to_it() -> None:
    b = Bench("n1", "0e1")
    b.metadata("n1", 1)
    b.sent()
    b.sleep(3000)
    assert [m for m, _ in b.proposals()[0].isr] == ["n1"]


def test_a_leader_never_drops_itself() -> None:
    t = Trio()
    assert t.pass_time(4000, n2=None, n3=None)[0] == "n1"


# -- the answer of the controller -----------------------------------------------------------------


class Asking:
    """n1 leads n2 with HW 3 of 3, and has just proposed n3."""

    def __init__(self) -> None:
        self.b = Bench("n1", "0e1 1e1 2e1")
        self.b.metadata("n1", 2, "n1 n2", at=5)
        self.b.fetch("n2", 3, 1)
        self.b.sent()
        self.b.fetch("n3", 3, 1)
        (self.wish,) = self.b.proposals()
        assert (self.wish.leader_epoch, self.wish.partition_epoch) == (2, 5)

    def state(self) -> tuple[str, str, int, bool]:
        """(ISR, maximal ISR, partition epoch, whether a proposal is in flight)."""
        r = self.b.r
        return " ".join(r.isr), " ".join(r.maximal_isr), r.partition_epoch, bool(r.pending_alter)


PENDING = ("n1 n2", "n1 n2 n3", 5, True)


def test_accepted() -> None:
    a = Asking()
    assert a.state() == PENDING
    a.b.controller_says(to=a.wish, isr="n1 n2 n3", at=6)
    assert a.state() == ("n1 n2 n3", "n1 n2 n3", 6, False)


def test_accepted_in_metadata_before_the_answer() -> None:
    """KAFKA-12686: the answer comes second and says nothing new."""
    a = Asking()
    a.b.metadata("n1", 2, "n1 n2 n3", at=6)
    assert a.state() == ("n1 n2 n3", "n1 n2 n3", 6, False)
    a.b.metadata("n1", 2, "n1 n2", at=7)
    a.b.controller_says(to=a.wish, isr="n1 n2 n3", at=6)
    assert a.state() == ("n1 n2", "n1 n2", 7, False)


def test_the_answer_before_the_metadata() -> None:
    a = Asking()
    a.b.controller_says(to=a.wish, isr="n1 n2 n3", at=6)
    a.b.metadata("n1", 2, "n1 n2", at=5)
    assert a.state() == ("n1 n2 n3", "n1 n2 n3", 6, False), "metadata of the past"


def test_refused_for_good() -> None:
    a = Asking()
    a.b.controller_says(Error.INELIGIBLE_REPLICA, to=a.wish, at=6)
    assert a.state() == ("n1 n2", "n1 n2", 6, False), "no copy of the proposal can be accepted now"


@pytest.mark.parametrize(
    "error",
    [
        Error.NOT_CONTROLLER, Error.INVALID_UPDATE_VERSION, Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_PARTITION, Error.INVALID_REQUEST, Error.STALE_BROKER_EPOCH,
    ],
)  # fmt: skip
def test_refused_in_a_way_that_proves_nothing(error: Error) -> None:
    """Another copy of the proposal may have been accepted: who might be in is waited for."""
    a = Asking()
    a.b.controller_says(error, to=a.wish, at=5)
    assert a.state() == PENDING
    a.b.produce("3e2", acks=1)
    a.b.fetch("n2", 4, 2)
    assert a.b.r.hw == 3, "n3 has only 3"


def test_no_answer_is_asked_for_again_with_the_same_words() -> None:
    a = Asking()
    a.b.sleep(450)
    again = a.b.proposals()
    assert again == [a.wish] * 4
    assert a.state() == PENDING


def test_one_proposal_at_a_time() -> None:
    b = Bench("n1", "0e1")
    b.metadata("n1", 2, "n1")
    b.sent()
    b.fetch("n2", 1, 1)
    b.fetch("n3", 1, 1)
    assert [[m for m, _ in w.isr] for w in b.proposals()] == [["n1", "n2"]]
    assert b.r.maximal_isr == ("n1", "n2")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"epoch": 1, "at": 6}, "of an older leader epoch"),
        ({"epoch": 3, "at": 6}, "of a newer leader epoch, which metadata will bring"),
        ({"at": 5}, "of the partition epoch known already"),
        ({"at": 4}, "of an older partition epoch"),
    ],
)
def test_a_stale_answer_is_ignored(answer: dict[str, int], why: str) -> None:
    a = Asking()
    a.b.controller_says(to=a.wish, isr="n1 n2 n3", **answer)  # type: ignore[arg-type]
    assert a.state() == PENDING, why


def test_an_answer_to_the_proposal_before_is_ignored() -> None:
    a = Asking()
    a.b.controller_says(Error.INELIGIBLE_REPLICA, to=a.wish, at=6)
    a.b.fetch("n3", 3, 1)
    (second,) = a.b.proposals()
    assert second.partition_epoch == 6
    a.b.controller_says(Error.INELIGIBLE_REPLICA, to=a.wish, at=6)
    assert a.state() == ("n1 n2", "n1 n2 n3", 6, True)


def test_who_lost_the_leadership_has_no_proposal() -> None:
    a = Asking()
    a.b.metadata("n2", 3, "n1 n2", at=6)
    a.b.controller_says(to=a.wish, isr="n1 n2 n3", at=6, epoch=3)
    assert a.b.r.pending_alter is None
    assert a.b.r.isr == ("n1", "n2")


# -- two stories in a whole cluster ---------------------------------------------------------------


def is_alter(source: str, to: str, message: object) -> bool:
    return isinstance(message, AlterPartition)


def cluster_with_n3_out() -> ChaosWorld:
    """n1 leads; n3 was cut off from it until it left the ISR."""
    world = ChaosWorld(1)
    world.run_for(500)
    world.create_topic()
    assert world.leader("log-0") == "n1"
    world.cut |= {("n1", "n3"), ("n3", "n1")}
    world.produce("n1", "log-0", 0, b"before")
    world.run_for(3000)
    assert world.nodes["n1"].replicas["log-0"].isr == ("n1", "n2")
    return world


def test_whoever_might_be_in_the_isr_is_waited_for() -> None:
    """The loss of KIP-966's book, 6.5.2, step by step; with the maximal ISR it does not happen."""
    world = cluster_with_n3_out()
    r1 = world.nodes["n1"].replicas["log-0"]
    # n3 catches up; the proposal to take it in is on its way, unseen by the controller.
    world.hold = is_alter
    world.cut.clear()
    world.run_for(500)
    assert len({m for _, _, m, _ in world.held}) == 1
    assert r1.maximal_isr == ("n1", "n2", "n3")
    # n1 appends ten more; n3 gets none of them, n2 all.
    world.cut |= {("n1", "n3"), ("n3", "n1")}
    world.mail.clear()
    for i in range(10):
        world.produce("n1", "log-0", 1 + i, b"%d" % i)
    world.run_for(300)
    assert world.nodes["n2"].replicas["log-0"].leo == 11
    assert r1.hw == 1, "n3 may be in by now"
    assert world.answers() == {}
    # The controller takes n3 in; n1 and n2 die; n3 leads with one record.
    world.release()
    world.run_for(10)
    assert world.nodes["v1"].ctx.image.partitions["log-0"].isr == ("n1", "n2", "n3")
    world.kill("n1")
    world.kill("n2")
    world.run_for(4000)
    assert world.leader("log-0") == "n3"
    assert [a.error for a in world.answers().values() if not a.error] == [], "and nobody was told"


def test_a_late_copy_of_a_refused_proposal_is_not_accepted() -> None:
    """n3 dies while the proposal is on its way: refused. It comes back as the same process as far
    as the proposal can tell; the second copy of the proposal must not take it in."""
    world = cluster_with_n3_out()
    world.hold = is_alter
    world.cut.clear()
    world.run_for(600)
    copies = [h for h in world.held if isinstance(h[2], AlterPartition)]
    assert len(copies) > 1
    # n3 is paused until it is fenced; the first copy arrives then and is refused.
    world.pause("n3")
    world.run_for(1700)
    world.held = copies[:1]
    world.release()
    world.hold = lambda source, to, message: isinstance(message, FetchRequest) and source == "n3"
    world.run_for(100)
    r1 = world.nodes["n1"].replicas["log-0"]
    assert r1.maximal_isr == ("n1", "n2"), "refused for good"
    # n3 wakes up and is unfenced; the leader commits without it; the second copy arrives.
    world.resume("n3")
    world.run_for(300)
    assert world.nodes["v1"].ctx.image.is_active("n3")
    world.produce("n1", "log-0", 1, b"without n3")
    world.run_for(100)
    assert not world.answers()[1].error
    held, world.held = world.held, copies[1:]
    world.release()
    world.run_for(50)
    assert world.nodes["v1"].ctx.image.partitions["log-0"].isr == ("n1", "n2")
    world.held = held
    world.heal()
    world.run_for(3000)
    assert world.payloads("n3", "log-0") == [b"before", b"without n3"]


def test_a_lost_answer_is_made_up_for() -> None:
    """KAFKA-14144: the answer to the proposal never comes, the metadata does."""
    world = cluster_with_n3_out()
    world.drop = lambda source, to, message: isinstance(message, AlterPartitionResponse)
    world.cut.clear()
    world.run_for(1000)
    r1 = world.nodes["n1"].replicas["log-0"]
    assert r1.isr == r1.maximal_isr == ("n1", "n2", "n3")
    assert r1.pending_alter is None


def test_a_zombie_acknowledges_nothing() -> None:
    """The leader is cut off from everybody but its client, and does not know."""
    world = ChaosWorld(2)
    world.run_for(500)
    world.create_topic()
    world.run_for(200)
    world.isolate("n1")
    world.mail.clear()
    world.produce("n1", "log-0", 1, b"to the zombie")
    world.run_for(2500)
    world.produce("n2", "log-0", 2, b"to the leader")
    world.run_for(200)
    assert world.nodes["n1"].replicas["log-0"].role == "leader"
    assert not world.answers()[2].error
    world.run_for(3000)
    assert (world.answers()[1].error, world.answers()[1].appended) == (
        Error.REQUEST_TIMED_OUT, True,
    )  # fmt: skip
    world.heal()
    world.run_for(3000)
    assert world.payloads("n1", "log-0") == world.payloads("n2", "log-0") == [b"to the leader"]


def test_a_leader_that_hears_of_two_changes_at_once_starts_anew() -> None:
    """Metadata arrives merged: leadership lost and regained looks like one step."""
    b = Bench("n1", "0e1")
    b.metadata("n1", 1)
    b.produce("1e1", corr=7)
    b.metadata("n1", 3, "n1 n3", at=9)
    lost = [m for _, m, _ in b.sent() if getattr(m, "corr", 0) == 7]
    assert [(m.error, m.appended) for m in lost] == [(Error.LEADERSHIP_LOST, True)]  # type: ignore[union-attr]
    assert (b.r.role, b.r.leso, b.r.peers, b.r.maximal_isr) == ("leader", 2, {}, ("n1", "n3"))
    assert leader.tick(b.ctx, b.r) > b.ctx.now_us
