"""Situations: whole sequences of faults that lead to states which chains of scenarios seldom reach.

More than a third of the schedules begin with one. Each leads to a class of states that the rules of
replication distinguish, and independent faults hardly ever cause: a process that is back within its
session, one that dies again before it is registered, a leader that leads again with its old memory,
two candidates of one term, messages after their purpose is gone. No situation knows a bug. It draws
the cluster that it needs; the schedule continues like any other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from harness.search.draw import producer_and_disk_situations as more
from harness.search.draw import replication_situations as who
from harness.search.draw.choice_source import RandomChoices
from harness.search.draw.scenario_builder import (
    LinkAction,
    ScenarioBuilder,
    When,
    direction,
    later,
    process_of,
)
from harness.search.draw.scenarios import Scenario, down_for, fail_leader_at, leader_gone
from nemesis.faults import (
    Break,
    Cut,
    ElectPreferred,
    ElectUnclean,
    Isolate,
    Kill,
    Link,
    PowerCut,
    Reassign,
    Release,
)
from nemesis.formats.schedule import After, Cluster, Fault, Workload
from node.core.protocol import LeaderBy
from node.core.protocol import protocol as protocol_of
from node.formats.trace import METADATA_PARTITION

PERCENT: Final = 38
"""The percentage of schedules that begin with a situation."""


def _same(choose: RandomChoices, cluster: Cluster) -> Cluster:
    return cluster


def _any_load(choose: RandomChoices, workload: Workload) -> Workload:
    return workload


@dataclass(frozen=True, slots=True)
class Situation:
    """A sequence of faults that a schedule may begin with, drawn in proportion to its `weight`.
    `cluster` and `workload` draw what it needs, `led_by` is its kind of leadership, if any."""

    name: str
    scenario: Scenario
    led_by: LeaderBy | None = None
    cluster: Callable[[RandomChoices, Cluster], Cluster] = _same
    workload: Callable[[RandomChoices, Workload], Workload] = _any_load
    weight: int = 2


def draw_situation(choose: RandomChoices, led_by: LeaderBy) -> Situation | None:
    """Draw the situation that a schedule begins with, None for most schedules."""
    if not choose.chance(PERCENT):
        return None
    possible = [each for each in SITUATIONS if each.led_by in (None, led_by)]
    return choose.pick([each for each in possible for _ in range(each.weight)])


def _copies(choose: RandomChoices, cluster: Cluster) -> Cluster:
    """Use at least two copies of the partition, mostly three."""
    brokers = max(3, cluster.brokers)
    factor = max(cluster.replication_factor, choose.pick((3, 3, 2)))
    return replace(cluster, brokers=brokers, replication_factor=factor)


def _loses(choose: RandomChoices, cluster: Cluster) -> Cluster:
    """Draw a cluster in which unsynced data may be lost, and min.insync.replicas is all replicas,
    or all but one; a replica that leaves the in-sync set stays eligible."""
    cluster = _copies(choose, cluster)
    if protocol_of(cluster.protocol).clean_only:
        return cluster
    min_isr = max(2, cluster.replication_factor - choose.pick((0, 0, 1)))
    return replace(
        cluster, flush="async", flush_interval_ms=1000, min_isr=min_isr, unclean_election=False
    )


def _may_lose(choose: RandomChoices, cluster: Cluster) -> Cluster:
    return _loses(choose, cluster) if choose.chance(50) else _copies(choose, cluster)


def _spare(choose: RandomChoices, cluster: Cluster) -> Cluster:
    """Use two or three copies, on three or four brokers."""
    brokers = choose.pick((3, 4))
    factor = choose.pick((3, 2, 3))
    return replace(
        cluster, brokers=brokers, replication_factor=factor, min_isr=choose.pick((1, 2, 1))
    )


def _unclean(choose: RandomChoices, cluster: Cluster) -> Cluster:
    if protocol_of(cluster.protocol).clean_only:
        return _copies(choose, cluster)
    return replace(_copies(choose, cluster), unclean_election=choose.chance(60), min_isr=1)


def _stays_in_sync(choose: RandomChoices, cluster: Cluster) -> Cluster:
    """Draw a cluster in which a replica that is cut off for a while stays in the in-sync set. In
    some of them the beginning of logs is soon deleted, also of logs that differ."""
    cluster = _copies(choose, cluster)
    timings = replace(cluster.timings, lag_ms=2000, session_ms=choose.pick((250, 600)))
    kept = choose.pick((2, 1, 5)) if choose.chance(35) else 0
    return replace(cluster, timings=timings, retention_records=kept)


def _uneven_batches(choose: RandomChoices, workload: Workload) -> Workload:
    """Make batches of different sizes: those of two logs seldom end at the same offset."""
    if choose.chance(65):
        workload = replace(workload, batch=1, batch_most=choose.pick((5, 3, 8)))
    return workload


def _soon_answered(choose: RandomChoices, workload: Workload) -> Workload:
    """Draw a usual workload, or as often one whose clients do not wait for followers (acks 1)."""
    return replace(_uneven_batches(choose, workload), acks=choose.pick((1, -1)))


def _flushed_late(choose: RandomChoices, cluster: Cluster) -> Cluster:
    """Draw a cluster in which logs are synced late, and high watermarks are written down soon."""
    cluster = _copies(choose, cluster)
    if protocol_of(cluster.protocol).clean_only:
        return cluster
    timings = replace(cluster.timings, hw_checkpoint_ms=20)
    min_isr = min(cluster.replication_factor, choose.pick((1, 2, 1)))
    return replace(cluster, flush="async", flush_interval_ms=1000, min_isr=min_isr, timings=timings)


def _few_in_sync(choose: RandomChoices, cluster: Cluster) -> Cluster:
    """Draw a cluster of one replica or a few, with min.insync.replicas 1."""
    brokers = max(3, cluster.brokers)
    return replace(cluster, brokers=brokers, replication_factor=choose.pick((2, 1, 3)), min_isr=1)


def _rivals(choose: RandomChoices, cluster: Cluster) -> Cluster:
    """Draw three to five replicas, whose candidates stand for election at nearly one time."""
    size = choose.pick((3, 4, 5, 3))
    timings = cluster.timings
    if choose.chance(60):
        timings = replace(timings, election_max_ms=timings.election_min_ms + choose.pick((15, 5)))
    return replace(
        cluster,
        brokers=size,
        replication_factor=size,
        min_isr=min(cluster.min_isr, size),
        timings=timings,
    )


# -- processes


def leads_on(builder: ScenarioBuilder) -> None:
    """Draw a broker, mostly the leader, that restarts within its session and continues in the same
    epoch with fewer records. Its followers get their answers late, so that it writes first."""
    choose, when = builder.choose, builder.when(arming=True)
    on = builder.preferred if choose.chance(80) else builder.broker()
    at = {"partition": builder.partition}
    gone: When
    if choose.chance(60):
        event = choose.pick(("append", "append", "append", "hw"))
        builder.add(
            Break(
                on=on,
                event=event,
                match=at,
                nth=choose.integer(1, 3),
                before=choose.pick(("commit", "commit", "send")),
                **when,
            )
        )
        builder.crashes += 1
        gone = {"after": After(event="break", nth=builder.crashes)}
    else:
        match = {**at, "node": on, "role": choose.pick(("leader", "leader", "follower"))}
        gone = {"after": After(event="append", match=match, nth=choose.integer(1, 3))}
    span = choose.pick((0, 2, 10, 30))
    builder.add(
        PowerCut(on=on, for_ms=span, keep_percent=choose.pick((0, 0, None)), **gone)
        if choose.chance(50)
        else Kill(on=on, for_ms=span, **gone)
    )
    if choose.chance(75):
        # A record or two is written before anybody asks.
        builder.add(
            Link(
                on="rest",
                to=on,
                action=choose.pick(("drop", "drop", "hold")),
                kinds=("fetch", "offset-for-leader-epoch"),
                match=at,
                for_ms=span + choose.pick((100, 200, 50, 350)),
                **gone,
            )
        )
    if not builder.votes and choose.chance(35):
        # It begins with the metadata that is on its disk; one that follows it knows no better.
        to = choose.pick((on, f"{on},{choose.pick(_others(builder))}"))
        builder.add(_metadata(to, "drop", 0, builder.span_ms(250, 400, 600), gone))
    again = {"node": on, "incarnation": {"at_least": 2}}
    here = {**again, **at}
    builder.advance(builder.cluster.timings.session_ms)
    builder.triggers = [
        After(event="append", match=here, nth=choose.integer(1, 3)),
        After(event="hw", match=here, nth=choose.integer(1, 2)),
        After(event="registered", match=again),
    ]
    if choose.chance(50):
        fail_leader_at(builder, builder.when())


def unequal_remains(builder: ScenarioBuilder) -> None:
    """Draw a loss of power of all brokers; each keeps other records. One is back at once and writes
    other records at offsets where the others still have the lost ones."""
    choose = builder.choose
    first = builder.preferred if choose.chance(35) else choose.pick(_others(builder))
    others = ",".join(name for name in builder.replicas if name != first)
    # Something is committed that is not synced.
    match = {"node": first, "partition": builder.partition}
    event: When = {"after": After(event="hw", match=match, nth=choose.integer(2, 6))}
    gone = later(event, choose.pick((30, 60, 5, 120)))
    session_ms = builder.cluster.timings.session_ms
    kept = choose.pick((50, 75, 25))
    builder.add(
        PowerCut(on=first, for_ms=choose.pick((0, 2, 20)), keep_percent=kept, **gone),
        PowerCut(
            on=others,
            for_ms=session_ms * choose.pick((130, 180, 250, 50)) // 100,
            keep_percent=choose.pick((100, 100, None)),
            **gone,
        ),
    )
    builder.expect_election()


def dies_again(builder: ScenarioBuilder) -> None:
    """Draw a process that lost data and dies again unregistered; then the others fail."""
    choose, when, on = builder.choose, builder.when(), builder.broker()
    if choose.chance(60):
        # Something is there that can be lost.
        match = {"node": on, "partition": builder.partition}
        event = choose.pick(("append", "append", "hw"))
        when = {"after": After(event=event, match=match, nth=choose.integer(1, 5))}
    session_ms = builder.cluster.timings.session_ms
    keep = choose.pick((0, 0, None))
    builder.add(PowerCut(on=on, for_ms=choose.pick((0, 10, 50)), keep_percent=keep, **when))
    for process in range(2, choose.pick((3, 3, 4))):
        began: When = {"after": After(event="started", match=process_of(on, process))}
        soon = later(began, choose.pick((0, 5, 30, session_ms // 2)))
        builder.add(down_for(builder, on, choose.pick((0, 10, 50, session_ms)), soon))
    if choose.chance(25):
        names = [name for name in builder.replicas if name != on]
        builder.add(down_for(builder, choose.pick(names), session_ms, later(when, 5)))
    builder.advance(2 * session_ms)
    back = {"after": After(event="registered", match={"node": on, "incarnation": {"at_least": 3}})}
    others = ",".join(name for name in builder.replicas if name != on)
    span = builder.span_ms(250, 400, 800)
    if choose.chance(60):
        builder.add(Kill(on=others, for_ms=span, **later(back, choose.pick((0, 0, 2, 20)))))
    elif choose.chance(50):
        builder.add(Kill(on=others, for_ms=span, **later(when, choose.pick((5, 60, session_ms)))))
    builder.expect_election()


def last_in_sync(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which the leader is alone in sync, as the only copy or because the others
    are away; it dies in the middle of a turn, and is soon back."""
    choose, when = builder.choose, builder.when()
    timings = builder.cluster.timings
    if others := ",".join(name for name in builder.replicas if name != builder.preferred):
        notice_ms = min(timings.session_ms, timings.lag_ms) * choose.pick((130, 180)) // 100
        away_ms = notice_ms + choose.pick((2, 4)) * timings.session_ms
        builder.add(
            Kill(on=others, for_ms=away_ms, **when)
            if choose.chance(50)
            else Isolate(on=others, for_ms=away_ms, **when)
        )
        when = later(when, notice_ms)
        builder.advance(notice_ms)
    builder.add(
        Break(
            on=builder.leader,
            event=choose.pick(("append", "append", "ack", "hw")),
            match={"partition": builder.partition},
            nth=choose.integer(1, 3),
            before=choose.pick(("commit", "commit", "send")),
            **when,
        )
    )
    builder.crashes += 1
    gone: When = {"after": After(event="break", nth=builder.crashes)}
    span = choose.pick((0, 10, 50, timings.session_ms, 2 * timings.session_ms))
    builder.add(down_for(builder, builder.leader, span, gone))
    builder.expect_election()


