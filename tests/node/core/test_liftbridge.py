"""Liftbridge, as documented: whole nodes in virtual time, as printed conversations.

`Conversation` prints the messages and decisions of the brokers, one line each, without times. The
defects of Liftbridge's code, which are bugs, are in `test_liftbridge_defects.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from node.core import idle, protocol
from node.core.messages import (
    AnyMessage,
    EpochEndRequest,
    EpochEndResponse,
    FetchRequest,
    FetchResponse,
    PartitionNotification,
    ReportLeader,
)
from node.core.replica import Replica
from node.formats import wire as wire_format
from node.formats.errors import UsageError
from node.formats.trace import PARTITION, REPORTED, TRUNCATED, WITNESSED
from tests.support.broker_world import World

LOG = "log-0"


class Conversation(World):
    """Three brokers; `lines` is what was said about `log-0` since `listen`."""

    def __init__(self, *, protocol: str = "liftbridge", partitions: int = 1, **more: Any) -> None:
        self.lines: list[str] = []
        self.lost: type[AnyMessage] | None = None
        super().__init__(latency_us=(500, 500), protocol=protocol, check_invariants=False, **more)
        self.run_for(500)
        self.create_topic(partitions=partitions)
        self.run_for(500)
        self.first = self.leader(LOG) or ""
        self.others = [n for n in self.broker_names if n != self.first]

    def listen(self) -> None:
        self.lines.clear()
        self.trace.clear()

    def _post(self, source: str, to: str, message: AnyMessage, body: bytes | None) -> None:
        if self.lost is not None and isinstance(message, self.lost):
            return
        super()._post(source, to, message, body)
        if getattr(message, "partition", LOG) == LOG:
            self._say(source, to, message, body)

    def _say(self, source: str, to: str, message: AnyMessage, body: bytes | None) -> None:
        match message:
            case FetchRequest():
                self.lines.append(f"{source} -> {to}: fetch from {message.offset}")
            case FetchResponse():
                empty = body is not None and len(body) == 16
                what = "16 bytes" if empty else "records"
                self.lines.append(f"{source} -> {to}: {message.error.value or what}")
            case PartitionNotification():
                self.lines.append(f"{source} -> {to}: new data")
            case EpochEndRequest():
                self.lines.append(f"{source} -> {to}: where does my last epoch end?")
            case EpochEndResponse():
                self.lines.append(f"{source} -> {to}: {message.error.value or message.end_offset}")

    def decided(self) -> list[str]:
        """Reports, and what came of them, in the controller's words."""
        lines = []
        for e in self.trace:
            if e["event"] == REPORTED:
                lines.append(f"{e['node']} reports {e['leader']}")
            elif e["event"] == WITNESSED:
                lines.append(f"witnesses: {' '.join(e['witnesses'])} of {' '.join(e['isr'])}")
            elif e["event"] == PARTITION:
                lines.append(f"{e['leader']} leads, ISR {' '.join(e['isr'])}")
            elif e["event"] == TRUNCATED:
                lines.append(f"{e['node']} cuts from {e['from_leo']} to {e['leo']}: {e['reason']}")
        return lines

    def epochs(self) -> tuple[int, int]:
        """(leader epoch, partition epoch) of log-0 as the controller has them."""
        for node in self.nodes.values():
            if node.controller is not None:
                state = node.controller.image.partitions[LOG]
                return state.leader_epoch, state.partition_epoch
        raise AssertionError("no controller")

    def report(self, replica: str, **other: Any) -> None:
        """A report of the present leader, put on the wire by hand."""
        leader_epoch, partition_epoch = self.epochs()
        fields = {
            "partition": LOG,
            "replica": replica,
            "leader": self.first,
            "leader_epoch": leader_epoch,
            "partition_epoch": partition_epoch,
        }
        for voter in self.voter_names:
            self.send(voter, ReportLeader(**(fields | other)))
        self.run_for(5)

    def write(self, to: str, corr: int) -> None:
        self.produce(to, LOG, corr, b"x%d" % corr)

    def acknowledged(self, corr: int) -> bool:
        answer = self.answers().get(corr)
        return answer is not None and not answer.error


# -- replication ----------------------------------------------------------------------------------


def until_a_fetch(world: Conversation, ms: int = 300) -> list[str]:
    """What is said until the first follower wakes from its sleep."""
    heard: list[str] = []
    for _ in range(ms):
        world.run_for(1)
        if world.lines and "fetch" in world.lines[0]:
            break
        heard += world.lines
        world.lines.clear()
    return heard


