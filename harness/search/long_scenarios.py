"""Acts that last over several elections or changes of the in-sync set.

Most windows of a replicated log open only after a first upset, and a second one has to come just
then: a leader falls as soon as it leads, a follower fails as it is to be in sync again, the
leadership goes to and fro between two that hardly hear each other. Single acts meet by chance; here
each next step waits for what the one before brings about. What strikes, whom, and for how long is
drawn; nothing here knows any particular bug.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from harness.search.rules import DIVERGING, deaf, in_the_dark, slow_controller
from harness.search.scenario_builder import Scene, When, later
from nemesis.formats.schedule import (
    After,
    Cut,
    ElectPreferred,
    Fault,
    Isolate,
    Kill,
    Link,
    Pause,
    PowerCut,
    Release,
    Stop,
)


def churn(scene: Scene) -> None:
    """One leader after another is cut off, dies or stands still: as soon as it leads, or when it
    has written or committed a little. It is back by the next election, or the one after."""
    choose = scene.choose
    for _ in range(choose.pick((4, 3, 4, 3, 2))):
        when = scene.in_office(choose.pick((0, 0, 0, 1, 30)))
        at, epoch = {"partition": scene.partition, "role": "leader"}, scene.elections + 1
        if choose.chance(50):
            match: dict[str, Any] = {**at, "leader_epoch": {"at_least": epoch}}
            event, nth = choose.pick((("hw", 1), ("hw", 1), ("hw", 1), ("hw", 2), ("append", 1)))
            when = {
                "after": After(event=event, match=match, nth=nth, delay_ms=choose.pick((0, 0, 2)))
            }
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
    """An election under bad conditions: nobody leads at once, votes are late, so that several may
    stand in one term, and a voter or two are restarted as soon as they have voted, and may not
    hear who won. What is late may arrive when they are back."""
    choose, when = scene.choose, scene.when()
    slow, *others = _shuffled(scene, scene.replicas)
    # First of all: a rule is of no use to who is down already.
    late = _late_votes(scene, slow, when)
    scene.faults.append(late)
    voters = others or [slow]
    if len(others) > 1 and choose.chance(70):
        scene.faults.append(Cut(on=slow, to=others[0], for_ms=late.for_ms, **when))
        voters = others[1:]
    if choose.chance(65):
        on = choose.pick((scene.leader, scene.leader, ",".join(scene.replicas)))
        scene.faults.append(_restart(scene, on, choose.pick((1, 20, 50)), when))
    else:
        scene.faults.append(_fall(scene, scene.span_ms(150, 250), when))
    for voter in voters[: choose.pick((1, 1, 2))]:
        voted: When = {"after": stands_or_votes(scene, voter, choose.pick((1, 1, 1, 2)))}
        scene.faults.append(_restart(scene, voter, choose.pick((0, 0, 5, 30)), voted))
        if others and choose.chance(50):
            to = others[0] if others[0] != voter else slow
            scene.faults.append(Cut(on=voter, to=to, for_ms=late.for_ms, **voted))
    scene.feel_election()
    if late.name:
        back = {"node": voters[0], "incarnation": {"at_least": 2}}
        scene.faults.append(
            Release(
                of=late.name,
                after=After(event="registered", match=back, delay_ms=choose.pick((0, 5, 30))),
            )
        )


def _shuffled(scene: Scene, names: Sequence[str]) -> list[str]:
    """In any order."""
    left, order = list(names), []
    while left:
        order.append(left.pop(scene.choose.integer(0, len(left) - 1)))
    return order


def _restart(scene: Scene, on: str, span: int, when: When) -> Fault:
    """Down and soon up again. Who ends cleanly is back at once; else the session of the process
    before has to end first."""
    match scene.choose.pick(("stop", "stop", "kill", "power")):
        case "stop":
            return Stop(on=on, for_ms=span, **when)
        case "kill":
            return Kill(on=on, for_ms=span, **when)
        case _:
            return PowerCut(on=on, for_ms=span, **when)


def _late_votes(scene: Scene, slow: str, when: When) -> Link:
    """Votes travel slowly: everybody's, or those that one candidate asks for or is given. Later,
    as a rule, than a process is replaced, which takes until its session has ended."""
    choose, session_ms = scene.choose, scene.cluster.timings.session_ms
    on, to, kinds = choose.pick(
        (
            (slow, "rest", ("vote",)),
            ("rest", slow, ("vote-response",)),
            ("all", "all", ("vote", "vote-response")),
        )
    )
    real: dict[str, Any] = {"pre": False} if on == slow and choose.chance(70) else {}
    held = on == slow and choose.chance(60)
    late_ms = session_ms * choose.pick((100, 60, 150, 20)) // 100
    return Link(
        name=f"votes-{len(scene.faults)}" if held else "",
        on=on,
        to=to,
        kinds=kinds,
        match={"partition": scene.partition, **real},
        action="hold" if held else "delay",
        delay_ms=0 if held else late_ms,
        jitter_ms=late_ms // 2 * (not held and choose.chance(30)),
        for_ms=scene.span_ms(400, 250, 600),
        **when,
    )


def stands_or_votes(scene: Scene, node: str, nth: int) -> After:
    """When a replica votes for another, or stands itself."""
    match: dict[str, Any] = {"node": node, "partition": scene.partition}
    if scene.choose.chance(35):
        return After(event="role", match={**match, "role": "candidate"}, nth=nth)
    return After(event="vote", match={**match, "pre": False}, nth=nth)


def seesaw(scene: Scene) -> None:
    """Two replicas of which one hardly hears the other lead in turn: somebody moves the leadership
    to and fro (an operator, or what balances leaders) while messages between them are lost, late,
    or come twice. They may be in touch again at a change of leaders, and a third may hear of the
    changes late or not at all."""
    choose, when = scene.choose, scene.when()
    if len(scene.replicas) < 2:
        return
    one = scene.preferred
    other = choose.pick([name for name in scene.replicas if name != one])
    apart = _apart(scene, one, other, when)
    scene.faults += apart
    cut = next((f.name for f in apart if isinstance(f, Cut)), "")
    held = next((f.name for f in apart if isinstance(f, Link) and f.name), "")
    thirds = [name for name in scene.replicas if name not in (one, other)]
    if thirds and choose.chance(50):
        span = scene.span_ms(400, 250, 600, 1000)
        scene.faults.append(in_the_dark(scene, choose.pick(thirds), span, when))
    moment, leads, last = later(when, choose.pick((30, 60, 100, 10))), other, one
    # Soon enough, nobody writes between two changes.
    pauses = (1, 5) if choose.chance(50) else (1, 5, 30, 60, 150)
    for _ in range(choose.pick((2, 3, 3, 4, 1))):
        if cut and choose.chance(60):
            # In touch before the leader changes: who asks at once is answered.
            scene.faults.append(Release(of=cut, **moment))
            cut = ""
        asked = later(moment, choose.pick((1, 5)))
        scene.faults.append(ElectPreferred(partition=scene.partition, first=leads, **asked))
        scene.preferred = leads
        scene.feel_election()
        if cut and choose.chance(40):
            delay_ms = choose.pick((0, 5, 30))
            scene.faults.append(Release(of=cut, **scene.in_office(delay_ms)))
            cut = ""
        moment, leads, last = scene.in_office(choose.pick(pauses)), last, leads
    if held:
        delay_ms = choose.pick((0, 1, 5, 30))
        scene.faults.append(Release(of=held, **scene.in_office(delay_ms)))


def _apart(scene: Scene, one: str, other: str, when: When) -> list[Fault]:
    """What two replicas send each other is lost for a while, or some of it comes late; or first
    the one and then the other, when they have come to differ."""
    choose, span = scene.choose, scene.span_ms(250, 130, 400, 600)
    on, to = choose.pick(((one, other), (other, one)))
    made: list[Fault] = []
    way = choose.pick(("cut", "cut", "deaf", "together"))
    if way == "cut":
        made.append(Cut(name=f"apart-{len(scene.faults)}", on=on, to=to, for_ms=span, **when))
    if way == "deaf":
        made.append(deaf(scene, on, to, span, when))
    if not made or choose.chance(50):
        made.append(_late_answers(scene, on, to, when))
    return made


def _late_answers(scene: Scene, on: str, to: str, when: When) -> Link:
    """What a follower is told to cut, or whatever it is told, comes late or once more; what is held
    comes when all have led."""
    choose = scene.choose
    kinds, how = choose.pick(
        (
            (("fetch-response",), DIVERGING),
            (("fetch-response",), DIVERGING),
            (("offset-for-leader-epoch-response",), {}),
            (("fetch-response", "offset-for-leader-epoch-response"), {}),
        )
    )
    match: dict[str, Any] = {"partition": scene.partition}
    action: Literal["hold", "delay", "duplicate"] = choose.pick(("hold", "delay", "duplicate"))
    held = action == "hold"
    return Link(
        name=f"late-{len(scene.faults)}" if held else "",
        on=on,
        to=to,
        two_way=choose.chance(50),
        kinds=kinds,
        match=match | how,
        action=action,
        delay_ms=0 if held else choose.pick((100, 50, 200, 400)),
        limit=choose.pick((None, 1, 2)),
        for_ms=scene.span_ms(400, 250, 600),
        **when,
    )


def relapse(scene: Scene) -> None:
    """A follower falls out of the in-sync set, comes back, and fails again at the very moment the
    leader asks for it to be let in; the controller may hear of it, or answer, late."""
    choose, on, when = scene.choose, scene.broker(), scene.when()
    span = _falls_out(scene, on, when)
    loses = scene.cluster.flush == "async"
    way = choose.pick(("power", "power", "deaf") if loses else ("deaf", "deaf", "apart", "kill"))
    if choose.chance(75):
        # A process that is gone is back when its session has ended, and not before.
        restarted = way in ("power", "kill")
        scene.faults.append(slow_controller(scene, later(when, span), across=restarted))
    scene.takes(span)
    asked: When = {"after": _asked(scene, on, choose.pick((0, 0, 2, 10, 50)))}
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
            Isolate(on=on, for_ms=span, **when)
            if choose.chance(50)
            else Kill(on=on, for_ms=span, **when)
        )
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
        event=event,
        match={"partition": scene.partition, "isr": others},
        delay_ms=choose.pick((0, 1, 1, 10, 50)),
    )
    falls: When = {"after": without}
    gone = scene.span_ms(250, 400, 800)
    if choose.chance(25):
        scene.faults.append(Stop(on=scene.leader, for_ms=gone, **falls))
    else:
        scene.faults.append(_fall(scene, gone, falls))
    scene.feel_election()
