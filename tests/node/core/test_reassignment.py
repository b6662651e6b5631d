"""A partition moves to other replicas: grown first, complete when the new ones are in sync.

event                leader  le  pe  replicas, + being added, - being removed, isr, elr
"""

from __future__ import annotations

import pytest

from node.core import election
from node.core.image import PartitionRecord
from node.core.messages import FetchRequest, ReassignReplicas
from tests.support.broker_world import World
from tests.support.controller_desk import Desk
from tests.support.replica_bench import PARTITION

RULES = election.Rules()


def everyone(name: str) -> bool:
    return True


def line(s: PartitionRecord | None) -> str:
    """A record as the examples are written."""
    assert s is not None
    replicas, isr, adding, removing = (
        ",".join(n[1:] for n in of) for of in (s.replicas, s.isr, s.adding, s.removing)
    )
    return (
        f"replicas[{replicas}] adding[{adding}] removing[{removing}] ISR[{isr}] "
        f"L{s.leader[1:]} LE{s.leader_epoch} PE{s.partition_epoch}"
    )


def names(digits: str) -> tuple[str, ...]:
    return tuple(f"n{d}" for d in digits)


# -- the worked examples --------------------------------------------------------------------------


def test_example_1_replaces_one_replica() -> None:
    s = PartitionRecord(
        partition=PARTITION,
        replicas=names("123"),
        isr=names("12"),
        leader="n1",
        leader_epoch=1,
        partition_epoch=2,
        min_isr=2,
    )
    grown = election.reassign(s, names("124"), everyone, RULES)
    assert line(grown) == "replicas[1,2,3,4] adding[4] removing[3] ISR[1,2] L1 LE1 PE3"
    assert grown is not None
    done = election.isr_accepted(grown, names("124"), everyone, RULES)
    assert line(done) == "replicas[1,2,4] adding[] removing[] ISR[1,2,4] L1 LE2 PE4"


def test_example_2_removes_the_whole_isr_and_has_to_wait_for_min_isr_others() -> None:
    """The example's text ends with leader 2; any member of the final ISR may lead, and here it is
    the first in order."""
    s = PartitionRecord(
        partition=PARTITION,
        replicas=names("12345"),
        isr=names("45"),
        leader="n5",
        leader_epoch=1,
        partition_epoch=2,
        min_isr=2,
    )
    begun = election.reassign(s, names("123"), everyone, RULES)
    assert line(begun) == "replicas[1,2,3,4,5] adding[] removing[4,5] ISR[4,5] L5 LE1 PE3"
    assert begun is not None
    one = election.isr_accepted(begun, names("145"), everyone, RULES)
    assert line(one) == "replicas[1,2,3,4,5] adding[] removing[4,5] ISR[1,4,5] L5 LE1 PE4"
    two = election.isr_accepted(one, names("1245"), everyone, RULES)
    assert line(two) == "replicas[1,2,3] adding[] removing[] ISR[1,2] L1 LE2 PE5"


def test_example_2_before_kip_966_needs_one() -> None:
    s = PartitionRecord(
        partition=PARTITION,
        replicas=names("12345"),
        isr=names("45"),
        leader="n5",
        leader_epoch=1,
        partition_epoch=2,
        min_isr=2,
    )
    rules = election.Rules(elr=False)
    begun = election.reassign(s, names("123"), everyone, rules)
    assert begun is not None
    one = election.isr_accepted(begun, names("145"), everyone, rules)
    assert line(one) == "replicas[1,2,3] adding[] removing[] ISR[1] L1 LE2 PE4"


# -- stories at the controller --------------------------------------------------------------------


def five() -> Desk:
    d = Desk(start="n1 n2 n3 n4 n5")
    d.rows.clear()
    d.row_of_replicas("on 1 2 3")
    return d


def test_a_partition_moves_away_altogether() -> None:
    d = five()
    assert d.reassign("n4 n5") == ""
    d.row_of_replicas("to 4 5")
    d.alter(f"n1 n2 n3 n4@{d.epochs['n4']}")
    d.row_of_replicas("4 in sync")
    d.alter(f"n1 n2 n3 n4 n5@{d.epochs['n5']}")
    d.row_of_replicas("5 in sync")
    assert (
        d.table()
        == """
on 1 2 3               n1   1  1  123   +   -   isr 123  elr
to 4 5                 n1   1  2  12345 +45 -123 isr 123  elr
4 in sync              n1   1  3  12345 +45 -123 isr 1234 elr
5 in sync              n4   2  4  45    +   -   isr 45   elr
"""
    )


def test_removal_alone_is_one_record() -> None:
    d = five()
    assert d.reassign("n2 n3") == ""
    d.row_of_replicas("to 2 3")
    assert d.rows[-1] == "to 2 3                 n2   2  2  23    +   -   isr 23   elr"