def test_new_data_wakes_the_followers_and_then_all_are_silent() -> None:
    world = Conversation(seed=1)
    until_a_fetch(world)
    world.run_for(250)
    until_a_fetch(world)
    world.run_for(10)
    f, (a, b) = world.first, world.others
    world.listen()
    world.write(f, 1)
    world.run_for(20)
    assert world.acknowledged(1)
    assert sorted(world.lines[:2]) == [f"{f} -> {a}: new data", f"{f} -> {b}: new data"]
    for each in (a, b):
        mine = [line for line in world.lines if each in line]
        assert mine == [
            f"{f} -> {each}: new data",
            f"{each} -> {f}: fetch from 0",
            f"{f} -> {each}: records",
            f"{each} -> {f}: fetch from 1",
            f"{f} -> {each}: 16 bytes",
        ]
    world.lines.clear()
    world.run_for(200)
    assert world.lines == [], "caught up: nobody asks before a sleep of at least 240 ms is over"
    world.run_for(100)
    fetches = [line for line in world.lines if "fetch" in line]
    assert sorted(fetches) == [f"{a} -> {f}: fetch from 1", f"{b} -> {f}: fetch from 1"]


def test_a_lost_notification_costs_one_sleep_and_no_more() -> None:
    world = Conversation(seed=2)
    world.lost = PartitionNotification
    world.write(world.first, 1)
    world.run_for(310)
    assert world.acknowledged(1)


def test_news_that_overtakes_the_empty_answer_is_not_slept_over() -> None:
    """The record is appended after the leader answered and before the follower has the answer."""
    world = Conversation(seed=3)
    f, (a, _) = world.first, world.others
    r = world.nodes[a].replicas[LOG]
    world.lost = FetchResponse
    while not r.fetching.outstanding:
        world.run_for(1)
    empty = FetchResponse(partition=LOG, request_epoch=r.leader_epoch, leader=f)
    world.listen()
    for late, body in ((PartitionNotification(partition=LOG), None), (empty, prefix(r, 0))):
        world._push(world.now_us + 1, "mail", a, (f, late, body))
        world.run(world.now_us + 2)
    assert world.lines == [f"{a} -> {f}: fetch from 0"]


def prefix(r: Replica, hw: int) -> bytes:
    """The 16 bytes of an answer."""
    return wire_format.fetch_body(r.leader_epoch, hw, [])


def test_a_sleep_longer_than_the_lag_is_refused() -> None:
    with pytest.raises(UsageError, match="idle_wait_ms is 1000, but under liftbridge it must be"):
        idle.check(protocol.LIFTBRIDGE, idle_wait_ms=1000, lag_ms=1000)
    idle.check(protocol.KAFKA, idle_wait_ms=1000, lag_ms=1000)


def test_an_idle_cluster_sends_a_third_of_the_messages_of_a_long_poll() -> None:
    said = {}
    for name in ("liftbridge", "kip-279"):
        world = Conversation(seed=4, protocol=name)
        world.listen()
        world.run_for(10_000)
        said[name] = sum("fetch" in line for line in world.lines)
    assert 66 <= said["liftbridge"] <= 84, "two followers, a sleep of 240 to 300 ms"
    assert said["kip-279"] > 2 * said["liftbridge"]


# -- partition creation ---------------------------------------------------------------------------


def test_epochs_are_offsets_of_the_metadata_log_and_the_first_leader_is_drawn() -> None:
    leaders = set()
    for seed in range(8):
        world = Conversation(seed=seed)
        leader_epoch, partition_epoch = world.epochs()
        assert leader_epoch == partition_epoch
        (batch,) = [
            data
            for base, (_, data) in world.disks["v1"].logs["__cluster_metadata-0"].items()
            if base == leader_epoch
        ]
        assert LOG.encode() in batch
        leaders.add(world.first)
    assert leaders == {"n1", "n2", "n3"}


# -- leader failure -------------------------------------------------------------------------------


