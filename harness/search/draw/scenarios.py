"""The scenarios that schedules are drawn from: short sequences of faults in a small cluster.

A replicated log breaks in short windows, which faults at random times seldom hit: after a broker is
back and before it has caught up, between an election and the first write, while a message is under
way. So a schedule is a chain of scenarios, and each usually begins at an event that the last one
causes: a broker has its role back, the next leader leads. The longer ones span several elections,
and each step waits for the effect of the step before. No scenario knows a particular bug.

The order of random choices is fixed: a seed must draw the same schedule in every version, or
`harness.search.draw.generator.GENERATOR_VERSION` changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from harness.search.draw.scenario_builder import DIVERGING, LinkAction, ScenarioBuilder, When, later
from nemesis.faults import (
    KINDS,
    Break,
    Bridge,
    Cut,
    DiskFull,
    ElectPreferred,
    ElectUnclean,
    FsyncError,
    Isolate,
    Kill,
    Link,
    Pause,
    PowerCut,
    Reassign,
    Release,
    SetMinIsr,
    SlowFsync,
    Stop,
)
from nemesis.formats.schedule import After, Fault

Scenario = Callable[[ScenarioBuilder], None]

_LINK_ACTIONS: Final[tuple[LinkAction, ...]] = ("hold", "hold", "drop", "delay", "duplicate")
_REPLICATION_KINDS: Final = (
    "fetch-response",
    "fetch-response",
    "fetch",
    "offset-for-leader-epoch-response",
    "offset-for-leader-epoch",
)
_VOTE_KINDS: Final = (
    "fetch-response",
    "fetch-response",
    "fetch",
    "vote",
    "vote-response",
    "begin-epoch",
)
_TO_CONTROLLER: Final = (
    "alter-partition",
    "alter-partition",
    "heartbeat",
    "register",
    "report-leader",
)
_FROM_CONTROLLER: Final = (
    "alter-partition-response",
    "fetch-response",
    "fetch-response",
    "heartbeat-response",
    "register-response",
)
_RESPONSES: Final = (
    "fetch-response",
    "offset-for-leader-epoch-response",
    "vote-response",
    "begin-epoch",
)
_CRASH_EVENTS: Final = ("ack", "append", "hw", "role", "isr", "truncated", "proposed")
_LEADER_FAILURES: Final = (
    *("kill",) * 3,
    *("isolate",) * 3,
    *("stop",) * 3,
    "pause",
    "power",
    "no-heartbeats",
    "no-metadata",
)


# -- failures of one broker


def restart(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which a broker goes down and is back soon."""
    choose, on = builder.choose, builder.broker()
    when, span = builder.when(), builder.span_ms(0, 2, 10, 30, 60, 130)
    if builder.votes and choose.chance(40):
        when = {"after": _candidate_or_vote(builder, on, choose.integer(1, 2))}
    match choose.pick(("kill", "power", "power", "stop")):
        case "kill":
            builder.add(Kill(on=on, for_ms=span, **when))
        case "power":
            keep = choose.pick((0, None, 50))
            builder.add(PowerCut(on=on, for_ms=span, keep_percent=keep, **when))
        case _:
            builder.add(Stop(on=on, for_ms=span, **when))
    again: dict[str, Any] = {"node": on, "incarnation": {"at_least": 2}}
    if choose.chance(15):
        # The next process dies too, mostly before it has registered.
        began: When = {"after": After(event="started", match=again)}
        began = later(began, choose.pick((0, 5, 30)))
        builder.add(down_for(builder, on, choose.pick((0, 0, 30)), began))
    elif not builder.votes and choose.chance(15):
        # It begins with the metadata that is on its disk.
        builder.add(builder.late_metadata(on, max(span, builder.span_ms(130, 250)), when))
    there = {**again, "partition": builder.partition}
    builder.triggers = [
        After(event="truncated", match=there),
        After(event="role", match={"role": "follower", **there}),
        After(event="role", match={"role": "follower", **there}, nth=2),
        After(event="registered", match=again),
        After(event="started", match=again),
        After(event="append", match={"role": "follower", **there}),
    ]


