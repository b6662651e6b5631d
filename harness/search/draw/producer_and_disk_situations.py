"""Situations (sequences of faults) about idempotent producers during changes of the leader, and
about one damaged disk.

They are registered in `harness.search.draw.situations`, which also says what a situation is."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from harness.search.draw.choice_source import RandomChoices
from harness.search.draw.scenario_builder import (
    LinkAction,
    ScenarioBuilder,
    When,
    later,
    process_of,
)
from harness.search.draw.scenarios import fail_leader_at, leader_gone
from nemesis.faults import (
    BitFlip,
    Cut,
    DiskEmptied,
    ElectPreferred,
    Kill,
    Link,
    PowerCut,
    TornWrite,
)
from nemesis.formats.schedule import After, Cluster, Fault, Workload
from node.core.protocol import protocol as protocol_of


def clean_copies(choose: RandomChoices, cluster: Cluster) -> Cluster:
    """Draw a cluster of two or three replicas with synced writes; two or all must be in sync."""
    factor = choose.pick((3, 3, 2))
    return replace(
        cluster,
        brokers=max(3, cluster.brokers),
        replication_factor=factor,
        min_isr=choose.pick((2, factor)),
        flush="sync",
        retention_records=0,
        unclean_election=False,
    )


def patient_producers(choose: RandomChoices, workload: Workload) -> Workload:
    """Draw several idempotent producers with few batches in flight and timeouts over elections."""
    return replace(
        workload,
        clients=choose.pick((3, 2, 4)),
        rate=choose.pick((20.0, 10.0, 40.0)),
        batch=1,
        acks=-1,
        idempotent=True,
        in_flight=choose.pick((1, 1, 2, 3)),
        timeout_ms=choose.pick((600, 1500, 3000, 200)),
    )


def _answers_lost(builder: ScenarioBuilder, span: int, when: When) -> Link:
    """Draw a sequence in which producers do not hear for a while what became of their batches."""
    return Link(
        on="all", to="clients", action="drop", kinds=("produce-response",), for_ms=span, **when
    )


def tried_again(builder: ScenarioBuilder) -> None:
    """Draw a leader that is cut off with batches of its own and leads again after another one.
    Meanwhile producers reach only the first or none, and retry when it leads again."""
    choose, one = builder.choose, builder.preferred
    others = ",".join(name for name in builder.replicas if name != one)
    session_ms = builder.cluster.timings.session_ms
    if protocol_of(builder.cluster.protocol).random_first_leader:
        builder.add(ElectPreferred(partition=builder.partition, first=one, at_ms=0))
        builder.expect_election()
    at = {"partition": builder.partition, "role": "leader"}
    when: When = {"after": After(event="append", match=at, nth=choose.integer(1, 6))}
    apart_ms = choose.pick((2, 3)) * session_ms
    away_ms = apart_ms + choose.pick((2, 3, 4)) * session_ms
    builder.add(Cut(on=one, to=others, for_ms=apart_ms, **when))
    to = choose.pick((others, others, "all"))
    builder.add(
        Link(on="clients", to=to, action="drop", kinds=("produce",), for_ms=away_ms, **when)
    )
    if not builder.votes:
        moved = later(when, choose.pick((60, 120, 200)))
        second = choose.pick(others.split(","))
        builder.add(ElectPreferred(partition=builder.partition, first=second, **moved))
    builder.expect_election()
    back = later(when, apart_ms + choose.pick((20, 60, 150)))
    if builder.votes:
        builder.add(Cut(on=builder.leader, to="rest", for_ms=builder.span_ms(250, 400), **back))
    else:
        builder.add(ElectPreferred(partition=builder.partition, first=one, **back))
    builder.expect_election()


def sent_twice(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which batches of producers are lost, late or doubled, and answers of the
    leader are lost; often the leader fails before a batch is sent again."""
    choose = builder.choose
    at = {"partition": builder.partition, "role": "leader"}
    when: When = {"after": After(event="append", match=at, nth=choose.integer(1, 8))}
    late_ms = choose.pick((60, 200, 400, 900))
    actions: tuple[LinkAction, ...] = ("duplicate", "duplicate", "delay", "drop")
    for _ in range(choose.pick((1, 1, 2, 0))):
        action = choose.pick(actions)
        builder.add(
            Link(
                on="clients",
                to="all",
                action=action,
                kinds=("produce",),
                delay_ms=0 if action == "drop" else late_ms,
                limit=choose.pick((1, 2, None)),
                for_ms=choose.pick((60, 150, 300)),
                **when,
            )
        )
    lost_ms = choose.pick((100, 250, late_ms))
    builder.add(_answers_lost(builder, lost_ms, when))
    if choose.chance(60):
        # Followers get batches of several producers in one answer.
        builder.add(builder.drop_responses("all", "all", choose.pick((60, 120)), when))
    for _ in range(choose.pick((1, 1, 2))):
        gone = later(when, choose.pick((5, 60, 120, lost_ms)))
        builder.add(leader_gone(builder, builder.span_ms(150, 250, 400), gone))
        builder.expect_election()


