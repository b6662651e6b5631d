"""A partition moves to other replicas: the worked examples, and late messages of one that moved.

The stories are scripts (`scripts/reassignment.txt`, `scripts/moves.txt`).
"""

from __future__ import annotations

from node.core import election
from node.core.image import PartitionRecord
from node.core.messages import FetchRequest, ReassignReplicas
from tests.support.stage_replica import PARTITION
from tests.support.world import World

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
    world.ask("v1", request)


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
    world.deliver("n4", "n1", late[0], None)
    world.run_for(1)
    assert world.nodes["n1"].replicas["log-0"].maximal_isr == ("n1", "n2", "n3")
    world.run_for(2000)
    assert world.payloads("n4", "log-0") == world.payloads("n1", "log-0")