def test_another_order_is_complete_at_once_and_makes_another_preferred() -> None:
    d = five()
    assert d.reassign("n3 n2 n1") == ""
    d.row_of_replicas("")
    assert d.rows[-1].split() == ["n1", "2", "2", "321", "+", "-", "isr", "321", "elr"]
    assert d.prefer() == ""
    assert d.state.leader == "n3"


def test_removal_below_min_isr_waits() -> None:
    d = five()
    d.alter("n1 n2")
    assert d.reassign("n2 n3") == ""
    d.row_of_replicas("")
    assert d.rows[-1].split() == ["n1", "1", "3", "123", "+", "-1", "isr", "12", "elr"]


def test_a_move_is_cancelled() -> None:
    """Also if a new replica is in sync by then: it is dropped, with a new leader epoch, for it may
    come back with an empty log."""
    d = five()
    d.reassign("n1 n4 n5")
    d.alter(f"n1 n2 n3 n4@{d.epochs['n4']}")
    d.row_of_replicas("4 in sync")
    assert d.reassign("") == ""
    d.row_of_replicas("cancelled")
    assert d.reassign("") == "log-0 is not being moved"
    assert (
        d.table()
        == """
on 1 2 3               n1   1  1  123   +   -   isr 123  elr
4 in sync              n1   1  3  12345 +45 -23 isr 1234 elr
cancelled              n1   2  4  123   +   -   isr 123  elr
"""
    )


def test_a_move_that_a_new_replica_leads_is_cancelled() -> None:
    d = five()
    d.reassign("n4 n5")
    d.alter(f"n1 n2 n3 n4@{d.epochs['n4']}")
    d.fence("n1")
    d.start("n1")
    d.fence("n3")
    d.row_of_replicas("1 and 3 out")
    d.alter(f"n2 n4 n1@{d.epochs['n1']}")
    d.fence("n2")
    d.fence("n1")
    d.row_of_replicas("4 leads")
    assert d.reassign("") == (
        "invalid-request: log-0 cannot go back to n1 n2 n3: 0 of them in sync, 2 needed"
    )
    for name in ("n1", "n2", "n3"):
        d.start(name)
        d.alter(f"{' '.join(d.state.isr)} {name}@{d.epochs[name]}")
    assert d.reassign("") == ""
    d.row_of_replicas("cancelled")
    assert (
        d.table()
        == """
on 1 2 3               n1   1  1  123   +   -   isr 123  elr
1 and 3 out            n2   2  5  12345 +45 -123 isr 24   elr
4 leads                n4   4  8  12345 +45 -123 isr 4    elr 1
cancelled              n1   5 12  123   +   -   isr 123  elr
"""
    )


def test_a_move_is_replaced_by_another() -> None:
    """4 was only wanted by the first move: it goes in any case, when the second is complete and
    when it is cancelled."""
    for end in ("completed", "cancelled"):
        d = five()
        d.reassign("n1 n2 n4")
        d.row_of_replicas("to 1 2 4")
        d.alter("n1 n2")
        assert d.reassign("n1 n2 n5") == ""
        d.row_of_replicas("no, to 1 2 5")
        if end == "completed":
            d.alter(f"n1 n2 n5@{d.epochs['n5']}")
        else:
            d.reassign("")
        d.row_of_replicas(end)
        last = {
            "completed": "completed              n1   2  5  125   +   -   isr 125  elr",
            "cancelled": "cancelled              n1   2  5  123   +   -   isr 12   elr",
        }
        assert (
            d.table()
            == f"""
on 1 2 3               n1   1  1  123   +   -   isr 123  elr
to 1 2 4               n1   1  2  1234  +4  -3  isr 123  elr
no, to 1 2 5           n1   1  4  12345 +45 -34 isr 12   elr
{last[end]}
"""
        )


def test_the_leader_dies_in_the_middle_and_its_successor_completes_the_move() -> None:
    d = five()
    d.reassign("n4 n5")
    d.fence("n1")
    d.row_of_replicas("1 dies")
    d.alter(f"n2 n3 n4@{d.epochs['n4']} n5@{d.epochs['n5']}")
    d.row_of_replicas("4, 5 in sync")
    assert (
        d.table()
        == """
on 1 2 3               n1   1  1  123   +   -   isr 123  elr
1 dies                 n2   2  3  12345 +45 -123 isr 23   elr
4, 5 in sync           n4   3  4  45    +   -   isr 45   elr
"""
    )


