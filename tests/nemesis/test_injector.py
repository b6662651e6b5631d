"""The injector: stories of faults that overlap, miss their mark, or wait for an event."""

from __future__ import annotations

from typing import Any

import pytest

from nemesis.faults import Bridge, Cut, Delay, Isolate, Kill, Loss, Pause, Restart, Resume, Ring
from nemesis.formats.schedule import After, Fault, Schedule
from node.formats import trace
from tests.support.nemesis_world import Storm

STORIES: dict[str, tuple[list[Fault], list[str], list[str]]] = {
    "a kill is healed by a start": (
        [Kill(on="n1", at_ms=10, for_ms=20)],
        ["10 kill n1", "30 start n1"],
        ["0 inject n1", "0 heal n1"],
    ),
    "a pause is healed by a resume": (
        [Pause(on="n1,n2", at_ms=10, for_ms=20)],
        ["10 pause n1", "10 pause n2", "30 resume n1", "30 resume n2"],
        ["0 inject n1,n2", "0 heal n1,n2"],
    ),
    "a kill without end lasts to the final heal": (
        [Kill(on="n1", at_ms=10)],
        ["10 kill n1", "99 start n1"],
        ["0 inject n1", "0 heal n1"],
    ),
    "a restart ends a kill before its time": (
        [Kill(on="n1", at_ms=10, for_ms=50), Restart(on="n1", at_ms=20)],
        ["10 kill n1", "20 start n1"],
        ["0 inject n1", "1 inject n1", "0 heal: n1 is up again already"],
    ),
    "a restart of a live node is clean": (
        [Restart(on="n1", at_ms=10)],
        ["10 stop n1", "10 start n1"],
        ["0 inject n1"],
    ),
    "a restart of a paused node lets it hear the request": (
        [Pause(on="n1", at_ms=10, for_ms=50), Restart(on="n1", at_ms=20)],
        ["10 pause n1", "20 resume n1", "20 stop n1", "20 start n1"],
        ["0 inject n1", "1 inject n1", "0 heal: n1 runs again already"],
    ),
    "a heal leaves a node to the fault that killed it again": (
        [
            Kill(on="n1", at_ms=10, for_ms=30),
            Restart(on="n1", at_ms=20),
            Kill(on="n1", at_ms=30, for_ms=30),
        ],
        ["10 kill n1", "20 start n1", "30 kill n1", "60 start n1"],
        [
            "0 inject n1",
            "1 inject n1",
            "2 inject n1",
            "0 heal: n1 is left to fault 2, which brought it down again",
            "2 heal n1",
        ],
    ),
    "a paused node can be killed, and comes back running": (
        [Pause(on="n1", at_ms=10, for_ms=50), Kill(on="n1", at_ms=20, for_ms=10)],
        ["10 pause n1", "20 kill n1", "30 start n1"],
        ["0 inject n1", "1 inject n1", "1 heal n1", "0 heal: n1 runs again already"],
    ),
    "the pause of a node that was killed meanwhile": (
        [Pause(on="n1", at_ms=10, for_ms=20), Kill(on="n1", at_ms=20, for_ms=20)],
        ["10 pause n1", "20 kill n1", "40 start n1"],
        ["0 inject n1", "1 inject n1", "0 heal: n1 is down", "1 heal n1"],
    ),
    "a dead node cannot be paused": (
        [Kill(on="n1", at_ms=10, for_ms=50), Pause(on="n1", at_ms=20, for_ms=10)],
        ["10 kill n1", "60 start n1"],
        ["0 inject n1", "1 missed n1: n1 is down", "0 heal n1"],
    ),
    "a dead node cannot be killed": (
        [Kill(on="n1", at_ms=10, for_ms=50), Kill(on="n1,n2", at_ms=20, for_ms=10)],
        ["10 kill n1", "20 kill n2", "30 start n2", "60 start n1"],
        ["0 inject n1", "1 inject n2: n1 is down already", "1 heal n2", "0 heal n1"],
    ),
    "only the paused can be resumed": (
        [
            Resume(on="n1", at_ms=5),
            Pause(on="n1", at_ms=10, for_ms=50),
            Pause(on="n1", at_ms=20, for_ms=10),
            Resume(on="n1", at_ms=30),
        ],
        ["10 pause n1", "30 resume n1"],
        [
            "0 missed n1: n1 is not paused",
            "1 inject n1",
            "2 missed n1: n1 is paused already",
            "3 inject n1",
            "1 heal: n1 runs again already",
        ],
    ),
    "clients have no process of their own": (
        [Kill(on="c1", at_ms=10, for_ms=10)],
        [],
        ["0 missed c1: c1 is a client: only its links can fail"],
    ),
    "nobody has the role": (
        [Kill(on="leader:log-0", at_ms=10), Cut(on="n1", to="lagging", at_ms=10)],
        [],
        ["0 missed: nobody is leader:log-0 now", "1 missed n1: nobody else is lagging now"],
    ),
    "a heal comes before what begins at the same time": (
        [Kill(on="n1", at_ms=10, for_ms=10), Kill(on="n1", at_ms=20, for_ms=10)],
        ["10 kill n1", "20 start n1", "20 kill n1", "30 start n1"],
        ["0 inject n1", "0 heal n1", "1 inject n1", "1 heal n1"],
    ),
    "two cuts over one link each have their own rules": (
        [
            Cut(on="n1", to="n2", two_way=False, at_ms=10, for_ms=30),
            Cut(on="n1", to="n2", at_ms=20, for_ms=30),
        ],
        [
            "10 add_rule n1>n2",
            "20 add_rule n1>n2",
            "20 add_rule n2>n1",
            "40 remove_rule 1",
            "50 remove_rule 2",
            "50 remove_rule 3",
        ],
        [
            "0 inject n1",
            "1 inject n1",
            "0 heal n1",
            "0 effect n1: 10 messages matched",
            "1 heal n1",
            "1 effect n1: 50 messages matched",
        ],
    ),
    "a fault that is due after the storm is missed": (
        [Kill(on="n1", at_ms=500)],
        [],
        ["0 missed: the storm ended before its time"],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_row_of_faults_is_carried_out_and_recorded(name: str) -> None:
    faults, acts, record = STORIES[name]
    storm = Storm(*faults)
    storm.run(99)
    storm.injector.heal_all()
    assert storm.world.log == acts
    assert storm.told()[:-1] == record
    assert storm.told()[-1].startswith("-1 heal")
    assert storm.injector.active() == ()
    assert not storm.world.paused
    assert not storm.world.rules
    assert len(storm.world.up) == 4


def test_without_a_target_a_drawn_fault_is_skipped() -> None:
    storm = Storm(Kill(on="leader", at_ms=10), Resume(on="n1", at_ms=10), drawn=True)
    storm.run(20)
    assert storm.told() == ["0 skipped: nobody is leader now", "1 skipped n1: n1 is not paused"]


def rules(fault: Fault, **cluster: Any) -> list[str]:
    """The links that a fault bends, "n1>n2", sorted."""
    storm = Storm(fault, **cluster)
    storm.leads("n1")
    storm.isr("n1", "n1", "n2")
    storm.run(10)
    assert [line["action"] for line in storm.lines] == ["inject"]
    assert storm.world.rules
    return sorted(f"{sender}>{receiver}" for sender, receiver in storm.lines[0]["links"])


@pytest.mark.parametrize(
    ("fault", "links"),
    [
        (Cut(on="n1", to="n2", at_ms=1), "n1>n2 n2>n1"),
        (Cut(on="n1", to="n2,v1", two_way=False, at_ms=1), "n1>n2 n1>v1"),
        (Cut(on="leader:log-0", to="follower", two_way=False, at_ms=1), "n1>n2"),
        (Cut(on="leader", to="clients", two_way=False, at_ms=1), "n1>c1 n1>c2"),
        (Cut(on="n1", to="rest", two_way=False, at_ms=1), "n1>n2 n1>n3 n1>v1"),
        (Isolate(on="n1", at_ms=1), "n1>n2 n1>n3 n1>v1 n2>n1 n3>n1 v1>n1"),
        (Isolate(on="n1,n2", at_ms=1), "n1>n3 n1>v1 n2>n3 n2>v1 n3>n1 n3>n2 v1>n1 v1>n2"),
        (
            Isolate(on="v1", clients=True, at_ms=1),
            "c1>v1 c2>v1 n1>v1 n2>v1 n3>v1 v1>c1 v1>c2 v1>n1 v1>n2 v1>n3",
        ),
        (Bridge(on="n1", at_ms=1), "n2>n3 n3>n2"),
        (Delay(on="n1", to="n2", delay_ms=5, at_ms=1), "n1>n2 n2>n1"),
        (Loss(on="all", to="all", percent=5, at_ms=1), "n1>n2 n1>n3 n2>n1 n2>n3 n3>n1 n3>n2"),
    ],
)
def test_a_fault_on_links_bends_these_and_no_other(fault: Fault, links: str) -> None:
    assert rules(fault) == links.split()


def test_every_link_of_a_group_is_bent_once() -> None:
    storm = Storm(Loss(on="all", to="all", percent=5, at_ms=1))
    storm.run(1)
    assert len(storm.world.rules) == 1


def test_rules_carry_what_the_fault_says() -> None:
    storm = Storm(
        Delay(on="n1", to="n2", delay_ms=5, jitter_ms=2, kinds=("fetch",), at_ms=1),
        Loss(on="n1", to="n2", percent=40, kinds=("vote",), two_way=False, at_ms=1),
    )
    storm.run(1)
    slow, back, lossy = storm.world.rules.values()
    assert (slow.action, slow.delay_ms, slow.jitter_ms, slow.kinds) == ("delay", 5, 2, ("fetch",))
    assert (back.senders, back.receivers, back.kinds) == (("n2",), ("n1",), ("fetch",))
    assert (lossy.action, lossy.percent, lossy.kinds) == ("drop", 40, ("vote",))


@pytest.mark.parametrize("brokers", [3, 4, 5, 6, 7, 12])
def test_in_a_ring_everybody_hears_a_majority(brokers: int) -> None:
    nodes = {f"n{i}" for i in range(1, brokers + 1)}
    heard = {node: set(nodes) for node in nodes}
    for link in rules(Ring(at_ms=1), brokers=brokers):
        sender, receiver = link.split(">")
        heard[receiver].discard(sender)
    majority = brokers // 2 + 1
    assert all(node in heard[node] and len(heard[node]) >= majority for node in nodes)
    assert all(heard[node] != nodes for node in nodes)
    if brokers <= 5:
        assert {len(group) for group in heard.values()} == {majority}
        assert len({frozenset(group) for group in heard.values()}) == brokers


@pytest.mark.parametrize("brokers", [3, 4, 5, 8])
def test_a_bridge_joins_two_halves(brokers: int) -> None:
    cut = {tuple(link.split(">")) for link in rules(Bridge(on="n1", at_ms=1), brokers=brokers)}
    halves = {frozenset(r for s, r in cut if s == node) for node, _ in cut}
    assert len(halves) == 2
    assert {node for half in halves for node in half} == {f"n{i}" for i in range(2, brokers + 1)}
    assert abs(len(max(halves, key=len)) - len(min(halves, key=len))) <= 1


@pytest.mark.parametrize("fault", [Ring(at_ms=1), Bridge(on="n1", at_ms=1)])
def test_templates_need_enough_brokers(fault: Fault) -> None:
    storm = Storm(fault, brokers=2, replication_factor=2)
    storm.run(1)
    assert storm.told()[0].startswith("0 missed")
    assert storm.told()[0].endswith("too few brokers for it")


def test_a_role_is_resolved_when_it_is_hit() -> None:
    storm = Storm(
        Kill(on="leader:log-0", at_ms=10),
        Kill(on="leader:log-0", at_ms=20),
        Kill(on="leader", at_ms=30),
    )
    storm.leads("n1")
    storm.run(15)
    assert storm.view.leader("log-0") is None
    storm.leads("n2", epoch=2)
    storm.run(25)
    storm.leads("n3", epoch=3)
    storm.run(40)
    assert storm.told() == ["0 inject n1", "1 inject n2", "2 inject n3: of log-0"]
    assert storm.injector.active() == ("kill n1", "kill n2", "kill n3")


def test_a_trigger_waits_for_the_nth_event_that_matches() -> None:
    after = After(
        event="isr",
        match={"partition": "log-0", "leader_epoch": {"at_least": 2}},
        nth=2,
        delay_ms=5,
    )
    storm = Storm(Kill(on="n3", after=after, for_ms=10))
    storm.isr("n1", "n1", epoch=9)  # before the storm: not counted
    storm.run(10)
    storm.isr("n1", "n1", epoch=1)
    storm.isr("n1", "n1", epoch=2)
    storm.isr("n1", "n1", epoch=3, partition="log-1")
    storm.run(20)
    assert storm.world.log == []
    storm.isr("n1", "n1", epoch=3)
    storm.isr("n1", "n1", epoch=4)
    storm.run(50)
    assert storm.world.log == ["25 kill n3", "35 start n3"]


def test_a_trigger_without_delay_acts_at_once() -> None:
    storm = Storm(Kill(on="n1", after=After(event="role", match={"node": "n1"})))
    storm.run(10)
    storm.leads("n1")
    assert storm.world.log == ["10 kill n1"]


def test_a_trigger_that_never_comes_is_missed() -> None:
    storm = Storm(
        Kill(on="n1", after=After(event=trace.TRUNCATED)),
        Kill(on="n1", after=After(event=trace.ISR, nth=2, delay_ms=0)),
        Kill(on="n1", after=After(event=trace.ISR, delay_ms=70)),
        drawn=True,
    )
    storm.run(10)
    storm.isr("n1", "n1")
    storm.run(20)
    storm.injector.heal_all()
    assert storm.told() == [
        "0 missed: event 1 of 'truncated' that matches never came: 0 did",
        "1 missed: event 2 of 'isr' that matches never came: 1 did",
        "2 missed: the storm ended before its time",
        "-1 heal",
    ]
    assert storm.injector.step(1000) is None
    assert storm.world.log == []


def test_the_final_heal_mends_whatever_is_hurt() -> None:
    storm = Storm(
        Kill(on="n1", at_ms=1), Pause(on="n2", at_ms=2), Isolate(on="n3", at_ms=3, clients=True)
    )
    storm.run(5)
    storm.world.up.remove("v1")  # died by itself
    storm.injector.heal_all()
    assert storm.told()[3:] == [
        "0 heal n1",
        "1 heal n2",
        "2 heal n3",
        "2 effect n3: 30 messages matched",
        "-1 heal n1,n2,n3,v1",
    ]
    effect, final = storm.lines[-2:]
    assert (effect["dropped"], effect["delayed"]) == (3, 6)
    assert ["n3", "c1"] in final["links"]
    assert (final["fault"], final["what"], final["on"]) == (-1, "", "")
    assert storm.world.log[-1] == "5 start v1"
    storm.injector.heal_all()
    assert storm.told()[-1] == "-1 heal"


def test_what_cannot_be_done_is_recorded_and_the_rest_goes_on() -> None:
    storm = Storm(
        Kill(on="n1,n2", at_ms=1, for_ms=5),
        Cut(on="n1", to="n3", at_ms=2),
        Cut(on="n1", to="n2", at_ms=3, for_ms=1),
    )
    storm.world.broken = {"kill n1", "add_rule n3>n1", "start n2"}
    storm.run(2)
    storm.world.broken |= {"remove_rule"}
    storm.run(10)
    storm.injector.heal_all()
    assert storm.told() == [
        "0 inject n2: cannot kill n1",
        "1 missed n1: cannot add_rule n3>n1",
        "2 inject n1",
        "2 heal n1: the link hub has ended; the link hub has ended",
        "2 effect n1: 0 messages matched",
        "0 heal: cannot start n2",
        "-1 heal: cannot start n2",
    ]
    assert storm.injector.problems == [
        "heal of fault 2: the link hub has ended",
        "heal of fault 2: the link hub has ended",
        "final heal: cannot start n2",
    ]
    assert len(storm.world.rules) == 2  # the half of the first cut was taken back


def test_lines_are_those_of_the_format() -> None:
    storm = Storm(Cut(on="n1", to="n2", two_way=False, at_ms=7, for_ms=3))
    storm.run(10)
    shared = {"fault": 0, "what": "cut", "on": "n1", "nodes": ["n1"], "links": [["n1", "n2"]]}
    assert storm.lines == [
        shared | {"action": "inject", "t_us": 7000, "done_us": 7000, "detail": ""},
        shared | {"action": "heal", "t_us": 10_000, "done_us": 10_000, "detail": ""},
        shared
        | {"action": "effect", "t_us": 10_000, "done_us": 10_000}
        | {"detail": "10 messages matched", "dropped": 1, "delayed": 3},
    ]


def test_one_faults_draws_do_not_move_anothers() -> None:
    def victims(*faults: Fault) -> list[str]:
        storm = Storm(*faults, brokers=9)
        storm.run(99)
        return [line["nodes"][0] for line in storm.lines if line["action"] == "inject"]

    late = [Isolate(on="any", at_ms=10 * i) for i in range(1, 6)]
    moved = [Isolate(on="any", at_ms=60), *late[1:]]
    assert victims(*late)[1:] == victims(*moved)[:-1]


def test_a_schedule_without_faults_heals_nothing() -> None:
    storm = Storm()
    assert storm.injector.step(0) is None
    assert Schedule().faults == ()
    storm.injector.heal_all()
    assert storm.told() == ["-1 heal"]
