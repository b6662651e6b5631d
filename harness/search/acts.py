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
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from harness.search.choosing import Chooser
from nemesis.schedule import (
    After,
    Break,
    Bridge,
    Cluster,
    Cut,
    Fault,
    Isolate,
    Kill,
    Link,
    Pause,
    PowerCut,
    Restart,
)

LAST_MOMENT_MS: Final = 1700
"""No act is timed later; what follows an event may come later still."""

When = dict[str, Any]
Act = Callable[["Scene"], None]
_ACTIONS: Final[tuple[Literal["drop", "delay", "hold", "duplicate"], ...]] = (
    "hold", "drop", "delay", "duplicate",
)  # fmt: skip
_OF_COPYING: Final = (("fetched",), ("fetch",), ("epoch-ended",), ("epoch-end",))
_OF_VOTING: Final = (("fetched",), ("fetch",), ("vote",), ("voted",), ("begin-epoch",))
_TO_CONTROLLER: Final = (("alter",), ("heartbeat",), ("register",), ("fetch",), ("report-leader",))
_FROM_CONTROLLER: Final = (("altered",), ("fetched",), ("beaten",), ("registered",))


@dataclass
class Scene:
    """An experiment being drawn: what it is about, and how far it has come.

    `partition` is where things happen; `felt` are the events by which the last act is felt;
    `elections` counts the leaders that must have taken over so far.
    """

    choose: Chooser
    cluster: Cluster
    partition: str
    votes: bool
    now_ms: int = 0
    elections: int = 0
    felt: list[After] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    @property
    def leader(self) -> str:
        """The leader of the moment, as a target."""
        return f"leader:{self.partition}"

    def broker(self) -> str:
        """One broker by name; seldom the first, which leads at the beginning as a rule."""
        first = 1 if self.choose.chance(20) else min(2, self.cluster.brokers)
        return f"n{self.choose.integer(first, self.cluster.brokers)}"

    def when(self) -> When:
        """The moment of the next act: felt from the last one, or some time after it."""
        choose = self.choose
        if self.felt and choose.chance(70):
            after = choose.pick(self.felt)
            delay_ms = choose.pick((0, 0, 0, 2, 10, 30, 70, 120, 250))
            return {"after": After(
                event=after.event, match=after.match, nth=after.nth, delay_ms=delay_ms
            )}  # fmt: skip
        if not self.faults and choose.chance(40):
            return {"after": self._any_moment()}
        self.now_ms += choose.pick((5, 30, 80, 150, 300, 450))
        self.now_ms = min(self.now_ms, LAST_MOMENT_MS)
        return {"at_ms": self.now_ms}

    def _any_moment(self) -> After:
        """When something is written, committed or acknowledged for the n-th time."""
        choose = self.choose
        event = choose.pick(("ack", "append", "hw"))
        match: dict[str, Any] = {"partition": self.partition}
        if event != "ack":
            match["role"] = choose.pick(("leader", "follower"))
        delay_ms = choose.pick((0, 0, 1, 5, 30))
        return After(event=event, match=match, nth=choose.integer(1, 6), delay_ms=delay_ms)

    def span_ms(self, *percents: int) -> int:
        """How long, in percent of the time after which the cluster takes notice."""
        timings = self.cluster.timings
        timeout = self.choose.pick((timings.session_ms, timings.lag_ms))
        return max(1, timeout * self.choose.pick(percents) // 100)

    def comes(self, event: str, nth: int = 1, **match: Any) -> After:
        """An event that the act just drawn brings about."""
        return After(event=event, match=match, nth=nth)


def bounce(scene: Scene) -> None:
    """A broker goes down and is soon back: felt when it starts, registers, has a role, cuts."""
    choose, on = scene.choose, scene.broker()
    when, span = scene.when(), scene.span_ms(2, 10, 30, 60, 130)
    match choose.pick(("kill", "power", "restart")):
        case "kill":
            scene.faults.append(Kill(on=on, for_ms=span, **when))
        case "power":
            keep = choose.pick((0, None, 50))
            scene.faults.append(PowerCut(on=on, for_ms=span, keep_percent=keep, **when))
        case _:
            scene.faults.append(Restart(on=on, **when))
    again: dict[str, Any] = {"node": on, "incarnation": {"at_least": 2}}
    there = {**again, "partition": scene.partition}
    scene.felt = [
        scene.comes("truncated", **there),
        scene.comes("role", role="follower", **there),
        scene.comes("role", role="follower", nth=2, **there),
        scene.comes("registered", **again),
        scene.comes("started", **again),
        scene.comes("append", role="follower", **there),
    ]


def strike(scene: Scene) -> None:
    """The leader dies, freezes or is cut off, briefly or for longer than anybody waits: felt when
    the next one leads, writes or commits."""
    choose, on, when = scene.choose, scene.leader, scene.when()
    span = scene.span_ms(130, 130, 180, 250, 400, 20, 70)
    way = choose.pick((
        "kill", "kill", "isolate", "isolate", "pause", "power", "zombie", "deaf", "stop", "break",
    ))  # fmt: skip
    match way:
        case "kill":
            scene.faults.append(Kill(on=on, for_ms=span, **when))
        case "isolate":
            scene.faults.append(Isolate(on=on, clients=choose.chance(30), for_ms=span, **when))
        case "pause":
            scene.faults.append(Pause(on=on, for_ms=span, **when))
        case "power":
            keep = choose.pick((0, None))
            scene.faults.append(PowerCut(on=on, for_ms=span, keep_percent=keep, **when))
        case "stop":
            scene.faults.append(Restart(on=on, **when))
        case "break":
            scene.faults.append(Break(
                on=on, event=choose.pick(("append", "hw", "ack", "role", "isr")),
                match={"partition": scene.partition}, nth=choose.integer(1, 2), for_ms=span,
                before=choose.pick(("send", "commit")), **when,
            ))  # fmt: skip
        case "zombie":
            two_way = choose.chance(50)
            scene.faults.append(Cut(on=on, to="voters", two_way=two_way, for_ms=span, **when))
        case _:
            scene.faults.append(Cut(on="voters", to=on, two_way=False, for_ms=span, **when))
    scene.elections += 1
    _feel_election(scene)


def _feel_election(scene: Scene) -> None:
    at, nth = scene.partition, scene.elections
    scene.felt = [
        scene.comes("role", partition=at, role="leader", nth=nth),
        scene.comes("role", partition=at, role="leader", nth=nth),
        scene.comes("partition", partition=at, nth=scene.choose.integer(1, 3)),
        scene.comes("truncated", partition=at, nth=scene.choose.integer(1, 2)),
        scene.comes("diverging", partition=at),
    ]


def lag(scene: Scene) -> None:
    """A follower gets nothing new, or nothing through, while others go on: felt when the in-sync
    set is to change, and when it has changed."""
    choose, on = scene.choose, scene.broker()
    when, span = scene.when(), scene.span_ms(30, 80, 130, 200, 300)
    match choose.pick(("copying", "leader", "voters", "rest", "slow")):
        case "copying":
            scene.faults.append(Link(
                on="rest", to=on, action="drop", kinds=("fetched",), for_ms=span, **when
            ))  # fmt: skip
        case "leader":
            others = [n for n in scene.cluster.broker_names() if n != on]
            to = ",".join(others) or "rest"
            scene.faults.append(Cut(on=on, to=to, two_way=True, for_ms=span, **when))
        case "voters":
            two_way = choose.chance(50)
            scene.faults.append(Cut(on=on, to="voters", two_way=two_way, for_ms=span, **when))
        case "rest":
            scene.faults.append(Isolate(on=on, for_ms=span, **when))
        case _:
            scene.faults.append(Pause(on=on, for_ms=span, **when))
    at = scene.partition
    scene.felt = [
        scene.comes("proposed", partition=at, nth=choose.integer(1, 2)),
        scene.comes("partition", partition=at, nth=choose.integer(1, 3)),
        scene.comes("isr", partition=at, nth=choose.integer(1, 3)),
    ]


def hold(scene: Scene) -> None:
    """One kind of message is held, lost, late or doubled on some links, across what comes next."""
    choose = scene.choose
    with_controller = choose.chance(40)
    one = choose.pick((scene.leader, scene.broker(), "rest"))
    if with_controller:
        upwards = choose.chance(50)
        on, to = (one, "voters") if upwards else ("voters", one)
        kinds = choose.pick(_TO_CONTROLLER if upwards else _FROM_CONTROLLER)
    else:
        other = scene.broker() if one == "rest" else "rest"
        on, to = (one, other) if choose.chance(50) else (other, one)
        kinds = choose.pick(_OF_VOTING if scene.votes else _OF_COPYING)
    action = choose.pick(_ACTIONS)
    match: dict[str, Any] = {}
    if kinds == ("fetched",) and not with_controller and choose.chance(25):
        match["diverging"] = True
    late_ms = choose.pick((10, 50, 200, 500)) if action in ("delay", "duplicate") else 0
    scene.faults.append(Link(
        on=on, to=to, action=action, kinds=kinds, match=match, delay_ms=late_ms,
        limit=choose.pick((None, 1, 2, 5)), for_ms=scene.span_ms(60, 130, 200, 300, 500),
        **scene.when(),
    ))  # fmt: skip
    # A rule is armed ahead of time: what was felt before may still set off the next act.


def blackout(scene: Scene) -> None:
    """All brokers lose power at once, keep more or less, and come back one after the other."""
    choose, when = scene.choose, scene.when()
    for name in scene.cluster.broker_names():
        if choose.chance(85):
            scene.faults.append(PowerCut(
                on=name, keep_percent=choose.pick((0, None, 100)),
                for_ms=scene.span_ms(5, 30, 60, 130, 200), **when,
            ))  # fmt: skip
    scene.elections += 1
    _feel_election(scene)


def split(scene: Scene) -> None:
    """Two halves that one broker joins, or a link that is cut one way."""
    choose, when, span = scene.choose, scene.when(), scene.span_ms(80, 130, 200, 400)
    if scene.cluster.brokers >= 3 and choose.chance(50):
        scene.faults.append(Bridge(on=scene.broker(), for_ms=span, **when))
    else:
        on, to = scene.broker(), choose.pick(("rest", "voters", scene.leader))
        scene.faults.append(Cut(on=on, to=to, two_way=False, for_ms=span, **when))
    scene.felt = []


ACTS: Final[tuple[Act, ...]] = (strike, bounce, lag, hold, blackout, split)
