"""A broker that is asked to stop first transfers leadership, leaves the ISR, and then may end."""

from __future__ import annotations

import pytest

from node.core.membership import LONGEST_HANDOVER_US
from node.core.messages import Error, Heartbeat, HeartbeatResponse
from node.formats.trace import STOPPED
from tests.support.broker_world import World
from tests.support.controller_desk import Desk
from tests.support.replica_bench import PARTITION


def leave(d: Desk, name: str) -> HeartbeatResponse:
    return d.beat(name, want_shutdown=True)


def test_the_controller_lets_a_broker_go_when_all_others_know() -> None:
    d = Desk()
    answer = leave(d, "n1")
    d.row("1 wants to stop")
    assert not answer.should_shutdown
    end = d.node.quorum.r.leo
    d.beat("n2", offset=end)
    d.beat("n3", offset=end - 1)
    assert not leave(d, "n1").should_shutdown, "n3 does not know yet"
    d.beat("n3", offset=end)
    answer = leave(d, "n1")
    assert (answer.should_shutdown, answer.fenced) == (True, True)
    d.row("and may")
    assert leave(d, "n1").should_shutdown, "also if the answer was lost"
    d.enroll("n1")
    d.beat("n1")
    d.row("1 is back at once")
    assert d.node.ctx.image.is_active("n1")
    assert (
        d.table()
        == """
topic made                 n1   1  1  isr 123  elr      lost
1 wants to stop            n2   2  2  isr 23   elr      lost
and may                    n2   2  2  isr 23   elr      lost
1 is back at once          n2   2  2  isr 23   elr      lost
"""
    )


def test_all_stop_one_after_the_other_and_the_last_does_not_wait() -> None:
    d = Desk()
    for name in ("n1", "n2", "n3"):
        leave(d, name)
        for other in d.alive:
            d.beat(other, want_shutdown=d.node.ctx.image.brokers[other].stopping)
        assert leave(d, name).should_shutdown
        d.row(f"{name[1:]} stopped")
    assert (
        d.table()
        == """
topic made                 n1   1  1  isr 123  elr      lost
1 stopped                  n2   2  2  isr 23   elr      lost
2 stopped                  n3   3  3  isr 3    elr 2    lost
3 stopped                  -    4  4  isr      elr 23   lost
"""
    )


def test_a_broker_that_wants_to_stop_may_not_join_an_isr() -> None:
    """KIP-841."""
    d = Desk()
    d.alter("n1 n2")
    leave(d, "n3")
    assert d.alter("n1 n2 n3").error is Error.INELIGIBLE_REPLICA
    assert "n3" not in d.state.isr


def test_a_late_heartbeat_does_not_bring_a_stopped_broker_back() -> None:
    d = Desk()
    leave(d, "n1")
    for name in ("n2", "n3"):
        d.beat(name)
    assert leave(d, "n1").should_shutdown
    assert d.beat("n1").fenced
    assert not d.node.ctx.image.is_active("n1")


def test_a_fenced_broker_may_go_at_once() -> None:
    d = Desk()
    d.fence("n1")
    assert leave(d, "n1").should_shutdown


def test_another_controller_carries_on() -> None:
    """It does not know when the broker left, only that it did: all must know what it found."""
    d = Desk()
    leave(d, "n1")
    d.restart()
    assert not leave(d, "n1").should_shutdown, "who knows what n2 and n3 have applied"
    for name in ("n2", "n3"):
        d.beat(name)
    assert leave(d, "n1").should_shutdown


def test_a_broker_that_learns_nothing_is_as_good_as_silent() -> None:
    """n3's heartbeats arrive, but nothing reaches it: it does not know who leads."""
    d = Desk()
    d.beat("n3", offset=d.node.quorum.r.leo)
    d.alter("n1 n2 n3")
    deaf_at = d.node.quorum.r.leo - 1
    d.alive.remove("n3")
    for _ in range(17):
        d.beat("n3", offset=deaf_at)
        d.wake(100)
    assert d.node.ctx.image.brokers["n3"].fenced
    d.row("3 is deaf")
    assert d.rows[-1].split()[-4:] == ["isr", "12", "elr", "lost"]
    assert d.beat("n3", offset=deaf_at).fenced, "and stays so until it hears of that"
    assert not d.beat("n3", offset=d.node.quorum.r.leo).fenced


# -- in a whole cluster ---------------------------------------------------------------------------


def cluster(protocol: str = "kafka", voters: int = 1) -> World:
    world = World(3, protocol=protocol, voters=voters)
    world.run_for(1500)
    world.create_topic(min_isr=1)
    world.run_for(500)
    return world


def stopped(world: World, name: str) -> int | None:
    """When it stopped, in microseconds."""
    found = [e["t_us"] for e in world.trace if e["event"] == STOPPED and e["node"] == name]
    return found[-1] if found else None


def test_a_leader_is_missed_for_milliseconds_not_for_a_session() -> None:
    world = cluster()
    assert world.leader(PARTITION) == "n1"
    world.stop("n1")
    world.run_for(20)
    assert world.leader(PARTITION) == "n2"
    world.produce("n2", PARTITION, 1, b"x")
    world.run_for(20)
    assert world.answers()[1].error is Error.NONE
    assert stopped(world, "n1") is None, "n3 tells what it knows with its next heartbeat"
    world.run_for(250)
    assert stopped(world, "n1") is not None
    world.start("n1")
    world.run_for(1000)
    assert world.nodes["n2"].replicas[PARTITION].isr == ("n1", "n2", "n3")


def test_without_a_controller_a_broker_waits_no_longer_than_it_must() -> None:
    world = cluster()
    world.kill("v1")
    asked_us = world.now_us
    world.stop("n1")
    world.run_for(3000)
    done_us = stopped(world, "n1")
    assert done_us is not None
    assert done_us - asked_us == min(1_500_000, LONGEST_HANDOVER_US)


def test_the_controller_fails_over_while_a_broker_takes_leave() -> None:
    world = cluster(voters=3)
    controller = world.nodes["n1"].ctx.controller
    world.drop = lambda source, to, message: isinstance(message, HeartbeatResponse) and to == "n1"
    world.stop("n1")
    world.run_for(100)
    world.kill(controller)
    world.drop = lambda *_: False
    world.run_for(1500)
    assert stopped(world, "n1") is not None
    assert world.leader(PARTITION) == "n2"


@pytest.mark.parametrize("protocol", ["high-watermark", "kip-101", "kip-279"])
def test_where_a_restart_changes_nothing_nothing_is_handed_over(protocol: str) -> None:
    world = cluster(protocol)
    sent: list[object] = []
    world.drop = lambda source, to, message: bool(
        isinstance(message, Heartbeat) and message.want_shutdown and sent.append(message)
    )
    world.stop("n1")
    world.start("n1")
    world.run_for(500)
    assert sent == []
    assert world.leader(PARTITION) == "n1"


def test_a_broker_that_has_not_registered_stops_at_once() -> None:
    world = World(3)
    world.stop("n1")
    assert stopped(world, "n1") == world.now_us
