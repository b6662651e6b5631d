"""Scenarios that belong to a dimension (`dimensions`): most schedules lack them.

They are like those of `scenarios`. Each needs a special cluster (several voters, a
spare broker, disks that lose unsynced data), or is so long that it would displace the others."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from harness.search.draw.scenario_builder import LinkAction, ScenarioBuilder, When, direction, later
from harness.search.draw.scenarios import down_for, fail_leader_at, leader_gone, leave_isr
from nemesis.faults import Cut, Isolate, Kill, Link, Pause, PowerCut, Reassign, Release, SetMinIsr
from nemesis.formats.schedule import After, Fault
from node.formats.trace import METADATA_PARTITION

# -- voters of the metadata partition


def fail_voter(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which controller, another voter, or most voters at once die, freeze or are
    cut off; then perhaps also the next controller, or the leader of the data partition."""
    choose, when = builder.choose, builder.when()
    names = builder.cluster.voter_names()
    match: dict[str, Any] = {"state": "active"}
    begins = After(event="controller", match=match)
    if choose.chance(35):
        # The in-sync set changes meanwhile.
        span = builder.span_ms(250, 400, 130)
        builder.add(builder.drop_responses("rest", builder.broker(), span, when))
    for _ in range(choose.pick((2, 3, 2, 1))):
        on = choose.pick(("controller", "controller", "controller", choose.pick(names)))
        if choose.chance(15):
            on = ",".join(names[: len(names) // 2 + 1])
        span = builder.voters_ms(100, 150, 300, 600, 40)
        builder.add(_voter_gone(builder, on, span, when))
        builder.advance(2 * builder.cluster.timings.election_max_ms)
        if on == "controller" and choose.chance(70):
            # The first controller began before the storm.
            builder.controllers += 1
            begins = After(event="controller", match=match, nth=builder.controllers)
            when = {"after": replace(begins, delay_ms=choose.pick((0, 0, 1, 5, 30)))}
        else:
            when = later({"at_ms": builder.now_ms}, choose.pick((0, 50, 150)))
    if choose.chance(40):
        fail_leader_at(builder, when)
        return
    at = {"partition": builder.partition}
    builder.triggers = [
        begins,
        begins,
        After(event="controller", match={"state": "resigned"}),
        After(event="partition", match=at, nth=choose.integer(1, 2)),
        After(event="vote", match={"partition": METADATA_PARTITION, "pre": False}, nth=2),
    ]


def _voter_gone(builder: ScenarioBuilder, on: str, span: int, when: When) -> Fault:
    """Draw a failure of the voters `on`, or links over which they hear only some others."""
    choose = builder.choose
    ways = ("kill", "kill", "isolate", "isolate", "power", "pause", "cut", "late", "apart", "apart")
    match choose.pick(ways):
        case "kill":
            return Kill(on=on, for_ms=span, **when)
        case "isolate":
            return Isolate(on=on, for_ms=span, **when)
        case "power":
            return PowerCut(on=on, for_ms=span, keep_percent=choose.pick((0, None)), **when)
        case "pause":
            return Pause(on=on, for_ms=span, **when)
        case "apart":
            # Brokers still reach it, the other voters do not.
            return Cut(on=on, to="voters", for_ms=max(span, builder.voters_ms(200, 300)), **when)
        case "cut":
            to = choose.pick(("voters", "all", builder.leader))
            return Cut(on=on, to=to, two_way=choose.chance(50), for_ms=span, **when)
        case _:
            kinds = choose.pick(
                (("vote", "vote-response"), ("fetch", "fetch-response"), ("begin-epoch",))
            )
            return Link(
                on=on,
                to="voters",
                two_way=choose.chance(50),
                action="delay",
                kinds=kinds,
                match={"partition": METADATA_PARTITION},
                delay_ms=choose.pick((50, 100, 250, 500)),
                for_ms=span,
                **when,
            )


# -- what an operator changes while brokers fail


def change_min_isr(builder: ScenarioBuilder) -> None:
    """Draw a change of min.insync.replicas before a failover that is undone after it."""
    choose, when = builder.choose, builder.when()
    most = builder.cluster.replication_factor
    # With all replicas needed, one that leaves stays eligible until fewer are.
    raised = most > 1 and choose.chance(35)
    if raised:
        builder.add(SetMinIsr(min_isr=most, **when))
        when = later(when, choose.pick((2, 20)))
    if raised or choose.chance(35):
        on, gone_at = builder.broker(), when
        builder.advance(leave_isr(builder, on, gone_at))
        match = {"partition": builder.partition}
        when = {"after": After(event="isr", match=match, delay_ms=choose.pick((0, 0, 2, 20)))}
        if raised and choose.chance(50):
            leave_isr(builder, builder.broker(but=on), gone_at)
            when = later(when, choose.pick((0, 30, 100)))
    first = choose.integer(1, most - 1 if raised else most)
    builder.add(SetMinIsr(min_isr=first, **when))
    if choose.chance(75):
        fail_leader_at(builder, later(when, choose.pick((0, 1, 5, 30, 100))))
        when = builder.when_leading(choose.pick((0, 0, 1, 5, 50)))
    else:
        builder.add(leader_gone(builder, builder.span_ms(60, 130, 250), later(when, 2)))
        builder.expect_isr_change()
        when = later(when, choose.pick((20, 80, 200)))
    others = [size for size in range(1, most + 1) if size != first]
    if others and choose.chance(70):
        builder.add(SetMinIsr(min_isr=choose.pick(others), **when))
    builder.triggers.append(After(event="partition", match={"partition": builder.partition}))


def cancel_move(builder: ScenarioBuilder) -> None:
    """Draw a move of a partition that is cancelled or replaced while a new replica is catching up,
    has just caught up, or has failed. Then the same move may be requested again."""
    choose, when = builder.choose, builder.when()
    names = list(builder.cluster.broker_names())
    stays = [name for name in builder.replicas if choose.chance(60)]
    added = [name for name in names if name not in builder.replicas]
    joins = [name for name in added if choose.chance(70)] or added[:1]
    target = [*stays, *joins] or names[:1]
    target = target[choose.integer(0, len(target) - 1) :] or target
    move = Reassign(partition=builder.partition, replicas=",".join(target), **when)
    builder.add(move)
    if joins and choose.chance(30):
        builder.add(_late_fetches(builder, ",".join(joins), when))
    if len(joins) > 1 and choose.chance(50):
        _move_without_the_old(builder, joins, target, when)
        return
    if joins and choose.chance(50):
        on, soon = choose.pick(joins), later(when, choose.pick((0, 2, 10)))
        builder.add(builder.drop_responses("rest", on, builder.span_ms(60, 130, 250), soon))
    delay_ms = choose.pick((0, 1, 5, 20, 60, 150))
    moved: When = later(when, delay_ms)
    if choose.chance(60):
        event = choose.pick(("partition", "proposed", "isr"))
        match = {"partition": builder.partition}
        moved = {"after": After(event=event, match=match, nth=choose.integer(1, 3))}
        moved = later(moved, choose.pick((0, 0, 1, 10)))
    if choose.chance(35):
        fail_leader_at(builder, later(when, choose.pick((0, 2, 20))))
    again = ",".join(builder.replicas) if choose.chance(25) else ""
    builder.add(Reassign(partition=builder.partition, replicas=again, **moved))
    if choose.chance(40):
        once_more = later(moved, choose.pick((1, 10, 60, 200)))
        builder.add(Reassign(partition=builder.partition, replicas=",".join(target), **once_more))
    builder.expect_isr_change()


def _late_fetches(builder: ScenarioBuilder, on: str, when: When) -> Link:
    """Draw fetches of joining replicas that arrive again, when these may have left."""
    return Link(
        on=on,
        to="rest",
        action="duplicate",
        kinds=("fetch",),
        match={"partition": builder.partition},
        delay_ms=builder.choose.pick((60, 20, 120, 250)),
        for_ms=builder.span_ms(250, 130, 400),
        **when,
    )


def _move_without_the_old(
    builder: ScenarioBuilder, joins: list[str], target: list[str], when: When
) -> None:
    """Draw a sequence in which a move comes to a halt: one new replica stays behind, and when
    another one is in sync all old ones fail. Then the move is cancelled, or goes on."""
    choose, at = builder.choose, {"partition": builder.partition}
    builder.add(builder.drop_responses("rest", joins[-1], builder.span_ms(800, 1000), when))
    adding = [name for name in target if name in joins]
    joined: When = {"after": After(event="partition", match={**at, "adding": adding}, nth=2)}
    span = builder.span_ms(400, 800, 250)
    builder.add(
        Kill(on=",".join(builder.replicas), for_ms=span, **later(joined, choose.pick((0, 5, 30))))
    )
    session_ms = builder.cluster.timings.session_ms
    over = later(joined, session_ms * choose.pick((130, 150, 200)) // 100)
    if choose.chance(80):
        builder.add(Reassign(partition=builder.partition, replicas="", **over))
    builder.expect_election()


# -- messages that are older than the process they meet


def outlive_sender(builder: ScenarioBuilder) -> None:
    """Draw a rule by which messages of a process, or answers to it, arrive once or twice after it
    was replaced. The rule matches the node's name, so the next process has it too."""
    choose, when = builder.choose, builder.when(arming=True)
    on = choose.pick((builder.broker(), builder.broker(), builder.preferred))
    sends = choose.chance(55)
    kind = choose.pick(
        ("alter-partition", "fetch", "register", "heartbeat", "offset-for-leader-epoch")
        if sends
        else ("register-response", "register-response", "alter-partition-response")
    )
    session_ms = builder.cluster.timings.session_ms
    actions: tuple[LinkAction, ...] = ("delay", "duplicate", "duplicate", "hold")
    action = choose.pick(actions)
    name = f"old-{len(builder.faults)}" if action == "hold" else ""
    builder.add(
        Link(
            name=name,
            **direction(on, "rest", sends=sends),
            action=action,
            kinds=(kind,),
            match=builder.of_partition(kind),
            delay_ms=0 if name else session_ms * choose.pick((60, 100, 150, 250, 30)) // 100,
            limit=choose.pick((None, None, 1, 3)),
            for_ms=builder.span_ms(400, 800, 250),
            **when,
        )
    )
    there: dict[str, Any] = {"node": on}
    # The first process registered before the rule was there.
    registers = kind in ("register", "register-response")
    for process in range(2, 4 if registers else choose.pick((3, 4))):
        gone_at = builder.when()
        if registers and process > 2:
            gone_at = later({"after": builder.triggers[0]}, choose.pick((0, 5, 30, 60)))
        builder.add(down_for(builder, on, choose.pick((0, 0, 10, 50)), gone_at))
        again = {**there, "incarnation": {"at_least": process}}
        here = {**again, "partition": builder.partition}
        builder.triggers = [
            After(event="registered", match=again),
            After(event="started", match=again),
            After(event="role", match=here),
            After(event="append", match=here, nth=choose.integer(1, 2)),
            After(event="isr", match={"partition": builder.partition}, nth=choose.integer(2, 3)),
        ]
        builder.advance(session_ms)
    if name:
        builder.add(Release(of=name, **later({"after": builder.triggers[0]}, choose.pick((0, 5)))))


def late_votes(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which votes, or requests for votes, arrive two or more elections late. In
    between the leader is replaced each time, and voters may restart."""
    choose, when = builder.choose, builder.when(arming=True)
    slow = choose.pick(builder.replicas)
    on, to, kinds = choose.pick(
        (
            ("rest", slow, ("vote-response",)),
            ("rest", slow, ("vote-response",)),
            (slow, "rest", ("vote",)),
            ("all", "all", ("vote-response",)),
            (slow, "rest", ("begin-epoch",)),
        )
    )
    pre: dict[str, Any] = {} if kinds == ("begin-epoch",) or choose.chance(30) else {"pre": False}
    action: LinkAction = choose.pick(("duplicate", "delay", "duplicate"))
    election_ms = builder.cluster.timings.election_max_ms
    builder.add(
        Link(
            on=on,
            to=to,
            action=action,
            kinds=kinds,
            match={"partition": builder.partition, **pre},
            delay_ms=election_ms * choose.pick((150, 200, 300, 400)) // 100,
            limit=choose.pick((None, 1, 2)),
            for_ms=builder.span_ms(200, 400, 800),
            **when,
        )
    )
    for _ in range(choose.pick((2, 3, 4))):
        gone_at = builder.when_leading(choose.pick((0, 0, 1, 20)))
        builder.add(leader_gone(builder, builder.span_ms(100, 150, 250), gone_at))
        builder.expect_election()
        if choose.chance(30):
            builder.add(down_for(builder, slow, choose.pick((0, 5, 30)), builder.when()))


# -- losses and silence


def power_below_min_isr(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which followers leave the in-sync set one after another until it is too
    small; then mostly one broker loses power, and the others come back."""
    choose, when = builder.choose, builder.when()
    followers = [name for name in builder.replicas if name != builder.preferred]
    size = len(builder.replicas)
    needed = max(1, size - builder.cluster.min_isr + 1)
    for name in followers[:needed]:
        span = builder.span_ms(250, 400, 600)
        builder.add(
            Isolate(on=name, for_ms=span, **when)
            if choose.chance(60)
            else builder.drop_responses("rest", name, span, when)
        )
        when = later(when, choose.pick((0, 20, 60, 120)))
    builder.advance(builder.cluster.timings.session_ms)
    if choose.chance(25):
        # They come back one by one, and nothing else happens.
        builder.expect_isr_change()
        return
    small = list(builder.replicas[:1]) if needed == size - 1 else None
    match: dict[str, Any] = {"partition": builder.partition}
    if small is not None and choose.chance(50):
        match["isr"] = small
    shrunk: When = {"after": After(event="isr", match=match, nth=choose.integer(1, max(1, needed)))}
    on = choose.pick((builder.leader, builder.preferred, followers[0] if followers else "n1"))
    keep = choose.pick((0, None, 50))
    span = builder.span_ms(5, 30, 130, 300)
    soon = later(shrunk, choose.pick((0, 1, 10, 60)))
    builder.add(PowerCut(on=on, for_ms=span, keep_percent=keep, **soon))
    builder.expect_election()


def long_pause(builder: ScenarioBuilder) -> None:
    """Draw a broker that freezes for several sessions, and then gets all messages at once."""
    choose, when = builder.choose, builder.when()
    on = choose.pick((builder.leader, builder.leader, builder.broker()))
    span = builder.cluster.timings.session_ms * choose.pick((3, 5, 8)) // 1
    builder.add(Pause(on=on, for_ms=min(span, 1_500), **when))
    builder.expect_election()