def test_a_copy_of_the_command_changes_nothing() -> None:
    d = five()
    assert d.reassign("n1 n4") == ""
    before = d.state
    assert d.reassign("n1 n4") == "log-0 is on n1 n4, or on its way there, already"
    assert d.state == before


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("n1 n9", "invalid-request: n9 never registered as a broker"),
        ("n1 n2 n1", "invalid-request: each replica is named once, not n1 n2 n1"),
    ],
)
def test_a_move_that_cannot_be(target: str, why: str) -> None:
    d = five()
    before = d.state
    assert d.reassign(target) == why
    assert d.state == before


# -- in a whole cluster ---------------------------------------------------------------------------


def cluster() -> World:
    world = World(7, brokers=5)
    world.run_for(1500)
    world.create_topic()
    world.run_for(500)
    for i in range(10):
        world.produce("n1", "log-0", i, b"%d" % i)
    world.run_for(100)
    return world


def move(world: World, replicas: str) -> None:
    request = ReassignReplicas(partition="log-0", replicas=tuple(replicas.split()))
    world.send("v1", request)


def test_a_log_moves_to_other_brokers_under_writes_and_leaves_nothing_behind() -> None:
    world = cluster()
    before = world.nodes["n1"].replicas["log-0"].replicas
    assert before == ("n1", "n2", "n3")
    move(world, "n4 n5 n3")
    for i in range(10, 60):
        world.produce(world.leader("log-0") or "n4", "log-0", i, b"%d" % i)
        world.run_for(20)
    world.run_for(2000)
    assert world.leader("log-0") == "n4"
    for gone in ("n1", "n2"):
        assert "log-0" not in world.nodes[gone].replicas
        assert world.payloads(gone, "log-0") == []
    log = world.payloads("n4", "log-0")
    assert world.payloads("n5", "log-0") == world.payloads("n3", "log-0") == log
    done = [corr for corr, answer in world.answers().items() if not answer.error]
    assert len(done) > 40, "the partition stayed writable"
    assert {b"%d" % corr for corr in done} <= set(log)


def test_a_leader_appends_and_is_dropped_by_messages_of_one_turn() -> None:
    """It stood still meanwhile, and must serve nobody for the log that is gone."""
    world = cluster()
    world.pause("n1")
    move(world, "n2 n3")
    world.run_for(50)
    world.resume("n1")  # it has the record now, and does not know that it is committed
    world.pause("n1")
    world.hold = lambda source, to, message: (source, to) == ("v1", "n1")
    world.produce("n1", "log-0", 77, b"late")
    world.run_for(20)
    world.hold = lambda *_: False
    world.release()
    world.run_for(20)
    world.produce("n1", "log-0", 78, b"later")
    world.run_for(20)
    assert world.nodes["n1"].replicas["log-0"].role == "leader"
    world.resume("n1")
    assert "log-0" not in world.nodes["n1"].replicas
    world.run_for(1000)
    assert world.leader("log-0") == "n2"
    assert world.answers()[77].error
    assert world.answers()[78].error


def test_a_broker_that_was_down_deletes_the_logs_that_moved() -> None:
    world = cluster()
    world.kill("n2")
    world.run_for(2000)
    move(world, "n1 n3 n4")
    world.run_for(2000)
    assert world.nodes["n1"].replicas["log-0"].replicas == ("n1", "n3", "n4")
    assert world.payloads("n2", "log-0") != [], "it is down and knows nothing yet"
    world.start("n2")
    world.run_for(1000)
    assert world.payloads("n2", "log-0") == []


def test_a_fetch_of_a_dropped_log_does_not_count_for_the_empty_one() -> None:
    """n4 was added, had caught up to the log's end, was dropped and added again: same process,
    empty log. A late fetch of its former log must not take it into the ISR."""
    world = cluster()
    late: list[FetchRequest] = []

    def from_n4(source: str, to: str, message: object) -> bool:
        asks = isinstance(message, FetchRequest) and source == "n4"
        if asks and message.partition == "log-0" and message.offset == 10:  # type: ignore[union-attr]
            late.append(message)  # type: ignore[arg-type]
            return True
        return False

    world.drop = from_n4
    move(world, "n1 n2 n3 n4")
    world.run_for(300)
    assert late, "n4 had everything"
    move(world, "")
    world.run_for(300)
    assert "log-0" not in world.nodes["n4"].replicas
    world.drop = lambda source, to, message: (
        isinstance(message, FetchRequest) and source == "n4" and message.partition == "log-0"
    )
    move(world, "n1 n2 n3 n4")
    world.run_for(300)
    assert world.nodes["n4"].replicas["log-0"].leo == 0
    world.drop = lambda *_: False
    world._push(world.now_us + 1, "mail", "n1", ("n4", late[0], None))
    world.run_for(1)
    assert world.nodes["n1"].replicas["log-0"].maximal_isr == ("n1", "n2", "n3")
    world.run_for(2000)
    assert world.payloads("n4", "log-0") == world.payloads("n1", "log-0")