def fail_leader(builder: ScenarioBuilder) -> None:
    """Draw a leader that dies, freezes or is cut off, mostly for longer than its session."""
    fail_leader_at(builder, builder.when())


def fail_leader_at(builder: ScenarioBuilder, when: When) -> None:
    """Draw a failure of the leader at a given time or event."""
    choose, on = builder.choose, builder.leader
    span = builder.span_ms(130, 180, 250, 400, 800, 50)
    match choose.pick(_LEADER_FAILURES):
        case "kill":
            builder.add(Kill(on=on, for_ms=span, **when))
        case "isolate":
            builder.add(Isolate(on=on, clients=choose.chance(20), for_ms=span, **when))
        case "pause":
            builder.add(Pause(on=on, for_ms=span, **when))
        case "power":
            keep = choose.pick((0, None))
            builder.add(PowerCut(on=on, for_ms=span, keep_percent=keep, **when))
        case "stop":
            builder.add(Stop(on=on, for_ms=span, **when))
        case "no-heartbeats":
            two_way = choose.chance(50)
            builder.add(Cut(on=on, to="voters", two_way=two_way, for_ms=span, **when))
        case _:
            builder.add(Cut(on="voters", to=on, two_way=False, for_ms=span, **when))
    builder.expect_election()


def diverge_leader(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which the leader writes records that few followers or none receive, and
    fails soon. The next leader's log then differs from other replicas' logs."""
    choose, when = builder.choose, builder.when()
    span = builder.span_ms(130, 250, 400, 800)
    match way := choose.pick(("pair", "no-responses", "disconnected", "alone")):
        case "pair":
            builder.add(Cut(on=builder.broker(), to=builder.leader, for_ms=span, **when))
        case "disconnected":
            builder.add(Cut(on=builder.broker(), to="all", for_ms=span, **when))
        case "no-responses":
            builder.add(builder.drop_responses("rest", builder.broker(), span, when))
        case _:
            builder.add(
                Cut(on=builder.leader, to="all", for_ms=span, **when)
                if choose.chance(50)
                else builder.drop_responses(builder.leader, "all", span, when)
            )
    fail_leader_at(builder, later(when, choose.pick((30, 60, 100, 10))))
    if choose.chance(35):
        # The old leader must truncate its log when it is back.
        alone = way == "alone" and choose.chance(60)
        to = builder.preferred if alone else builder.broker()
        builder.add(builder.late_responses(to, later(when, choose.pick((0, 100, 200)))))


def delay_follower(builder: ScenarioBuilder) -> None:
    """Draw a follower that receives no records, or is not heard, while others continue."""
    choose, on = builder.choose, builder.broker()
    when, span = builder.when(), builder.span_ms(130, 200, 300, 600, 1000, 60)
    ways = ("responses", "responses", "requests", "pair", "pair", "brokers", "voters", "rest")
    match choose.pick((*ways, "pause")):
        case "responses":
            builder.add(builder.drop_responses("rest", on, span, when))
        case "requests":
            kinds = ("fetch", "offset-for-leader-epoch")
            match = {"partition": builder.partition}
            rule = Link(
                on=on, to="rest", action="drop", kinds=kinds, for_ms=span, match=match, **when
            )
            builder.add(rule)
        case "pair":
            other = builder.broker(but=on)
            builder.add(Cut(on=on, to=other, two_way=True, for_ms=span, **when))
        case "brokers":
            builder.add(Cut(on=on, to="all", two_way=True, for_ms=span, **when))
        case "voters":
            two_way = choose.chance(50)
            builder.add(Cut(on=on, to="voters", two_way=two_way, for_ms=span, **when))
        case "rest":
            builder.add(Isolate(on=on, for_ms=span, **when))
        case _:
            builder.add(Pause(on=on, for_ms=span, **when))
    builder.expect_isr_change()


def crash_in_turn(builder: ScenarioBuilder) -> None:
    """Draw a process that dies inside a turn: before it has committed, or before it sends."""
    choose, when = builder.choose, builder.when(arming=True)
    on = choose.pick((builder.leader, builder.leader, builder.broker()))
    events = (*_CRASH_EVENTS, "vote", "vote") if builder.votes else _CRASH_EVENTS
    builder.add(
        Break(
            on=on,
            event=choose.pick(events),
            match={"partition": builder.partition},
            nth=choose.integer(1, 4),
            before=choose.pick(("commit", "send")),
            **when,
        )
    )
    span = builder.span_ms(0, 5, 60, 130, 300)
    builder.crashes += 1
    stopped: When = {"after": After(event="break", nth=builder.crashes)}
    if choose.chance(70):
        builder.add(Kill(on=on, for_ms=span, **stopped))
    else:
        keep = choose.pick((0, None))
        builder.add(PowerCut(on=on, keep_percent=keep, for_ms=span, **stopped))
    builder.expect_election()


# -- failures of several brokers, and of links


def power_loss(builder: ScenarioBuilder) -> None:
    """Draw brokers that lose power or die at once, lose data, and return one by one."""
    choose, when = builder.choose, builder.when()
    kill, keep = choose.chance(30), choose.pick((0, None, 100))
    for name in builder.cluster.broker_names():
        if choose.chance(75):
            span = builder.span_ms(5, 30, 60, 130, 200, 800)
            builder.add(
                Kill(on=name, for_ms=span, **when)
                if kill
                else PowerCut(on=name, keep_percent=keep, for_ms=span, **when)
            )
    builder.expect_election()


def partial_partition(builder: ScenarioBuilder) -> None:
    """Draw two halves that one broker connects, or a link that is cut in one direction."""
    choose, when = builder.choose, builder.when()
    span = builder.span_ms(80, 130, 200, 400)
    if builder.cluster.brokers >= 3 and choose.chance(30):
        builder.add(Bridge(on=builder.broker(), for_ms=span, **when))
    else:
        on, to = builder.broker(), choose.pick(("rest", "voters", "all", builder.leader))
        builder.add(Cut(on=on, to=to, two_way=False, for_ms=span, **when))


def disturb_messages(builder: ScenarioBuilder) -> None:
    """Draw a rule that holds, loses, delays or doubles one kind of messages on some links."""
    choose = builder.choose
    one = choose.pick((builder.broker(), builder.broker(), builder.leader))
    match: dict[str, Any] = {}
    if choose.chance(40):
        upwards = choose.chance(50)
        on, to = (one, "voters") if upwards else ("voters", one)
        kind = choose.pick(_TO_CONTROLLER if upwards else _FROM_CONTROLLER)
        if kind in ("alter-partition", "alter-partition-response"):
            on, to = (builder.leader, "voters") if upwards else ("voters", builder.leader)
    else:
        kind = choose.pick(_VOTE_KINDS if builder.votes else _REPLICATION_KINDS)
        towards = (kind in _RESPONSES) != (one == builder.leader)
        on, to = ("rest", one) if towards else (one, "rest")
        match = {"partition": builder.partition}
        if kind == "fetch-response" and choose.chance(40):
            match.update(DIVERGING)
    action = choose.pick(_LINK_ACTIONS)
    delay_ms = choose.pick((10, 50, 100, 200, 500)) if action in ("delay", "duplicate") else 0
    name = f"held-{len(builder.faults)}" if action == "hold" else ""
    builder.add(
        Link(
            name=name,
            on=on,
            to=to,
            action=action,
            kinds=(kind,),
            match=match,
            delay_ms=delay_ms,
            limit=choose.pick((None, 1, 1, 2)),
            for_ms=builder.span_ms(60, 130, 200, 300, 500, 1000),
            **builder.when(arming=True),
        )
    )
    # The rule is armed ahead of time: earlier triggers may still start the next scenario.
    if name:
        builder.held.append(name)


def release(builder: ScenarioBuilder) -> None:
    """Draw the time at which the messages that the oldest rule holds are delivered."""
    builder.add(Release(of=builder.held.pop(0), **builder.when()))


def stale_metadata(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which a healthy broker receives metadata records late or never."""
    choose, on = builder.choose, builder.broker()
    name = f"held-{len(builder.faults)}" if choose.chance(35) else ""
    span = builder.span_ms(60, 130, 300, 600, 1000)
    builder.add(builder.late_metadata(on, span, builder.when(arming=True), name=name))
    if name:
        builder.held.append(name)


# -- changes by an operator


def transfer_leadership(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which another replica becomes preferred and is elected without a failure.
    Several may follow closely; the last may bring the first leader back."""
    choose = builder.choose
    for _ in range(choose.pick((1, 2, 2))):
        when = builder.when()
        names = list(builder.replicas)
        first = choose.pick([name for name in names if name != builder.preferred] or names)
        builder.preferred = first
        order = ",".join([first, *(name for name in names if name != first)])
        builder.add(
            Reassign(partition=builder.partition, replicas=order, **when),
            ElectPreferred(partition=builder.partition, **later(when, choose.pick((2, 5, 20)))),
        )
        builder.expect_election()


def admin_change(builder: ScenarioBuilder) -> None:
    """Draw an operator's command: a move, an unclean election, or `min.insync.replicas`."""
    choose, when = builder.choose, builder.when()
    match choose.pick(("move", "move", "rotate", "unclean", "min-isr")):
        case "move":
            names = builder.cluster.broker_names()
            count = choose.integer(1, len(names))
            order: list[str] = []
            while len(order) < count:
                order.append(choose.pick([name for name in names if name not in order]))
            builder.add(Reassign(partition=builder.partition, replicas=",".join(order), **when))
        case "rotate":
            builder.add(Reassign(partition=builder.partition, replicas="rotate", **when))
        case "unclean":
            builder.add(ElectUnclean(partition=builder.partition, **when))
        case _:
            most = builder.cluster.replication_factor
            builder.add(SetMinIsr(min_isr=choose.integer(1, most), **when))
    builder.expect_isr_change()


# -- several elections, or changes of the in-sync set, in a row


def repeated_failover(builder: ScenarioBuilder) -> None:
    """Draw leaders that fail one after another as soon as they lead, have written or committed."""
    choose = builder.choose
    for _ in range(choose.pick((4, 3, 4, 3, 2))):
        when = builder.when_leading(choose.pick((0, 0, 0, 1, 30)))
        at, epoch = {"partition": builder.partition, "role": "leader"}, builder.elections + 1
        if choose.chance(50):
            match: dict[str, Any] = {**at, "leader_epoch": {"at_least": epoch}}
            event, nth = choose.pick((("hw", 1), ("hw", 1), ("hw", 1), ("hw", 2), ("append", 1)))
            when = {
                "after": After(event=event, match=match, nth=nth, delay_ms=choose.pick((0, 0, 2)))
            }
        builder.add(leader_gone(builder, builder.span_ms(150, 250, 250, 400, 80), when))
        builder.expect_election()


def leader_gone(builder: ScenarioBuilder, span: int, when: When) -> Fault:
    """Draw a failure of the current leader, or a cut between it and its followers."""
    on = builder.leader
    match builder.choose.pick(("isolate", "isolate", "isolate", "brokers", "kill", "pause")):
        case "isolate":
            return Isolate(on=on, for_ms=span, **when)
        case "brokers":
            return Cut(on=on, to="all", for_ms=span, **when)
        case "kill":
            return Kill(on=on, for_ms=span, **when)
        case _:
            return Pause(on=on, for_ms=span, **when)


def contended_election(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which several replicas stand for election in one term. Votes are late, and
    voters restart after their vote, so they may not learn who won."""
    choose, when = builder.choose, builder.when()
    slow, *others = _shuffled(builder, builder.replicas)
    # The rule comes first: it does nothing for a broker that is down already.
    late = _late_votes(builder, slow, when)
    builder.add(late)
    voters = others or [slow]
    if len(others) > 1 and choose.chance(70):
        builder.add(Cut(on=slow, to=others[0], for_ms=late.for_ms, **when))
        voters = others[1:]
    if choose.chance(65):
        on = choose.pick((builder.leader, builder.leader, ",".join(builder.replicas)))
        builder.add(down_for(builder, on, choose.pick((1, 20, 50)), when))
    else:
        builder.add(leader_gone(builder, builder.span_ms(150, 250), when))
    for voter in voters[: choose.pick((1, 1, 2))]:
        voted: When = {"after": _candidate_or_vote(builder, voter, choose.pick((1, 1, 1, 2)))}
        builder.add(down_for(builder, voter, choose.pick((0, 0, 5, 30)), voted))
        if others and choose.chance(50):
            to = others[0] if others[0] != voter else slow
            builder.add(Cut(on=voter, to=to, for_ms=late.for_ms, **voted))
    builder.expect_election()
    if late.name:
        back = {"node": voters[0], "incarnation": {"at_least": 2}}
        delay_ms = choose.pick((0, 5, 30))
        registered = After(event="registered", match=back, delay_ms=delay_ms)
        builder.add(Release(of=late.name, after=registered))


def _shuffled(builder: ScenarioBuilder, names: Sequence[str]) -> list[str]:
    left, order = list(names), []
    while left:
        order.append(left.pop(builder.choose.integer(0, len(left) - 1)))
    return order


def down_for(builder: ScenarioBuilder, on: str, span: int, when: When) -> Fault:
    """Draw a fault by which brokers are down for `span` ms. After a clean stop a broker may
    register at once; otherwise the session of its last process must end first."""
    match builder.choose.pick(("stop", "stop", "kill", "power")):
        case "stop":
            return Stop(on=on, for_ms=span, **when)
        case "kill":
            return Kill(on=on, for_ms=span, **when)
        case _:
            return PowerCut(on=on, for_ms=span, **when)


def _late_votes(builder: ScenarioBuilder, slow: str, when: When) -> Link:
    """Draw a delay of all votes, or of those that one candidate asks for or is given, usually
    longer than it takes to replace a process, which waits for a session to end."""
    choose, session_ms = builder.choose, builder.cluster.timings.session_ms
    on, to, kinds = choose.pick(
        (
            (slow, "rest", ("vote",)),
            ("rest", slow, ("vote-response",)),
            ("all", "all", ("vote", "vote-response")),
        )
    )
    no_pre_votes: dict[str, Any] = {"pre": False} if on == slow and choose.chance(70) else {}
    held = on == slow and choose.chance(60)
    delay_ms = session_ms * choose.pick((100, 60, 150, 20)) // 100
    return Link(
        name=f"votes-{len(builder.faults)}" if held else "",
        on=on,
        to=to,
        kinds=kinds,
        match={"partition": builder.partition, **no_pre_votes},
        action="hold" if held else "delay",
        delay_ms=0 if held else delay_ms,
        jitter_ms=delay_ms // 2 * (not held and choose.chance(30)),
        for_ms=builder.span_ms(400, 250, 600),
        **when,
    )


def _candidate_or_vote(builder: ScenarioBuilder, node: str, nth: int) -> After:
    """Return the moment when a replica becomes a candidate, or votes."""
    match: dict[str, Any] = {"node": node, "partition": builder.partition}
    if builder.choose.chance(35):
        return After(event="role", match={**match, "role": "candidate"}, nth=nth)
    return After(event="vote", match={**match, "pre": False}, nth=nth)


def alternate_leaders(builder: ScenarioBuilder) -> None:
    """Draw moves of the leadership between two replicas, by an operator or a balancer. Messages
    between the two are lost, late or doubled; a third replica may learn of changes late."""
    choose, when = builder.choose, builder.when()
    if len(builder.replicas) < 2:
        return
    one = builder.preferred
    other = choose.pick([name for name in builder.replicas if name != one])
    rules = _disconnected(builder, one, other, when)
    builder.add(*rules)
    cut = next((f.name for f in rules if isinstance(f, Cut)), "")
    held = next((f.name for f in rules if isinstance(f, Link) and f.name), "")
    thirds = [name for name in builder.replicas if name not in (one, other)]
    if thirds and choose.chance(50):
        span = builder.span_ms(400, 250, 600, 1000)
        builder.add(builder.late_metadata(choose.pick(thirds), span, when))
    change, leads, last = later(when, choose.pick((30, 60, 100, 10))), other, one
    if choose.chance(35):
        builder.nobody_writes(builder.span_ms(400, 250, 800), change)
    # With short pauses, nothing is written between two changes.
    pauses = (1, 5) if choose.chance(50) else (1, 5, 30, 60, 150)
    for _ in range(choose.pick((2, 3, 3, 4, 1))):
        if cut and choose.chance(60):
            # The link is restored before the leader changes, so the next fetch is answered.
            builder.add(Release(of=cut, **change))
            cut = ""
        asked = later(change, choose.pick((1, 5)))
        builder.add(ElectPreferred(partition=builder.partition, first=leads, **asked))
        builder.preferred = leads
        builder.expect_election()
        if cut and choose.chance(40):
            builder.add(Release(of=cut, **builder.when_leading(choose.pick((0, 5, 30)))))
            cut = ""
        change, leads, last = builder.when_leading(choose.pick(pauses)), last, leads
    if held:
        builder.add(Release(of=held, **builder.when_leading(choose.pick((0, 1, 5, 30)))))


def _disconnected(builder: ScenarioBuilder, one: str, other: str, when: When) -> list[Fault]:
    """Draw a while in which messages between two replicas are lost, or some late, or both."""
    choose, span = builder.choose, builder.span_ms(250, 130, 400, 600)
    on, to = choose.pick(((one, other), (other, one)))
    made: list[Fault] = []
    way = choose.pick(("cut", "cut", "no-responses", "late"))
    if way == "cut":
        name = f"apart-{len(builder.faults)}"
        made.append(Cut(name=name, on=on, to=to, for_ms=span, **when))
    if way == "no-responses":
        made.append(builder.drop_responses(on, to, span, when))
    if not made or choose.chance(50):
        made.append(_late_answers(builder, on, to, when))
    return made


def _late_answers(builder: ScenarioBuilder, on: str, to: str, when: When) -> Link:
    """Delay or double the answers that tell a follower where to truncate, or all answers to it."""
    choose = builder.choose
    kinds, how = choose.pick(
        (
            (("fetch-response",), DIVERGING),
            (("fetch-response",), DIVERGING),
            (("offset-for-leader-epoch-response",), {}),
            (("fetch-response", "offset-for-leader-epoch-response"), {}),
        )
    )
    match: dict[str, Any] = {"partition": builder.partition}
    action: Literal["hold", "delay", "duplicate"] = choose.pick(("hold", "delay", "duplicate"))
    held = action == "hold"
    return Link(
        name=f"late-{len(builder.faults)}" if held else "",
        on=on,
        to=to,
        two_way=choose.chance(50),
        kinds=kinds,
        match=match | how,
        action=action,
        delay_ms=0 if held else choose.pick((100, 50, 200, 400)),
        limit=choose.pick((None, 1, 2)),
        for_ms=builder.span_ms(400, 250, 600),
        **when,
    )


def isr_flap(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which a follower leaves the in-sync set, and fails again when the leader
    proposes to add it. The controller may receive the proposal, or the leader the answer, late."""
    choose, on, when = builder.choose, builder.broker(), builder.when()
    span = leave_isr(builder, on, when)
    loses = builder.cluster.flush == "async"
    way = choose.pick(
        ("power", "power", "no-responses")
        if loses
        else ("no-responses", "no-responses", "disconnected", "kill")
    )
    if choose.chance(75):
        # A process that died registers again only after its last session has ended.
        restarts = way in ("power", "kill")
        builder.add(builder.slow_controller(later(when, span), across_restart=restarts))
    builder.advance(span)
    asked: When = {"after": _isr_proposal(builder, on, choose.pick((0, 0, 2, 10, 50)))}
    soon = builder.span_ms(0, 10, 60)
    match way:
        case "power":
            keep = choose.pick((0, 0, None))
            builder.add(PowerCut(on=on, for_ms=soon, keep_percent=keep, **asked))
        case "kill":
            builder.add(Kill(on=on, for_ms=soon, **asked))
        case "disconnected":
            builder.add(Cut(on=on, to="all", for_ms=builder.span_ms(300, 130), **asked))
    if way == "no-responses" or (way != "disconnected" and choose.chance(65)):
        builder.add(builder.drop_responses("rest", on, builder.span_ms(400, 250, 800), asked))
    builder.expect_isr_change()


def leave_isr(builder: ScenarioBuilder, on: str, when: When) -> int:
    """Add a fault by which a follower leaves the in-sync set soon. Return its length in ms."""
    choose, timings = builder.choose, builder.cluster.timings
    if timings.lag_ms < timings.session_ms:
        span = timings.lag_ms * choose.pick((180, 250, 350)) // 100
        builder.add(builder.drop_responses("rest", on, span, when))
    else:
        span = timings.session_ms * choose.pick((160, 250)) // 100
        builder.add(
            Isolate(on=on, for_ms=span, **when)
            if choose.chance(50)
            else Kill(on=on, for_ms=span, **when)
        )
    return span


def _isr_proposal(builder: ScenarioBuilder, on: str, delay_ms: int) -> After:
    """Return the moment when the leader proposes to let `on` in again, after all the others."""
    isr = [*(name for name in builder.replicas if name != on), on]
    match = {"partition": builder.partition, "isr": isr}
    return After(event="proposed", match=match, delay_ms=delay_ms)


def failover_while_lagging(builder: ScenarioBuilder) -> None:
    """Draw a follower that leaves the in-sync set, and gets a new leader while it lags."""
    choose, on, when = builder.choose, builder.broker(), builder.when()
    out_ms = leave_isr(builder, on, when)
    span = builder.span_ms(400, 250, 600, 800)
    builder.add(builder.drop_responses("rest", on, out_ms + span, when))
    builder.advance(out_ms)
    others = [name for name in builder.replicas if name != on]
    event = choose.pick(("isr", "isr", "partition"))
    match = {"partition": builder.partition, "isr": others}
    delay_ms = choose.pick((0, 1, 1, 10, 50))
    shrunk: When = {"after": After(event=event, match=match, delay_ms=delay_ms)}
    gone = builder.span_ms(250, 400, 800)
    if choose.chance(25):
        builder.add(Stop(on=builder.leader, for_ms=gone, **shrunk))
    else:
        builder.add(leader_gone(builder, gone, shrunk))
    builder.expect_election()


def fail_disk(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which the disk of a broker fails, or its synced data is damaged: always of
    one broker, because two damaged copies are more than a protocol must survive."""
    choose, when = builder.choose, builder.when()
    kind = KINDS[choose.pick(builder.disk_faults)]
    on = builder.leader if choose.chance(50) else builder.broker()
    if kind.loss:
        builder.disk_victim = on = builder.disk_victim or builder.broker()
    span = builder.span_ms(10, 60, 130, 250, 400)
    more: dict[str, Any] = {}
    if kind is SlowFsync:
        more["delay_ms"] = max(1, builder.span_ms(30, 60, 130))
    elif kind is FsyncError:
        more["written"] = choose.chance(30)
    elif kind is DiskFull:
        more["limit"] = choose.pick(("file-system", "map"))
    make: Callable[..., Fault] = kind
    builder.add(make(on=on, for_ms=span, **more, **when))
    builder.expect_election()


SCENARIOS: Final[dict[Scenario, int]] = {
    fail_leader: 45,
    diverge_leader: 35,
    delay_follower: 30,
    disturb_messages: 40,
    restart: 35,
    transfer_leadership: 20,
    stale_metadata: 20,
    power_loss: 20,
    crash_in_turn: 25,
    partial_partition: 12,
    admin_change: 18,
    isr_flap: 40,
    failover_while_lagging: 25,
    alternate_leaders: 40,
    repeated_failover: 30,
}
"""The scenarios, each with the percentage of schedules that may use it."""
SCENARIOS_WITH_VOTES: Final[dict[Scenario, int]] = {
    fail_leader: 45,
    diverge_leader: 35,
    delay_follower: 25,
    disturb_messages: 35,
    restart: 35,
    power_loss: 25,
    crash_in_turn: 35,
    partial_partition: 15,
    repeated_failover: 70,
    contended_election: 45,
}
"""The scenarios if replicas vote, so that there is no controller to send requests to."""
