"""What a leader does with every answer the controller can give to its proposal of an ISR."""

from __future__ import annotations

import pytest

from node.core import leader
from node.core.messages import AlterPartition, AlterPartitionResponse, Error, FetchRequest
from tests.support.broker_world import World
from tests.support.replica_bench import Bench

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
        Error.NOT_CONTROLLER,
        Error.INVALID_UPDATE_VERSION,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_PARTITION,
        Error.INVALID_REQUEST,
        Error.STALE_BROKER_EPOCH,
    ],
)
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


def test_a_former_leader_has_no_proposal() -> None:
    a = Asking()
    a.b.metadata("n2", 3, "n1 n2", at=6)
    a.b.controller_says(to=a.wish, isr="n1 n2 n3", at=6, epoch=3)
    assert a.b.r.pending_alter is None
    assert a.b.r.isr == ("n1", "n2")


# -- two stories in a whole cluster ---------------------------------------------------------------


def is_alter(source: str, to: str, message: object) -> bool:
    return isinstance(message, AlterPartition)


def cluster_with_n3_out() -> World:
    """n1 leads; n3 was cut off from it until it left the ISR."""
    world = World(1)
    world.run_for(500)
    world.create_topic()
    assert world.leader("log-0") == "n1"
    world.cut |= {("n1", "n3"), ("n3", "n1")}
    world.produce("n1", "log-0", 0, b"before")
    world.run_for(3000)
    assert world.nodes["n1"].replicas["log-0"].isr == ("n1", "n2")
    return world


def test_the_high_watermark_waits_for_every_possible_member() -> None:
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
    world.hold = lambda source, to, message: (
        isinstance(message, FetchRequest) and source == "n3" and message.partition == "log-0"
    )
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
    world = World(2)
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
        Error.REQUEST_TIMED_OUT,
        True,
    )
    world.heal()
    world.run_for(3000)
    assert world.payloads("n1", "log-0") == world.payloads("n2", "log-0") == [b"to the leader"]


def test_a_leader_that_hears_of_two_changes_at_once_starts_again() -> None:
    """Metadata arrives merged: leadership lost and regained looks like one step."""
    b = Bench("n1", "0e1")
    b.metadata("n1", 1)
    b.produce("1e1", corr=7)
    b.metadata("n1", 3, "n1 n3", at=9)
    lost = [m for _, m, _ in b.sent() if getattr(m, "corr", 0) == 7]
    assert [(m.error, m.appended) for m in lost] == [(Error.LEADERSHIP_LOST, True)]  # type: ignore[union-attr]
    assert (b.r.role, b.r.leso, b.r.peers, b.r.maximal_isr) == ("leader", 2, {}, ("n1", "n3"))
    assert leader.tick(b.ctx, b.r) > b.ctx.now_us
