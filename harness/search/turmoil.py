"""Acts that last over several elections or changes of the in-sync set.

Most windows of a replicated log open only after a first upset, and a second one has to come just
then: a leader falls as soon as it leads, a follower fails as it is to be in sync again, the
leadership goes to and fro between two that hardly hear each other. Single acts meet by chance; here
each next step waits for what the one before brings about. What strikes, whom, and for how long is
drawn; nothing here knows any particular bug.
"""

from __future__ import annotations

from typing import Any

from harness.search.rules import deaf, slow_controller
from harness.search.scene import Scene, When, later
from nemesis.schedule import (
    After,
    Cut,
    ElectPreferred,
    Fault,
    Isolate,
    Kill,
    Link,
    Pause,
    PowerCut,
    Reassign,
    Stop,
)


def churn(scene: Scene) -> None:
    """One leader after another is cut off, dies or stands still: as soon as it leads, or when it
    has written or committed a little. It is back by the next election, or the one after."""
    choose = scene.choose
    for _ in range(choose.pick((3, 3, 4, 2))):
        when = scene.in_office(choose.pick((0, 0, 0, 1, 30)))
        at, epoch = {"partition": scene.partition, "role": "leader"}, scene.elections + 1
        if choose.chance(50):
            match: dict[str, Any] = {**at, "leader_epoch": {"at_least": epoch}}
            event, nth = choose.pick((("hw", 1), ("hw", 1), ("hw", 1), ("hw", 2), ("append", 1)))
            when = {"after": After(
                event=event, match=match, nth=nth, delay_ms=choose.pick((0, 0, 2))
            )}  # fmt: skip
        scene.faults.append(_fall(scene, scene.span_ms(150, 250, 250, 400, 80), when))
        scene.feel_election()


def _fall(scene: Scene, span: int, when: When) -> Fault:
    """The leader of the moment is gone, or only from the sight of its followers."""
    on = scene.leader
    match scene.choose.pick(("isolate", "isolate", "isolate", "brokers", "kill", "pause")):
        case "isolate":
            return Isolate(on=on, for_ms=span, **when)
        case "brokers":
            return Cut(on=on, to="all", for_ms=span, **when)
        case "kill":
            return Kill(on=on, for_ms=span, **when)
        case _:
            return Pause(on=on, for_ms=span, **when)


def contest(scene: Scene) -> None:
    """An election under bad conditions: nobody leads at once, one candidate's votes are late, it
    and another may not hear each other, and a voter is restarted as soon as it has voted."""
    choose, when = scene.choose, scene.when()
    names = list(scene.cluster.broker_names())
    if choose.chance(70):
        on = choose.pick((",".join(names), scene.leader))
        scene.faults.append(Kill(on=on, for_ms=choose.pick((1, 20, 50)), **when))
    else:
        scene.faults.append(_fall(scene, scene.span_ms(150, 250), when))
    slow = choose.pick(names)
    span = scene.span_ms(250, 400, 150)
    pre: dict[str, Any] = {"pre": False} if choose.chance(60) else {}
    scene.faults.append(Link(
        on=slow, to="rest", kinds=choose.pick((("vote",), ("vote", "voted"), ("voted",))),
        match={"partition": scene.partition, **pre}, two_way=choose.chance(25),
        action=choose.pick(("delay", "delay", "delay", "hold")),
        delay_ms=choose.pick((80, 40, 120)), for_ms=span, **when,
    ))  # fmt: skip
    voter = choose.pick([name for name in names if name != slow])
    others = [name for name in names if name not in (slow, voter)]
    if others and choose.chance(50):
        scene.faults.append(Cut(on=slow, to=choose.pick(others), for_ms=span, **when))
    voted = stands_or_votes(scene, voter, choose.pick((1, 1, 2)))
    if choose.chance(60):
        scene.faults.append(Kill(on=voter, for_ms=choose.pick((0, 5, 30)), after=voted))
    else:
        scene.faults.append(PowerCut(on=voter, for_ms=choose.pick((0, 5, 30)), after=voted))
    scene.feel_election()


def stands_or_votes(scene: Scene, node: str, nth: int) -> After:
    """When a replica votes for another, or stands itself."""
    match: dict[str, Any] = {"node": node, "partition": scene.partition}
    if scene.choose.chance(35):
        return After(event="role", match={**match, "role": "candidate"}, nth=nth)
    return After(event="vote", match={**match, "pre": False}, nth=nth)


def seesaw(scene: Scene) -> None:
    """Two replicas of which one hardly hears the other lead in turn: somebody moves the leadership
    to and fro (an operator, or what balances leaders) while messages between them are lost, late,
    or come twice."""
    choose, when = scene.choose, scene.when()
    if len(scene.replicas) < 2:
        return
    one = scene.preferred
    other = choose.pick([name for name in scene.replicas if name != one])
    scene.faults.append(_apart(scene, one, other, when))
    moment, leads, last = later(when, choose.pick((30, 60, 100, 10))), other, one
    for _ in range(choose.pick((2, 2, 3, 4, 1))):
        rest = [name for name in scene.replicas if name != leads]
        scene.faults.append(
            Reassign(partition=scene.partition, replicas=",".join([leads, *rest]), **moment)
        )
        asked = later(moment, choose.pick((1, 5)))
        scene.faults.append(ElectPreferred(partition=scene.partition, **asked))
        scene.preferred = leads
        scene.feel_election()
        moment, leads, last = scene.in_office(choose.pick((1, 5, 30, 60, 100, 150))), last, leads


