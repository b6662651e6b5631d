"""Situations (sequences of faults) about leadership and the in-sync set: quick changes of the
leader, moves while few replicas are in sync, and proposals that outlive the process that made them.

They are registered in `harness.search.draw.situations`, which also says what a situation is."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from harness.search.draw.choice_source import RandomChoices
from harness.search.draw.scenario_builder import (
    LinkAction,
    ScenarioBuilder,
    When,
    later,
    process_of,
)
from harness.search.draw.scenarios import down_for, fail_leader_at
from nemesis.faults import (
    Cut,
    ElectPreferred,
    Isolate,
    Kill,
    Link,
    Pause,
    PowerCut,
    Reassign,
    Release,
)
from nemesis.formats.schedule import After, Cluster
from node.core.protocol import protocol as protocol_of


def spare_and_late(choose: RandomChoices, cluster: Cluster) -> Cluster:
    """Draw a cluster of two or three replicas and more brokers, with logs mostly synced late."""
    factor = choose.pick((3, 3, 2))
    cluster = replace(
        cluster,
        brokers=factor + choose.pick((1, 1, 2)),
        replication_factor=factor,
        min_isr=choose.pick((2, 2, 1)),
        unclean_election=False,
        timings=replace(cluster.timings, heartbeat_ms=50, session_ms=choose.pick((250, 110))),
    )
    if protocol_of(cluster.protocol).clean_only or choose.chance(25):
        return cluster
    return replace(cluster, flush="async", flush_interval_ms=1000, min_isr=2)


def lags_soon(choose: RandomChoices, cluster: Cluster) -> Cluster:
    """Draw three replicas, one or two in sync; a slow one leaves before a dead one is noticed."""
    timings = replace(
        cluster.timings, lag_ms=choose.pick((120, 200)), session_ms=choose.pick((600, 250))
    )
    return replace(
        cluster,
        brokers=max(3, cluster.brokers),
        replication_factor=3,
        min_isr=choose.pick((1, 2, 1)),
        timings=timings,
    )


def short_answers(choose: RandomChoices, cluster: Cluster) -> Cluster:
    """Draw a cluster of three replicas; in half of the schedules a fetch response has one batch."""
    cluster = replace(cluster, brokers=max(3, cluster.brokers), replication_factor=3)
    return replace(cluster, fetch_max_bytes=1) if choose.chance(50) else cluster


def turns(builder: ScenarioBuilder) -> None:
    """Draw two replicas that do not hear each other and lead alternately, in several short epochs.
    In some of these nothing is written, so logs have no records of them."""
    choose = builder.choose
    one = builder.preferred
    second = choose.pick([name for name in builder.replicas if name != one])
    if protocol_of(builder.cluster.protocol).random_first_leader:
        builder.add(ElectPreferred(partition=builder.partition, first=one, at_ms=0))
        builder.expect_election()
    when = builder.when(arming=True)
    alone_ms = choose.pick((60, 120, 200))
    steps = [choose.pick((20, 60, 120, 40)) for _ in range(choose.pick((3, 4, 2, 5)))]
    apart_ms = alone_ms + sum(steps[:-1]) + choose.pick((0, 20, 60))
    builder.add(Cut(on=one, to=second, for_ms=apart_ms, **when))
    at_ms = alone_ms
    for number, step_ms in enumerate(steps):
        first = one if number % 2 else second
        moved = later(when, at_ms)
        builder.add(ElectPreferred(partition=builder.partition, first=first, **moved))
        builder.expect_election()
        at_ms += step_ms
    silent = choose.integer(0, len(steps) - 1)
    if choose.chance(70):
        builder.nobody_writes(sum(steps[silent:]), later(when, alone_ms + sum(steps[:silent])))
    if choose.chance(40):
        fail_leader_at(builder, later(when, at_ms + choose.pick((20, 60, 150))))


def turns_by_votes(builder: ScenarioBuilder) -> None:
    """Draw a leader that is cut off with records of its own; the next is cut off as soon as it
    leads; the first leads again, and fails before all have its records (Raft, figure 8)."""
    choose = builder.choose
    at = {"partition": builder.partition, "role": "leader"}
    election_ms = builder.cluster.timings.election_max_ms
    when: When = {"after": After(event="append", match=at, nth=choose.integer(1, 6))}
    apart_ms = election_ms * choose.pick((130, 170, 220)) // 100
    builder.add(Isolate(on=builder.leader, for_ms=apart_ms, **when))
    builder.expect_election()
    for number in range(choose.pick((1, 1, 2))):
        leads = builder.when_leading(choose.pick((0, 0, 1, 5)))
        away_ms = election_ms * choose.pick((300, 400, 500)) // 100
        builder.add(Isolate(on=builder.leader, for_ms=away_ms, **leads))
        builder.expect_election()
        if number == 0 and choose.chance(50):
            builder.nobody_writes(election_ms, leads)
    gone = builder.when_leading(choose.pick((1, 0, 2, 5, 20)))
    builder.add(
        down_for(builder, builder.leader, election_ms * choose.pick((150, 250)) // 100, gone)
    )
    builder.expect_election()


def late_campaign(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which a leader is cut off for about an election, and leads again.
    Meanwhile a voter that gets no records stood for election; its vote requests, or their answers,
    arrive after further records are committed."""
    choose, when = builder.choose, builder.when(arming=True)
    slow = choose.pick(builder.replicas)
    election_ms = builder.cluster.timings.election_max_ms
    away_ms = election_ms * choose.pick((90, 110, 130, 160)) // 100
    asks = choose.chance(70)
    actions: tuple[LinkAction, ...] = ("delay", "delay", "duplicate")
    pre: dict[str, Any] = {"pre": False} if choose.chance(75) else {}
    builder.add(
        Link(
            on=slow if asks else "rest",
            to="rest" if asks else slow,
            action=choose.pick(actions),
            kinds=("vote",) if asks else ("vote-response",),
            match={"partition": builder.partition, **pre},
            delay_ms=election_ms * choose.pick((30, 60, 100, 150)) // 100,
            for_ms=3 * election_ms,
            **when,
        ),
        Isolate(on=builder.leader, for_ms=away_ms, **when)
        if choose.chance(60)
        else Pause(on=builder.leader, for_ms=away_ms, **when),
        builder.drop_responses("rest", slow, election_ms * choose.pick((3, 4, 2)), when),
    )
    builder.expect_election()
    if choose.chance(40):
        gone = later(when, away_ms + election_ms * choose.pick((50, 100, 150)) // 100)
        builder.add(down_for(builder, builder.leader, builder.span_ms(100, 150, 250), gone))
        builder.expect_election()


def moves_with_few(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which a partition is moved while some of its replicas are down or cut off;
    a new replica or a former leader fails or loses power, and the move may be cancelled."""
    choose, when = builder.choose, builder.when()
    session_ms = builder.cluster.timings.session_ms
    one, *kept = builder.replicas
    new = [name for name in builder.cluster.broker_names() if name not in builder.replicas]
    away = kept[: choose.pick((len(kept), 1, 0))]
    away_ms = choose.pick((4, 6, 8)) * session_ms
    if away:
        on = ",".join(away)
        gone = choose.chance(50)
        builder.add(
            Kill(on=on, for_ms=away_ms, **when) if gone else Isolate(on=on, for_ms=away_ms, **when)
        )
    asked = later(when, choose.pick((session_ms * 13 // 10, 20, 2 * session_ms)))
    wanted = choose.pick(([*kept, *new], [one, *new], new, [*kept[:1], *new], [one, *kept, *new]))
    builder.add(Reassign(partition=builder.partition, replicas=",".join(wanted), **asked))
    builder.expect_isr_change()
    if choose.chance(30):
        late_ms = choose.pick((60, 150, 300))
        builder.add(builder.drop_responses("all", choose.pick(new), late_ms, asked))
    failing = later(asked, choose.pick((20, 60, 120, 5, session_ms)))
    for _ in range(choose.pick((1, 2, 1))):
        victim = choose.pick([*new, one, builder.leader])
        down_ms = choose.pick((0, 20, session_ms, 3 * session_ms))
        builder.add(
            PowerCut(on=victim, for_ms=down_ms, keep_percent=0, **failing)
            if choose.chance(60)
            else Kill(on=victim, for_ms=down_ms, **failing)
        )
        builder.expect_election()
        failing = later(failing, choose.pick((20, 100, session_ms, 2 * session_ms)))
    if choose.chance(45):
        whole = ",".join(builder.replicas)
        back = later(asked, choose.pick((60, session_ms, away_ms - session_ms, away_ms + 60)))
        builder.add(Reassign(partition=builder.partition, replicas=whole, **back))


def outlived_proposal(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which a leader's request to change the in-sync set is late. The leader
    restarts within its session and leads on; meanwhile the follower that it proposed lags again.
    Then the leader fails, or all replicas but that follower."""
    choose, on = builder.choose, builder.broker(but=builder.preferred)
    timings = builder.cluster.timings
    lag_ms = min(timings.lag_ms, timings.session_ms)
    when = builder.when()
    away_ms = lag_ms * choose.pick((130, 180, 250)) // 100
    builder.add(builder.drop_responses("rest", on, away_ms, when))
    # The first proposal takes it out, the second one takes it in again.
    at = {"partition": builder.partition}
    proposed: When = {"after": After(event="proposed", match=at, nth=choose.pick((2, 2, 2, 3)))}
    out: When = {"after": After(event="isr", match=at)}
    # Only what is held lets the messages of the next process pass.
    name = f"proposal-{len(builder.faults)}"
    span_ms = 3 * timings.session_ms
    builder.add(
        Link(
            name=name,
            on=builder.preferred,
            to="voters",
            action="hold",
            kinds=("alter-partition",),
            for_ms=away_ms + span_ms,
            **out,
        ),
        Kill(on=builder.preferred, for_ms=choose.pick((0, 0, 5, 20)), **later(proposed, 1)),
    )
    builder.expect_isr_change()
    builder.add(builder.drop_responses("rest", on, span_ms, later(proposed, 1)))
    back = {"after": After(event="registered", match=process_of(builder.preferred, 2))}
    arrives_ms = choose.pick((20, 60, 120, 5, 200))
    builder.add(Release(of=name, **later(back, arrives_ms)))
    fails = later(back, arrives_ms + choose.pick((20, 5, 60, 120)))
    others = ",".join(name for name in builder.replicas if name != on)
    dying = choose.pick((others, builder.preferred))
    builder.add(Kill(on=dying, for_ms=builder.span_ms(250, 400, 800), **fails))
    builder.expect_election()