def damaged_copy(builder: ScenarioBuilder) -> None:
    """Draw a sequence in which a replica restarts with a damaged disk, as the leader or as a
    follower, often while only one other replica has all committed records. The records that repair
    it come late or in parts, it may die again, and then a leader fails."""
    choose = builder.choose
    on = builder.broker() if choose.chance(65) else builder.preferred
    at = {"partition": builder.partition}
    match = {**at, "role": "leader"} if choose.chance(50) else at
    when: When = {"after": After(event="hw", match=match, nth=choose.integer(2, 8))}
    others = [name for name in builder.replicas if name != on]
    if choose.chance(75 if builder.votes else 50) and len(others) > 1:
        # What is committed next is on two replicas only.
        behind = choose.pick(others)
        away_ms = choose.pick((2, 3, 5)) * builder.cluster.timings.election_max_ms
        builder.add(builder.drop_responses("rest", behind, away_ms, builder.when(arming=True)))
    builder.disk_victim = on
    down_ms = choose.pick((0, 0, 20, builder.span_ms(60, 130, 250)))
    builder.add(_damage(choose, on, down_ms, when))
    began: When = {"after": After(event="started", match=process_of(on, 2))}
    if choose.chance(50):
        actions: tuple[LinkAction, ...] = ("drop", "delay", "duplicate")
        action = choose.pick(actions)
        builder.add(
            Link(
                on="rest",
                to=on,
                action=action,
                kinds=("fetch-response",),
                match=at,
                delay_ms=0 if action == "drop" else choose.pick((60, 120)),
                for_ms=builder.span_ms(60, 130, 250),
                **(began if choose.chance(50) else later(when, down_ms)),
            )
        )
    if choose.chance(50):
        again = later(began, choose.pick((0, 5, 20, 25, 60)))
        down_ms = choose.pick((0, 10, 50))
        builder.add(
            PowerCut(on=on, for_ms=down_ms, keep_percent=0, **again)
            if choose.chance(50)
            else Kill(on=on, for_ms=down_ms, **again)
        )
        if choose.chance(60):
            began = {"after": After(event="started", match=process_of(on, 3))}
    builder.expect_election()
    if choose.chance(75):
        fail_leader_at(builder, later(began, choose.pick((0, 2, 5, 20, 60, 150, 300))))


def _damage(choose: RandomChoices, on: str, down_ms: int, when: When) -> Fault:
    """Damage the disk: mostly a batch is lost, and with it all behind."""
    parts: tuple[Literal["payload", "chain", "header"], ...] = ("payload", "chain", "header")
    if choose.chance(60):
        return BitFlip(on=on, part=choose.pick(parts), for_ms=down_ms, **when)
    if choose.chance(60):
        return TornWrite(on=on, for_ms=down_ms, **when)
    return DiskEmptied(on=on, for_ms=down_ms, **when)