def late_registration(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which a registration, or its answer, arrives again while a later process
    that lost data waits for its own. Messages of that process are late too."""
    choose, when, on = builder.choose, builder.when(), builder.broker()
    answers = choose.chance(75)
    wait_ms = choose.pick((100, 200, 60, 300))
    again_ms = wait_ms + choose.pick((5, 20, 60, 120))
    builder.add(
        Link(
            on="voters" if answers else on,
            to=on if answers else "voters",
            action="duplicate",
            kinds=("register-response",) if answers else ("register",),
            delay_ms=again_ms,
            for_ms=builder.cluster.timings.session_ms + 200,
            **when,
        ),
        down_for(builder, on, 0, later(when, 1)),
    )
    registered = {"after": After(event="registered", match=process_of(on, 2))}
    gone = later(registered, wait_ms)
    builder.add(PowerCut(on=on, for_ms=choose.pick((0, 2, 20)), keep_percent=0, **gone))
    span = choose.pick((2, 1, 3)) * builder.cluster.timings.session_ms
    if choose.chance(65):
        builder.add(
            Link(on=on, to="voters", action="drop", kinds=("register",), for_ms=span, **gone)
        )
    if choose.chance(65):
        builder.add(builder.drop_responses("rest", on, span, gone))
    builder.advance(3 * builder.cluster.timings.session_ms)
    builder.triggers = [After(event="started", match=process_of(on, 3))]
    if choose.chance(50):
        others = ",".join(name for name in builder.replicas if name != on)
        after = later(gone, again_ms - wait_ms + choose.pick((5, 50, 120)))
        builder.add(Kill(on=others, for_ms=builder.span_ms(250, 400), **after))


# -- leaders


def leads_again(builder: ScenarioBuilder) -> None:
    """Draw a leader that does not die and leads again after another one. Followers had more records
    than it, were cut off, or do not hear it; each learns of the changes at another time."""
    if not builder.votes and builder.choose.chance(45):
        _moved_and_back(builder)
        return
    choose, when = builder.choose, builder.when()
    one, (second, *thirds) = builder.preferred, _others(builder)
    third = choose.pick(thirds) if thirds else second
    session_ms = builder.cluster.timings.session_ms
    wait_ms = choose.pick((60, 30, 120, 200, 400))
    if choose.chance(75):
        # Only the third replica, or none, has what it writes last.
        to = choose.pick((second, second, second, third))
        for_ms = wait_ms + choose.pick((session_ms, 20, session_ms // 2))
        builder.add(Cut(on=one, to=to, for_ms=for_ms, **when))
    gone = later(when, wait_ms)
    builder.add(Isolate(on=one, for_ms=builder.span_ms(150, 150, 250), **gone))
    builder.expect_election()
    pause_ms = choose.pick((2 * session_ms, session_ms, 2 * session_ms, 100))
    builder.nobody_writes(2 * session_ms + pause_ms, gone)
    back = builder.when_leading(pause_ms)
    if not builder.votes and choose.chance(40):
        builder.add(ElectPreferred(partition=builder.partition, first=one, **back))
    else:
        builder.add(_fails(builder, builder.leader, back))
    builder.expect_election()
    if choose.chance(75):
        # What it remembers of this follower is not renewed.
        span = builder.span_ms(250, 400, 800)
        builder.add(Cut(on=one, to=third, for_ms=span, **later(back, choose.pick((0, 0, 5)))))
    if choose.chance(40):
        fail_leader_at(builder, builder.when_leading(choose.pick((20, 60, 150))))


def _fails(builder: ScenarioBuilder, on: str, when: When) -> Fault:
    """Return a fault by which `on` dies or is cut off for longer than its session timeout."""
    span = builder.span_ms(250, 400)
    if builder.choose.chance(50):
        return Kill(on=on, for_ms=span, **when)
    return Isolate(on=on, for_ms=span, **when)


def _moved_and_back(builder: ScenarioBuilder) -> None:
    """Draw a leadership that is moved away and soon back. One replica learns of each change late;
    the one between, or the first leader, does not learn that it was replaced."""
    choose, when = builder.choose, builder.when()
    one, (second, *thirds) = builder.preferred, _others(builder)
    third = choose.pick(thirds) if thirds else second
    session_ms = builder.cluster.timings.session_ms
    late_ms = session_ms * choose.pick((80, 40, 20, 60)) // 100
    builder.add(_metadata(third, "delay", late_ms, 4 * session_ms, when))
    unaware = choose.pick((second, second, one, ""))
    moved = later(when, choose.pick((5, 30, 100)))
    if unaware == one:
        builder.add(_metadata(one, "drop", 0, choose.pick((1, 2)) * session_ms, moved))
    builder.add(ElectPreferred(partition=builder.partition, first=second, **moved))
    builder.expect_election()
    back = builder.when_leading(choose.pick((20, 5, 60, 100, 1)))
    if unaware == second:
        builder.add(_metadata(second, "drop", 0, choose.pick((1, 2)) * session_ms, back))
    if choose.chance(70):
        builder.add(ElectPreferred(partition=builder.partition, first=one, **later(back, 1)))
    else:
        builder.add(down_for(builder, second, session_ms, later(back, 1)))
    builder.expect_election()
    if choose.chance(30):
        builder.nobody_writes(session_ms, moved)
    if choose.chance(50):
        fail_leader_at(builder, builder.when_leading(late_ms + choose.pick((0, 20, 60))))


def own_tails(builder: ScenarioBuilder) -> None:
    """Draw two replicas that lead alternately without hearing each other, and write different
    records at the same offsets. The first leads again; the other must find where they diverge."""
    choose = builder.choose
    one, (second, *_) = builder.preferred, _others(builder)
    if protocol_of(builder.cluster.protocol).random_first_leader:
        builder.add(ElectPreferred(partition=builder.partition, first=one, at_ms=0))
        builder.expect_election()
    when = builder.when(arming=True)
    alone_ms = choose.pick((120, 60, 200, 300))
    other_ms = choose.pick((30, 10, 60, 120))
    apart_ms = alone_ms + other_ms + choose.pick((60, 30, 150))
    builder.add(Cut(on=one, to=second, for_ms=apart_ms, **when))
    moved = later(when, alone_ms)
    builder.add(ElectPreferred(partition=builder.partition, first=second, **moved))
    builder.expect_election()
    leads = {"partition": builder.partition, "node": second, "role": "leader"}
    back: When = later({"after": After(event="role", match=leads)}, other_ms)
    builder.add(ElectPreferred(partition=builder.partition, first=one, **back))
    builder.expect_election()


def _metadata(on: str, action: LinkAction, late_ms: int, span: int, when: When) -> Link:
    """Return a rule by which broker `on` gets changes of the metadata late, or none."""
    return Link(
        on="voters",
        to=on,
        action=action,
        kinds=("fetch-response",),
        match={"partition": METADATA_PARTITION},
        delay_ms=late_ms,
        for_ms=span,
        **when,
    )


def _others(builder: ScenarioBuilder) -> list[str]:
    """Return the replicas that do not lead first; if there is only one replica, that one."""
    names = [name for name in builder.replicas if name != builder.preferred]
    if len(names) > 1 and builder.choose.chance(25):
        names.reverse()
    return names or [builder.preferred]


def late_copies(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which answers of leaders arrive a second time, or late, after their
    follower has moved on; then the follower gets no more answers, and a leader fails."""
    choose, when = builder.choose, builder.when(arming=True)
    to = choose.pick(("all", builder.broker()))
    if choose.chance(40):
        builder.nobody_writes(builder.span_ms(250, 400, 600), builder.when(arming=True))
    actions: tuple[LinkAction, ...] = ("duplicate", "duplicate", "duplicate", "delay")
    late_ms = choose.pick((30, 60, 120, 10, 250))
    builder.add(
        Link(
            on="all",
            to=to,
            action=choose.pick(actions),
            kinds=("fetch-response", "offset-for-leader-epoch-response"),
            match={"partition": builder.partition},
            delay_ms=late_ms,
            limit=choose.pick((None, None, 1, 3)),
            for_ms=builder.span_ms(400, 800, 250),
            **when,
        )
    )
    for _ in range(choose.pick((1, 2, 2))):
        match = {"partition": builder.partition}
        event = choose.pick(("append", "hw", "hw"))
        role = {"role": choose.pick(("leader", "follower"))}
        after = After(event=event, match={**match, **role}, nth=choose.integer(2, 8))
        gone = later({"after": after}, choose.pick((0, late_ms, late_ms + 2, late_ms + 10)))
        if builder.elections:
            gone = builder.when_leading(choose.pick((0, 10, late_ms, 2 * late_ms)))
        builder.add(leader_gone(builder, builder.span_ms(150, 250, 400), gone))
        builder.expect_election()


def old_answers(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which only one follower has the leader's last records; then old fetch
    responses reach it a second time, and the leader fails before their effect is repaired."""
    choose, to = builder.choose, builder.broker()
    at = {"partition": builder.partition, "role": "follower"}
    when: When = {"after": After(event="append", match=at, nth=choose.integer(1, 8))}
    if choose.chance(30):
        when = builder.when()
    late_ms, copied_ms = choose.pick((60, 120, 200)), choose.pick((60, 120, 20))
    builder.add(
        Link(
            on="all",
            to=to,
            action="duplicate",
            kinds=("fetch-response", "offset-for-leader-epoch-response"),
            match={"partition": builder.partition},
            delay_ms=late_ms,
            for_ms=copied_ms,
            **when,
        )
    )
    slow = ",".join(name for name in builder.replicas if name != to)
    if slow:
        span = late_ms + copied_ms + choose.pick((20, 60, 120))
        builder.add(builder.drop_responses("all", slow, span, when))
    gone = later(when, late_ms + choose.pick((copied_ms // 2, copied_ms, copied_ms + 20, 5)))
    builder.add(leader_gone(builder, builder.span_ms(150, 250, 400), gone))
    builder.expect_election()


# -- who is in sync, and who is a replica


def in_and_out(builder: ScenarioBuilder) -> None:
    """Draw a follower that leaves and enters the in-sync set, with late or doubled proposals."""
    choose, when, on = builder.choose, builder.when(), builder.broker()
    timings = builder.cluster.timings
    lag_ms = min(timings.lag_ms, timings.session_ms)
    asks = choose.chance(65)
    actions: tuple[LinkAction, ...] = ("duplicate", "duplicate", "delay")
    builder.add(
        Link(
            **direction(builder.leader, "voters", sends=asks),
            action=choose.pick(actions),
            kinds=("alter-partition",) if asks else ("alter-partition-response",),
            delay_ms=lag_ms * choose.pick((60, 100, 150, 200, 300)) // 100,
            for_ms=8 * lag_ms,
            **when,
        )
    )
    for _ in range(choose.pick((2, 2, 3))):
        span = lag_ms * choose.pick((130, 180, 250)) // 100
        builder.add(
            builder.drop_responses("rest", on, span, when)
            if timings.lag_ms <= timings.session_ms
            else Isolate(on=on, for_ms=span, **when)
        )
        when = later(when, span + choose.pick((20, 60, 120, lag_ms)))
        builder.advance(span)
    if choose.chance(50):
        builder.add(builder.drop_responses("rest", on, builder.span_ms(250, 400, 800), when))
    builder.expect_isr_change()
    if choose.chance(40):
        fail_leader_at(builder, later(when, choose.pick((10, 60, 150))))


def comes_back(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which a replica is removed from the partition and added again, empty. Then
    messages that it sent or was sent before its removal arrive. A leader may be removed too."""
    choose, when = builder.choose, builder.when()
    on = builder.broker() if choose.chance(80) else builder.preferred
    stays = [name for name in builder.replicas if name != on]
    added = [name for name in builder.cluster.broker_names() if name not in builder.replicas]
    less = stays + (added[:1] if added and choose.chance(50) else [])
    if not less:
        return
    sends = choose.chance(70)
    actions: tuple[LinkAction, ...] = ("duplicate", "duplicate", "delay", "hold")
    action = choose.pick(actions)
    name = f"late-{len(builder.faults)}" if action == "hold" else ""
    lead_ms, pause_ms = choose.pick((10, 60, 120)), choose.pick((20, 60, 5, 120))
    builder.add(
        Link(
            name=name,
            **direction(on, "rest", sends=sends),
            action=action,
            kinds=("fetch",) if sends else ("fetch-response",),
            match={"partition": builder.partition},
            delay_ms=0 if name else lead_ms + pause_ms + choose.pick((0, 10, 40, 100)),
            for_ms=lead_ms + (pause_ms + 100 if name else choose.pick((5, 60))),
            **when,
        ),
        Reassign(partition=builder.partition, replicas=",".join(less), **later(when, lead_ms)),
    )
    builder.nobody_writes(lead_ms + pause_ms + 150, when)
    whole = ",".join([*stays, on])
    back = later(when, lead_ms + pause_ms)
    builder.add(Reassign(partition=builder.partition, replicas=whole, **back))
    if choose.chance(60):
        # It gets nothing yet.
        span = builder.span_ms(250, 130, 400)
        builder.add(builder.drop_responses("rest", on, span, later(back, choose.pick((0, 0, 2)))))
    if name:
        builder.add(Release(of=name, **later(back, choose.pick((2, 10, 30)))))
    builder.expect_isr_change()
    if choose.chance(40):
        fail_leader_at(builder, later(back, choose.pick((20, 60, 150))))


def unclean(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which the last in-sync replica is down, and one that lacks records leads:
    the others have to truncate their logs, and may fail or be cut off while they do."""
    choose, when = builder.choose, builder.when()
    one, (behind, *more) = builder.preferred, _others(builder)
    session_ms = builder.cluster.timings.session_ms
    away_ms = choose.pick((3, 4, 2)) * session_ms
    builder.add(
        Kill(on=behind, for_ms=away_ms, **when)
        if choose.chance(50)
        else Isolate(on=behind, for_ms=away_ms, **when)
    )
    rest = ",".join([one, *more])
    gone = later(when, away_ms - choose.pick((20, 60, session_ms)))
    builder.add(Kill(on=rest, for_ms=builder.span_ms(250, 400), **gone))
    asked = later(when, away_ms + session_ms)
    builder.add(ElectUnclean(partition=builder.partition, **asked))
    builder.advance(away_ms)
    at = {"partition": builder.partition, "node": choose.pick([one, *more])}
    if choose.chance(50):
        cut: When = {"after": After(event="truncated", match=at)}
        builder.add(builder.drop_responses("rest", at["node"], builder.span_ms(130, 250), cut))
    builder.expect_election()


# -- votes


def rivals(builder: ScenarioBuilder) -> None:
    """Draw a sequence with several candidates in the same terms: some are cut off from others, and
    votes arrive twice, or later than a campaign."""
    choose, when = builder.choose, builder.when()
    names = list(builder.replicas)
    some = [names.pop(choose.integer(0, len(names) - 1)) for _ in range(min(2, len(names) - 1))]
    minority = choose.chance(50)
    span = builder.span_ms(400, 800, 600)
    builder.add(_late_or_doubled_votes(builder, some[0], span, when, twice=minority))
    if minority:
        builder.add(Cut(on=",".join(some), to=",".join(names), for_ms=span, **when))
        if len(names) == 1 or choose.chance(40):
            fail_leader_at(builder, later(when, choose.pick((20, 100, 200))))
    else:
        # These two never learn of each other's campaign.
        builder.add(Cut(on=some[0], to=some[-1], for_ms=span, **when))
        soon = later(when, 5)
        builder.add(
            # It is there to vote.
            down_for(builder, builder.leader, choose.pick((0, 10, 50)), soon)
            if choose.chance(60)
            else leader_gone(builder, builder.span_ms(400, 250, 600), soon)
        )
    builder.expect_election()
    for _ in range(choose.pick((0, 1, 2))):
        gone = builder.when_leading(choose.pick((0, 5, 60)))
        builder.add(leader_gone(builder, builder.span_ms(100, 150, 250), gone))
        builder.expect_election()


def _late_or_doubled_votes(
    builder: ScenarioBuilder, slow: str, span: int, when: When, *, twice: bool
) -> Link:
    """Return a rule by which votes for one candidate, or all votes, arrive `twice` or later than a
    campaign; in a fifth of the schedules the two are exchanged."""
    choose, election_ms = builder.choose, builder.cluster.timings.election_max_ms
    twice = twice != choose.chance(20)
    percent = choose.pick((2, 20, 100)) if twice else choose.pick((100, 90, 110, 130, 160, 200))
    pre: dict[str, Any] = {} if twice and choose.chance(70) else {"pre": False}
    return Link(
        on="all",
        to=choose.pick(("all", slow) if twice else (slow, slow, "all")),
        action="duplicate" if twice else "delay",
        kinds=("vote-response",),
        match={"partition": builder.partition, **pre},
        delay_ms=election_ms * percent // 100,
        limit=choose.pick((None, None, 1, 2)),
        for_ms=span,
        **when,
    )


SITUATIONS: Final = (
    Situation("leads-on", leads_on, cluster=_may_lose, weight=3),
    Situation("unequal-remains", unequal_remains, cluster=_flushed_late, workload=_soon_answered),
    Situation("dies-again", dies_again, LeaderBy.CONTROLLER, cluster=_loses),
    Situation(
        "late-registration", late_registration, LeaderBy.CONTROLLER, cluster=_loses, weight=1
    ),
    Situation("last-in-sync", last_in_sync, LeaderBy.CONTROLLER, cluster=_few_in_sync),
    Situation("leads-again", leads_again, cluster=_copies, weight=6),
    Situation(
        "own-tails", own_tails, LeaderBy.CONTROLLER, cluster=_stays_in_sync, workload=_soon_answered
    ),
    Situation("late-copies", late_copies, cluster=_copies, workload=_uneven_batches),
    Situation("old-answers", old_answers, cluster=_copies),
    Situation("in-and-out", in_and_out, LeaderBy.CONTROLLER, cluster=_copies),
    Situation("comes-back", comes_back, LeaderBy.CONTROLLER, cluster=_spare, weight=3),
    Situation("unclean", unclean, LeaderBy.CONTROLLER, cluster=_unclean, weight=1),
    Situation(
        "rivals", rivals, LeaderBy.VOTES, cluster=_rivals, workload=_uneven_batches, weight=5
    ),
    Situation(
        "tried-again", more.tried_again, cluster=more.clean_copies, workload=more.patient_producers
    ),
    Situation(
        "sent-twice", more.sent_twice, cluster=more.clean_copies, workload=more.patient_producers
    ),
    Situation("damaged-copy", more.damaged_copy, cluster=more.clean_copies, weight=3),
    Situation("turns", who.turns, LeaderBy.CONTROLLER, cluster=_stays_in_sync),
    Situation(
        "turns-by-votes", who.turns_by_votes, LeaderBy.VOTES, cluster=who.short_answers, weight=3
    ),
    Situation("late-campaign", who.late_campaign, LeaderBy.VOTES, cluster=_copies, weight=2),
    Situation(
        "moves-with-few",
        who.moves_with_few,
        LeaderBy.CONTROLLER,
        cluster=who.spare_and_late,
        weight=3,
    ),
    Situation(
        "outlived-proposal", who.outlived_proposal, LeaderBy.CONTROLLER, cluster=who.lags_soon
    ),
)
"""The situations. Those for the same kind of leadership are drawn by their weights."""