def test_two_reports_depose_a_dead_leader_of_three() -> None:
    world = Conversation(seed=0)
    before = world.epochs()
    world.listen()
    world.kill(world.first)
    world.run_for(2500)
    a, b = world.others
    first, second = (line.split()[0] for line in world.decided() if "reports" in line)
    isr = " ".join(sorted(world.broker_names, key=int_of))
    new = world.leader(LOG)
    assert new in (a, b)
    assert world.decided() == [
        f"{first} reports {world.first}",
        f"witnesses: {first} of {isr}",
        f"{second} reports {world.first}",
        f"witnesses: {first} {second} of {isr}",
        f"{new} leads, ISR {isr}",
    ]
    assert min(world.epochs()) > max(before)
    world.write(new, 1)
    world.run_for(500)
    assert not world.acknowledged(1), "the old leader is still in the ISR"
    world.run_for(1500)
    assert world.decided()[-1] == f"{new} leads, ISR {a} {b}", "until it has lagged for too long"
    assert world.acknowledged(1)


def int_of(name: str) -> int:
    return int(name[1:])


def test_one_report_of_two_followers_is_not_enough() -> None:
    """One follower is cut off from the leader: it is the one to go, from the ISR."""
    world = Conversation(seed=0)
    f, (a, b) = world.first, world.others
    world.cut = {(f, a), (a, f)}
    world.listen()
    for corr in range(30):
        world.write(f, corr)
        world.run_for(100)
    lines = world.decided()
    assert f"{a} reports {f}" in lines
    assert f"{b} reports {f}" not in lines
    assert [line for line in lines if "leads" in line] == [f"{f} leads, ISR {in_order(f, b)}"]
    assert world.leader(LOG) == f
    assert world.acknowledged(29)


def in_order(*names: str) -> str:
    return " ".join(sorted(names, key=int_of))


def test_silence_towards_the_controller_deposes_no_leader() -> None:
    """Missed heartbeats fence a broker, here as elsewhere, but its followers hear it."""
    led = {}
    for name in ("liftbridge", "kip-279"):
        world = Conversation(seed=0, protocol=name)
        world.cut = {(world.first, "v1"), ("v1", world.first)}
        world.run_for(4000)
        assert not world.nodes["v1"].ctx.image.is_active(world.first)
        led[name] = world.leader(LOG) == world.first
        if led[name]:
            world.write(world.first, 1)
            world.run_for(50)
            assert world.acknowledged(1)
    assert led == {"liftbridge": True, "kip-279": False}


def test_witnesses_are_forgotten_when_the_leader_timeout_passes_without_a_report() -> None:
    world = Conversation(seed=0)
    a, b = world.others
    world.listen()
    world.report(a)
    world.run_for(1600)
    world.report(b)
    world.report(b)
    assert world.leader(LOG) == world.first
    world.run_for(1400)
    world.report(a)
    assert world.leader(LOG) in (a, b)
    isr = "n1 n2 n3"
    assert [line for line in world.decided() if "witnesses" in line] == [
        f"witnesses: {a} of {isr}",
        f"witnesses: {b} of {isr}",
        f"witnesses: {b} of {isr}",
        f"witnesses: {b} {a} of {isr}",
    ]


@pytest.mark.parametrize(
    "other",
    [{"leader_epoch": 1}, {"partition_epoch": 1}, {"leader": "n9"}, {"partition": "log-9"}],
    ids=lambda other: next(iter(other)),
)
def test_a_report_of_another_leader_or_epoch_is_no_testimony(other: dict[str, Any]) -> None:
    world = Conversation(seed=0)
    world.listen()
    for name in world.others:
        world.report(name, **other)
    assert world.decided() == []
    assert world.leader(LOG) == world.first


def test_only_members_of_the_isr_report() -> None:
    world = Conversation(seed=0)
    f, (a, b) = world.first, world.others
    world.kill(a)
    for corr in range(20):
        world.write(f, corr)
        world.run_for(100)
    assert world.nodes[f].replicas[LOG].isr == tuple(in_order(f, b).split())
    world.listen()
    world.report(a)
    assert world.decided() == [f"witnesses:  of {in_order(f, b)}"]
    world.report(b)
    assert world.leader(LOG) == b, "of an ISR of two, one follower is enough"


def test_a_new_controller_has_heard_no_reports() -> None:
    world = Conversation(seed=0, voters=3)
    a, b = world.others
    world.report(a)
    controller = next(n for n, node in world.nodes.items() if node.controller is not None)
    world.kill(controller)
    world.run_for(1400)
    world.listen()
    world.report(b)
    assert world.leader(LOG) == world.first
    world.report(a)
    assert world.leader(LOG) in (a, b)