def _apart(scene: Scene, one: str, other: str, when: When) -> Fault:
    """What two replicas send each other is lost for a while, or some of it comes late."""
    choose, span = scene.choose, scene.span_ms(250, 130, 400, 600)
    on, to = choose.pick(((one, other), (other, one)))
    way = choose.pick(("cut", "cut", "deaf", "late", "late", "twice"))
    if way == "cut":
        return Cut(on=on, to=to, for_ms=span, **when)
    if way == "deaf":
        return deaf(scene, on, to, span, when)
    # What a follower is told to cut, or whatever it is told.
    kinds, how = choose.pick((
        (("fetched",), {"diverging": True}), (("epoch-ended",), {}),
        (("fetched", "epoch-ended"), {}),
    ))  # fmt: skip
    match: dict[str, Any] = {"partition": scene.partition}
    return Link(
        on=on, to=to, two_way=choose.chance(50), kinds=kinds, match=match | how,
        action="delay" if way == "late" else "duplicate", delay_ms=choose.pick((100, 50, 200, 400)),
        limit=choose.pick((None, 1, 2)), for_ms=span, **when,
    )  # fmt: skip


def relapse(scene: Scene) -> None:
    """A follower falls out of the in-sync set, comes back, and fails again at the very moment the
    leader asks for it to be let in; the controller may hear of it, or answer, late."""
    choose, on, when = scene.choose, scene.broker(), scene.when()
    span = _falls_out(scene, on, when)
    if choose.chance(70):
        scene.faults.append(slow_controller(scene, later(when, span)))
    scene.takes(span)
    asked: When = {"after": _asked(scene, on, choose.pick((0, 0, 2, 10, 50)))}
    loses = scene.cluster.flush == "async"
    way = choose.pick(("power", "power", "deaf") if loses else ("deaf", "deaf", "apart", "kill"))
    soon = scene.span_ms(0, 10, 60)
    match way:
        case "power":
            keep = choose.pick((0, 0, None))
            scene.faults.append(PowerCut(on=on, for_ms=soon, keep_percent=keep, **asked))
        case "kill":
            scene.faults.append(Kill(on=on, for_ms=soon, **asked))
        case "apart":
            scene.faults.append(Cut(on=on, to="all", for_ms=scene.span_ms(300, 130), **asked))
    if way == "deaf" or (way != "apart" and choose.chance(65)):
        scene.faults.append(deaf(scene, "rest", on, scene.span_ms(400, 250, 800), asked))
    scene.feel_isr()


def _falls_out(scene: Scene, on: str, when: When) -> int:
    """Whatever the cluster notices first brings a follower out of the in-sync set. For how long."""
    choose, timings = scene.choose, scene.cluster.timings
    if timings.lag_ms < timings.session_ms:
        span = timings.lag_ms * choose.pick((180, 250, 350)) // 100
        scene.faults.append(deaf(scene, "rest", on, span, when))
    else:
        span = timings.session_ms * choose.pick((160, 250)) // 100
        scene.faults.append(
            Isolate(on=on, for_ms=span, **when) if choose.chance(50)
            else Kill(on=on, for_ms=span, **when)
        )  # fmt: skip
    return span


def _asked(scene: Scene, on: str, delay_ms: int) -> After:
    """When the leader asks for `on` to be let in again, after all the others."""
    isr = [*(name for name in scene.replicas if name != on), on]
    return After(
        event="proposed", match={"partition": scene.partition, "isr": isr}, delay_ms=delay_ms
    )


def succession(scene: Scene) -> None:
    """A follower lags until the others go on without it; the leader falls as soon as they do, and
    the one that lagged meets a new leader before it has caught up."""
    choose, on, when = scene.choose, scene.broker(), scene.when()
    out_ms = _falls_out(scene, on, when)
    span = scene.span_ms(400, 250, 600, 800)
    scene.faults.append(deaf(scene, "rest", on, out_ms + span, when))
    scene.takes(out_ms)
    others = [name for name in scene.replicas if name != on]
    event = choose.pick(("isr", "isr", "partition"))
    without = After(
        event=event, match={"partition": scene.partition, "isr": others},
        delay_ms=choose.pick((0, 1, 1, 10, 50)),
    )  # fmt: skip
    falls: When = {"after": without}
    gone = scene.span_ms(250, 400, 800)
    if choose.chance(25):
        scene.faults.append(Stop(on=scene.leader, for_ms=gone, **falls))
    else:
        scene.faults.append(_fall(scene, gone, falls))
    scene.feel_election()
