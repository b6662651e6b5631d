"""What may happen to a small cluster, act by act: each follows on what the last one brings about.

A replicated log breaks in windows: after a broker is back and before it has caught up, between an
election and the first write, while one message is under way. None of that is hit by faults at
times drawn apart. So an experiment is a short chain of acts (bounce a broker, strike the leader,
let a follower lag, hold one kind of message, cut all power), and an act comes as a rule at an
event by which the last one is felt: the broker has its role back, the next leader leads, the
in-sync set has changed. Nothing here knows any particular bug.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from harness.search.long_scenarios import (
    churn,
    contest,
    relapse,
    seesaw,
    stands_or_votes,
    succession,
)
from harness.search.rules import ACTIONS, DIVERGING, deaf, in_the_dark, late
from harness.search.scenario_builder import Scene, When, later
from nemesis.formats.schedule import (
    After,
    Break,
    Bridge,
    Cut,
    ElectPreferred,
    ElectUnclean,
    Isolate,
    Kill,
    Link,
    Pause,
    PowerCut,
    Reassign,
    Release,
    SetMinIsr,
    Stop,
)

Act = Callable[[Scene], None]

_COPYING: Final = (
    "fetch-response",
    "fetch-response",
    "fetch",
    "offset-for-leader-epoch-response",
    "offset-for-leader-epoch",
)
_VOTING: Final = (
    "fetch-response",
    "fetch-response",
    "fetch",
    "vote",
    "vote-response",
    "begin-epoch",
)
_UPWARDS: Final = ("alter-partition", "alter-partition", "heartbeat", "register", "report-leader")
_DOWNWARDS: Final = (
    "alter-partition-response",
    "fetch-response",
    "fetch-response",
    "heartbeat-response",
    "register-response",
)
_CRASH_AT: Final = ("ack", "append", "hw", "role", "isr", "truncated", "proposed")


def bounce(scene: Scene) -> None:
    """A broker goes down and is soon back: felt when it starts, registers, has a role, cuts."""
    choose, on = scene.choose, scene.broker()
    when, span = scene.when(), scene.span_ms(0, 2, 10, 30, 60, 130)
    if scene.votes and choose.chance(40):
        when = {"after": stands_or_votes(scene, on, choose.integer(1, 2))}
    match choose.pick(("kill", "power", "power", "stop")):
        case "kill":
            scene.faults.append(Kill(on=on, for_ms=span, **when))
        case "power":
            keep = choose.pick((0, None, 50))
            scene.faults.append(PowerCut(on=on, for_ms=span, keep_percent=keep, **when))
        case _:
            scene.faults.append(Stop(on=on, for_ms=span, **when))
    again: dict[str, Any] = {"node": on, "incarnation": {"at_least": 2}}
    there = {**again, "partition": scene.partition}
    scene.felt = [
        After(event="truncated", match=there),
        After(event="role", match={"role": "follower", **there}),
        After(event="role", match={"role": "follower", **there}, nth=2),
        After(event="registered", match=again),
        After(event="started", match=again),
        After(event="append", match={"role": "follower", **there}),
    ]


def strike(scene: Scene) -> None:
    """The leader dies, freezes or is cut off, as a rule for longer than anybody waits: felt when
    the next one leads, writes or commits."""
    _strike(scene, scene.when())


def _strike(scene: Scene, when: When) -> None:
    choose, on = scene.choose, scene.leader
    span = scene.span_ms(130, 180, 250, 400, 800, 50)
    way = choose.pick(
        (
            "kill",
            "kill",
            "kill",
            "isolate",
            "isolate",
            "isolate",
            "stop",
            "stop",
            "stop",
            "pause",
            "power",
            "zombie",
            "deaf",
        )
    )
    match way:
        case "kill":
            scene.faults.append(Kill(on=on, for_ms=span, **when))
        case "isolate":
            scene.faults.append(Isolate(on=on, clients=choose.chance(20), for_ms=span, **when))
        case "pause":
            scene.faults.append(Pause(on=on, for_ms=span, **when))
        case "power":
            keep = choose.pick((0, None))
            scene.faults.append(PowerCut(on=on, for_ms=span, keep_percent=keep, **when))
        case "stop":
            scene.faults.append(Stop(on=on, for_ms=span, **when))
        case "zombie":
            two_way = choose.chance(50)
            scene.faults.append(Cut(on=on, to="voters", two_way=two_way, for_ms=span, **when))
        case _:
            scene.faults.append(Cut(on="voters", to=on, two_way=False, for_ms=span, **when))
    scene.feel_election()


def strand(scene: Scene) -> None:
    """The leader writes what not all get, or nobody, and is struck a little later: the next one
    leads with another log than some of the others."""
    choose, when = scene.choose, scene.when()
    span = scene.span_ms(130, 250, 400, 800)
    match way := choose.pick(("pair", "deaf", "apart", "lonely")):
        case "pair":
            scene.faults.append(Cut(on=scene.broker(), to=scene.leader, for_ms=span, **when))
        case "apart":
            scene.faults.append(Cut(on=scene.broker(), to="all", for_ms=span, **when))
        case "deaf":
            scene.faults.append(deaf(scene, "rest", scene.broker(), span, when))
        case _:
            scene.faults.append(
                Cut(on=scene.leader, to="all", for_ms=span, **when)
                if choose.chance(50)
                else deaf(scene, scene.leader, "all", span, when)
            )
    _strike(scene, later(when, choose.pick((30, 60, 100, 10))))
    if choose.chance(35):
        # Whoever wrote alone is told to cut when it is back.
        to = scene.preferred if way == "lonely" and choose.chance(60) else scene.broker()
        scene.faults.append(late(scene, to, later(when, choose.pick((0, 100, 200)))))


def lag(scene: Scene) -> None:
    """A follower gets nothing new, or nothing through, while others go on: felt when the in-sync
    set is to change, and when it has changed."""
    choose, on = scene.choose, scene.broker()
    when, span = scene.when(), scene.span_ms(130, 200, 300, 600, 1000, 60)
    way = choose.pick(("deaf", "deaf", "mute", "pair", "pair", "brokers", "voters", "rest", "slow"))
    match way:
        case "deaf":
            scene.faults.append(deaf(scene, "rest", on, span, when))
        case "mute":
            scene.faults.append(
                Link(
                    on=on,
                    to="rest",
                    action="drop",
                    kinds=("fetch", "offset-for-leader-epoch"),
                    for_ms=span,
                    match={"partition": scene.partition},
                    **when,
                )
            )
        case "pair":
            other = scene.broker(but=on)
            scene.faults.append(Cut(on=on, to=other, two_way=True, for_ms=span, **when))
        case "brokers":
            scene.faults.append(Cut(on=on, to="all", two_way=True, for_ms=span, **when))
        case "voters":
            two_way = choose.chance(50)
            scene.faults.append(Cut(on=on, to="voters", two_way=two_way, for_ms=span, **when))
        case "rest":
            scene.faults.append(Isolate(on=on, for_ms=span, **when))
        case _:
            scene.faults.append(Pause(on=on, for_ms=span, **when))
    scene.feel_isr()


def hold(scene: Scene) -> None:
    """One kind of message is held, lost, late or doubled on some links, across what comes next."""
    choose = scene.choose
    one = choose.pick((scene.broker(), scene.broker(), scene.leader))
    match: dict[str, Any] = {}
    if choose.chance(40):
        upwards = choose.chance(50)
        on, to = (one, "voters") if upwards else ("voters", one)
        kind = choose.pick(_UPWARDS if upwards else _DOWNWARDS)
        if kind in ("alter-partition", "alter-partition-response"):
            on, to = (scene.leader, "voters") if upwards else ("voters", scene.leader)
    else:
        kind = choose.pick(_VOTING if scene.votes else _COPYING)
        answers = kind in (
            "fetch-response",
            "offset-for-leader-epoch-response",
            "vote-response",
            "begin-epoch",
        )
        if one == scene.leader:
            answers = not answers
        on, to = ("rest", one) if answers else (one, "rest")
        match = {"partition": scene.partition}
        if kind == "fetch-response" and choose.chance(40):
            match.update(DIVERGING)
    action = choose.pick(ACTIONS)
    late_ms = choose.pick((10, 50, 100, 200, 500)) if action in ("delay", "duplicate") else 0
    name = f"held-{len(scene.faults)}" if action == "hold" else ""
    scene.faults.append(
        Link(
            name=name,
            on=on,
            to=to,
            action=action,
            kinds=(kind,),
            match=match,
            delay_ms=late_ms,
            limit=choose.pick((None, 1, 1, 2)),
            for_ms=scene.span_ms(60, 130, 200, 300, 500, 1000),
            **scene.when(arming=True),
        )
    )
    # A rule is armed ahead of time: what was felt before may still set off the next act.
    if name:
        scene.held.append(name)


def let_go(scene: Scene) -> None:
    """What is held arrives."""
    scene.faults.append(Release(of=scene.held.pop(0), **scene.when()))


def blackout(scene: Scene) -> None:
    """Several brokers lose power or die at once, keep more or less, and come back in turn."""
    choose, when = scene.choose, scene.when()
    kill, keep = choose.chance(30), choose.pick((0, None, 100))
    for name in scene.cluster.broker_names():
        if choose.chance(75):
            span = scene.span_ms(5, 30, 60, 130, 200, 800)
            scene.faults.append(
                Kill(on=name, for_ms=span, **when)
                if kill
                else PowerCut(on=name, keep_percent=keep, for_ms=span, **when)
            )
    scene.feel_election()


def crash(scene: Scene) -> None:
    """A process dies inside a turn: with nothing of it written, or nothing of it sent."""
    choose, when = scene.choose, scene.when(arming=True)
    on = choose.pick((scene.leader, scene.leader, scene.broker()))
    events = (*_CRASH_AT, "vote", "vote") if scene.votes else _CRASH_AT
    scene.faults.append(
        Break(
            on=on,
            event=choose.pick(events),
            match={"partition": scene.partition},
            nth=choose.integer(1, 4),
            before=choose.pick(("commit", "send")),
            **when,
        )
    )
    span = scene.span_ms(0, 5, 60, 130, 300)
    scene.crashes += 1
    stands: When = {"after": After(event="break", nth=scene.crashes)}
    if choose.chance(70):
        scene.faults.append(Kill(on=on, for_ms=span, **stands))
    else:
        keep = choose.pick((0, None))
        scene.faults.append(PowerCut(on=on, keep_percent=keep, for_ms=span, **stands))
    scene.feel_election()


def split(scene: Scene) -> None:
    """Two halves that one broker joins, or a link that is cut one way."""
    choose, when, span = scene.choose, scene.when(), scene.span_ms(80, 130, 200, 400)
    if scene.cluster.brokers >= 3 and choose.chance(30):
        scene.faults.append(Bridge(on=scene.broker(), for_ms=span, **when))
    else:
        on, to = scene.broker(), choose.pick(("rest", "voters", "all", scene.leader))
        scene.faults.append(Cut(on=on, to=to, two_way=False, for_ms=span, **when))


def hand_over(scene: Scene) -> None:
    """Another replica is preferred, and shall lead, while all are well: an election without any
    failure. Several may follow each other closely; the last may bring the first leader back."""
    choose = scene.choose
    for _ in range(choose.pick((1, 2, 2))):
        when = scene.when()
        names = list(scene.replicas)
        first = choose.pick([name for name in names if name != scene.preferred] or names)
        scene.preferred = first
        order = ",".join([first, *(name for name in names if name != first)])
        scene.faults.append(Reassign(partition=scene.partition, replicas=order, **when))
        scene.faults.append(
            ElectPreferred(partition=scene.partition, **later(when, choose.pick((2, 5, 20))))
        )
        scene.feel_election()


def govern(scene: Scene) -> None:
    """An operator moves the partition, elects uncleanly, or changes what must be in sync."""
    choose, when = scene.choose, scene.when()
    match choose.pick(("move", "move", "swap", "unclean", "min-isr")):
        case "move":
            names = scene.cluster.broker_names()
            count = choose.integer(1, len(names))
            order: list[str] = []
            while len(order) < count:
                order.append(choose.pick([name for name in names if name not in order]))
            scene.faults.append(
                Reassign(partition=scene.partition, replicas=",".join(order), **when)
            )
        case "swap":
            scene.faults.append(Reassign(partition=scene.partition, replicas="rotate", **when))
        case "unclean":
            scene.faults.append(ElectUnclean(partition=scene.partition, **when))
        case _:
            most = scene.cluster.replication_factor
            scene.faults.append(SetMinIsr(min_isr=choose.integer(1, most), **when))
    scene.feel_isr()


def forget(scene: Scene) -> None:
    """A broker hears no news of the cluster, or late, and goes by what it knew; it is alive and
    well."""
    choose, on = scene.choose, scene.broker()
    name = f"held-{len(scene.faults)}" if choose.chance(35) else ""
    span = scene.span_ms(60, 130, 300, 600, 1000)
    scene.faults.append(in_the_dark(scene, on, span, scene.when(arming=True), name=name))
    if name:
        scene.held.append(name)


ACTS: Final[dict[Act, int]] = {
    strike: 45,
    strand: 35,
    lag: 30,
    hold: 40,
    bounce: 35,
    hand_over: 20,
    forget: 20,
    blackout: 20,
    crash: 25,
    split: 12,
    govern: 18,
    relapse: 40,
    succession: 25,
    seesaw: 40,
    churn: 30,
}
"""Each act, and in how many percent of the experiments it is used."""
ACTS_WITH_VOTES: Final[dict[Act, int]] = {
    strike: 45,
    strand: 35,
    lag: 25,
    hold: 35,
    bounce: 35,
    blackout: 25,
    crash: 35,
    split: 15,
    churn: 70,
    contest: 45,
}
"""The same where replicas vote: there is no controller to ask for anything."""

__all__ = ["ACTS", "ACTS_WITH_VOTES", "Act", "let_go", "strike"]