def test_the_broker_that_leads_least_is_chosen() -> None:
    world = Conversation(seed=0, partitions=4)
    state = world.nodes["v1"].controller.image  # type: ignore[union-attr]
    load = {n: sum(s.leader == n for s in state.partitions.values()) for n in world.broker_names}
    candidates = [n for n in state.partitions[LOG].replicas if n != world.first]
    assert len({load[n] for n in candidates}) == 2, "a draw that tells the rule from a tie"
    for name in world.others:
        world.report(name)
    assert world.leader(LOG) == min(candidates, key=load.__getitem__)


def test_with_no_other_in_the_isr_the_partition_waits_for_its_leader() -> None:
    world = Conversation(seed=0)
    f, (a, b) = world.first, world.others
    world.kill(a)
    world.kill(b)
    world.run_for(3000)
    assert world.nodes[f].replicas[LOG].isr == (f,)
    world.kill(f)
    world.start(a)
    world.start(b)
    world.listen()
    world.run_for(5000)
    assert [line for line in world.decided() if "leads" in line] == []
    world.start(f)
    world.run_for(1000)
    assert world.leader(LOG) == f
    world.write(f, 1)
    world.run_for(1000)
    assert world.acknowledged(1)


# -- acknowledgements -----------------------------------------------------------------------------


def test_below_min_isr_nothing_commits_and_no_request_is_refused() -> None:
    world = Conversation(seed=0)
    f, (a, b) = world.first, world.others
    world.kill(a)
    world.kill(b)
    world.run_for(3000)
    world.mail.clear()
    world.write(f, 1)
    world.produce(f, LOG, 2, b"leader only", acks=1)
    world.run_for(1000)
    r = world.nodes[f].replicas[LOG]
    assert (r.isr, r.leo, r.hw) == ((f,), 2, 0)
    assert list(world.answers()) == [2]
    world.start(a)
    world.run_for(1000)
    assert world.acknowledged(1), "it waited for the ISR to grow"


# -- restarts -------------------------------------------------------------------------------------


def test_a_deposed_leader_asks_where_its_epoch_ends_and_cuts_there() -> None:
    world = Conversation(seed=0)
    f, (a, b) = world.first, world.others
    world.write(f, 1)
    world.run_for(100)
    world.isolate(f)
    world.write(f, 2)
    world.cut -= {("c1", f)}
    world.produce(f, LOG, 3, b"alone", acks=1)
    world.run_for(3500)
    new = world.leader(LOG) or ""
    assert new in (a, b)
    world.write(new, 4)
    world.run_for(500)
    world.listen()
    world.heal()
    world.run_for(1500)
    between = [line for line in world.lines if f in line and new in line]
    at = between.index(f"{f} -> {new}: where does my last epoch end?")
    assert between[at : at + 4] == [
        f"{f} -> {new}: where does my last epoch end?",
        f"{new} -> {f}: 1",
        f"{f} -> {new}: fetch from 1",
        f"{new} -> {f}: records",
    ]
    assert f"{f} cuts from 3 to 1: offset-for-leader-epoch" in world.decided()
    world.run_for(300)
    assert {tuple(world.payloads(n, LOG)) for n in world.broker_names} == {(b"x1", b"x4")}


def test_a_restarted_leader_leads_on_in_its_epoch() -> None:
    world = Conversation(seed=0)
    world.write(world.first, 1)
    world.run_for(100)
    before = world.epochs()
    world.kill(world.first)
    world.run_for(500)
    world.start(world.first)
    world.run_for(1000)
    assert world.epochs() == before
    assert world.leader(LOG) == world.first
    world.write(world.first, 2)
    world.run_for(100)
    assert world.acknowledged(2)


def test_and_so_two_records_of_one_offset_and_epoch_when_it_lost_its_tail() -> None:
    """Documented, and why the row of `liftbridge` is violable: nothing tells a process that lost
    records (here by hand, as a power cut under flush=async does) from one that lost none."""
    world = Conversation(seed=0)
    f, (a, _) = world.first, world.others
    for corr in (1, 2):
        world.write(f, corr)
        world.run_for(400)
    assert world.acknowledged(2)
    world.kill(f)
    world.disks[f].truncate(LOG, 1, durable=False)
    world.start(f)
    world.run_for(20)
    world.write(f, 3)
    world.write(f, 4)
    world.run_for(600)
    assert world.payloads(f, LOG) == [b"x1", b"x3", b"x4"]
    assert world.payloads(a, LOG)[:2] == [b"x1", b"x2"]
    epochs = {n: world.nodes[n].replicas[LOG].log.epoch_at(1) for n in (f, a)}
    assert epochs[f] == epochs[a], "offset and epoch are equal: no protocol can see it"
