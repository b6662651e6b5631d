"""The dimensions of schedules: additions to them, each off in most schedules.

A dimension changes the cluster or the workload, or adds scenarios. Each schedule decides for each
dimension by a random choice whether it is on (swarm testing, Groce et al. 2012). With all of them
on, runs would be long and slow, and most bugs need none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from harness.search.draw.choice_source import RandomChoices
from harness.search.draw.producer_and_disk_situations import clean_copies
from harness.search.draw.scenario_builder import LinkAction
from harness.search.draw.scenarios import Scenario, fail_disk
from harness.search.draw.wide_scenarios import (
    cancel_move,
    change_min_isr,
    fail_voter,
    late_votes,
    long_pause,
    outlive_sender,
    power_below_min_isr,
)
from nemesis.faults import ClockRate, Isolate, Kill, Link, Pause, Reassign
from nemesis.faults.clocks import RATES
from nemesis.formats.fault import renamed
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload
from node.core.protocol import LeaderBy
from node.core.protocol import protocol as protocol_of
from node.formats.trace import GROUPS_PARTITION

MOST_BROKERS: Final = 5
MAX_FAULTS_DRAWN: Final = 14
_LATE: Final[tuple[LinkAction, ...]] = ("drop", "drop", "hold")


@dataclass(frozen=True, slots=True)
class Dimension:
    """An addition to `percent` of the schedules, decided before their faults are drawn. `cluster`
    and `workload` return them changed, `scenarios` may be drawn as well. `led_by` is the kind of
    leadership that it applies to, None for both."""

    name: str
    percent: int
    led_by: LeaderBy | None = None
    cluster: Callable[[RandomChoices, Cluster], Cluster] = lambda choose, cluster: cluster
    workload: Callable[[RandomChoices, Workload], Workload] = lambda choose, workload: workload
    scenarios: tuple[Scenario, ...] = ()


@dataclass(frozen=True, slots=True)
class LateDimension:
    """A change to `percent` of the schedules, made by `change` after their faults are drawn. One of
    0 percent is only made where it is asked for."""

    name: str
    percent: int
    change: Callable[[RandomChoices, Schedule], Schedule]


def _several_voters(choose: RandomChoices, cluster: Cluster) -> Cluster:
    return replace(cluster, voters=choose.pick((3, 3, 3, 5)))


def _more_copies(choose: RandomChoices, cluster: Cluster) -> Cluster:
    """Use four or five brokers, and as many replicas."""
    brokers = choose.pick((4, 5, 5))
    factor = choose.pick((4, 4, brokers))
    min_isr = choose.pick((2, 3, 2, 1))
    return replace(cluster, brokers=brokers, replication_factor=factor, min_isr=min_isr)


def _spare_broker(choose: RandomChoices, cluster: Cluster) -> Cluster:
    """Add one or two brokers that are no replicas."""
    brokers = max(3, min(MOST_BROKERS, cluster.brokers))
    factor = min(cluster.replication_factor, brokers - choose.pick((1, 1, 2)))
    min_isr = min(cluster.min_isr, factor)
    return replace(cluster, brokers=brokers, replication_factor=factor, min_isr=min_isr)


def _loses_unsynced(choose: RandomChoices, cluster: Cluster) -> Cluster:
    """Draw a cluster in which a power cut loses unsynced data, and two replicas must commit."""
    if protocol_of(cluster.protocol).clean_only:
        return cluster
    min_isr = min(cluster.replication_factor, choose.pick((2, 2, 3)))
    return replace(cluster, flush="async", min_isr=min_isr, unclean_election=False)


def _several_partitions(choose: RandomChoices, cluster: Cluster) -> Cluster:
    return replace(cluster, partitions=choose.pick((2, 3, 4)))


def _deletes_heads(choose: RandomChoices, schedule: Schedule) -> Schedule:
    """Let leaders delete committed records so soon that a replica that was away lacks the next
    ones; not in a situation with idempotent producers, whose brokers need the whole log."""
    if schedule.workload.idempotent:
        return schedule
    keep = choose.pick((2, 5, 1))
    return replace(schedule, cluster=replace(schedule.cluster, retention_records=keep))


def _idempotent(choose: RandomChoices, schedule: Schedule) -> Schedule:
    """Draw a workload in which producers repeat batches, and answers are lost or requests late."""
    workload = replace(
        schedule.workload, idempotent=True, acks=-1, timeout_ms=choose.pick((600, 1000, 400))
    )
    late: list[Fault] = []
    for _ in range(choose.pick((1, 2, 3, 0))):
        answers = choose.chance(70)
        late.append(
            Link(
                on="all" if answers else "clients",
                to="clients" if answers else "all",
                action=choose.pick(_LATE),
                kinds=("produce-response",) if answers else ("produce",),
                at_ms=choose.integer(0, workload.duration_ms),
                for_ms=choose.pick((150, 300, 600)),
            )
        )
    cluster = replace(schedule.cluster, retention_records=0)
    return _with(replace(schedule, cluster=cluster, workload=workload), late)


def _clock_rates(choose: RandomChoices, schedule: Schedule) -> Schedule:
    """Let clocks run fast and slow, from the beginning or from a later time on."""
    cluster, rates = schedule.cluster, []
    names = [*cluster.broker_names(), *cluster.voter_names()]
    for _ in range(choose.pick((1, 2, 3))):
        name = names.pop(choose.integer(0, len(names) - 1))
        at_ms = 0 if choose.chance(60) else choose.integer(0, schedule.workload.duration_ms)
        rates.append(ClockRate(on=name, percent=choose.pick(RATES), at_ms=at_ms))
    return _with(schedule, rates)


def _resized(choose: RandomChoices, schedule: Schedule) -> Schedule:
    """Draw moves of a partition to more and to fewer replicas; its leader may fail meanwhile."""
    cluster = schedule.cluster
    if protocol_of(cluster.protocol).leader_by is LeaderBy.VOTES:
        return schedule
    cluster = replace(cluster, brokers=max(4, cluster.brokers))
    partition = choose.pick(cluster.partition_names())
    now_ms, moves = choose.integer(0, 600), list[Fault]()
    for _ in range(choose.pick((2, 3, 1))):
        left = list(cluster.broker_names())
        size = choose.integer(1, len(left))
        target = [left.pop(choose.integer(0, len(left) - 1)) for _ in range(size)]
        moves.append(Reassign(partition=partition, replicas=",".join(target), at_ms=now_ms))
        if choose.chance(40):
            at_ms = now_ms + choose.pick((2, 20, 60, 150, 300))
            span_ms = cluster.timings.session_ms * choose.pick((2, 1, 4))
            moves.append(Kill(on=f"leader:{partition}", at_ms=at_ms, for_ms=span_ms))
        now_ms += choose.pick((300, 100, 500, 20))
    return _with(replace(schedule, cluster=cluster), moves)


def _sizes_differ(choose: RandomChoices, schedule: Schedule) -> Schedule:
    """Use batches of one record and of a few: logs then differ in their batches."""
    if schedule.workload.batch_most:
        return schedule
    workload = replace(schedule.workload, batch=1, batch_most=choose.pick((3, 2, 5)))
    return replace(schedule, workload=workload)


def _short_answers(choose: RandomChoices, schedule: Schedule) -> Schedule:
    """Let followers that are behind catch up by one batch or a few at a time."""
    most = choose.pick((1, 1, 200))
    return replace(schedule, cluster=replace(schedule.cluster, fetch_max_bytes=most))


def _groups(choose: RandomChoices, schedule: Schedule) -> Schedule:
    """Let members of a group consume, and aim most faults at the partition of groups."""
    workload = replace(
        schedule.workload,
        members=choose.pick((2, 3, 1)),
        consumers=0,
        timeout_ms=choose.pick((1000, 2000, 600)),
        duration_ms=max(schedule.workload.duration_ms, choose.pick((2000, 3000))),
    )
    partitions = max(schedule.cluster.partitions, choose.pick((2, 2, 1)))
    cluster = replace(schedule.cluster, partitions=partitions, retention_records=0)
    made = replace(schedule, cluster=cluster, workload=workload)
    if not choose.chance(30):
        made = replace(made, faults=renamed(made.faults, {"log-0": GROUPS_PARTITION}))
    return _with(made, [_at_group(choose, made) for _ in range(choose.pick((1, 2, 0)))])


def _at_group(choose: RandomChoices, schedule: Schedule) -> Fault:
    """Draw a fault of the coordinator, or one that silences a member for about its session."""
    work, coordinator = schedule.workload, f"leader:{GROUPS_PARTITION}"
    at_ms = choose.integer(0, work.duration_ms)
    for_ms = schedule.cluster.timings.session_ms * choose.pick((100, 50, 200)) // 100
    what = choose.pick(("pause", "isolate", "member"))
    if what == "member":
        member = f"c{work.clients + choose.integer(1, work.members)}"
        return Link(on=member, to="all", action="drop", at_ms=at_ms, for_ms=for_ms)
    kind = Pause if what == "pause" else Isolate
    return kind(on=coordinator, at_ms=at_ms, for_ms=for_ms)


def _with(schedule: Schedule, faults: Sequence[Fault]) -> Schedule:
    """Return the schedule with these faults added, up to the largest number of faults."""
    kept = schedule.faults[: MAX_FAULTS_DRAWN - len(faults)]
    return replace(schedule, faults=(*kept, *faults))


def _uneven(choose: RandomChoices, workload: Workload) -> Workload:
    """Use batches of one record to many, and write far more to some partitions than to others."""
    most = choose.pick((20, 50, 5))
    spread = "zipf" if choose.chance(60) else "even"
    return replace(workload, batch=1, batch_most=most, spread=spread)


DIMENSIONS: Final = (
    Dimension(
        "several-voters",
        12,
        LeaderBy.CONTROLLER,
        cluster=_several_voters,
        scenarios=(fail_voter, fail_voter),
    ),
    Dimension("more-copies", 8, cluster=_more_copies),
    Dimension(
        "min-isr-changes", 12, LeaderBy.CONTROLLER, scenarios=(change_min_isr, change_min_isr)
    ),
    Dimension("old-messages", 12, scenarios=(outlive_sender, outlive_sender)),
    Dimension(
        "cancelled-moves",
        7,
        LeaderBy.CONTROLLER,
        cluster=_spare_broker,
        scenarios=(cancel_move, cancel_move),
    ),
    Dimension("late-votes", 15, LeaderBy.VOTES, scenarios=(late_votes, late_votes)),
    Dimension(
        "losses-below-min-isr",
        8,
        LeaderBy.CONTROLLER,
        cluster=_loses_unsynced,
        scenarios=(power_below_min_isr, power_below_min_isr),
    ),
    Dimension("long-pauses", 4, scenarios=(long_pause,)),
    Dimension("several-partitions", 5, cluster=_several_partitions),
    Dimension("uneven-load", 6, workload=_uneven),
    Dimension("failing-disks", 6, cluster=clean_copies, scenarios=(fail_disk, fail_disk)),
)
"""Dimensions in the order in which a schedule decides for them, before it draws its faults."""

LATE_DIMENSIONS: Final = (
    LateDimension("retention", 7, _deletes_heads),
    LateDimension("idempotent", 10, _idempotent),
    LateDimension("clock-rates", 6, _clock_rates),
    LateDimension("resized-partitions", 6, _resized),
    LateDimension("batch-sizes", 25, _sizes_differ),
    LateDimension("short-answers", 15, _short_answers),
    LateDimension("groups", 0, _groups),
)
"""Dimensions for which a schedule decides after all else is drawn, so that a seed without them
draws the same schedule as before they existed. New ones go to the end."""


def draw_late(choose: RandomChoices, schedule: Schedule, always: Collection[str] = ()) -> Schedule:
    """Return the schedule after the late dimensions in `always` and randomly chosen ones."""
    for dimension in LATE_DIMENSIONS:
        wanted = dimension.name in always
        if wanted or (dimension.percent and choose.chance(dimension.percent)):
            schedule = dimension.change(choose, schedule)
    return schedule


def draw_dimensions(choose: RandomChoices, led_by: LeaderBy) -> list[Dimension]:
    """Draw the dimensions that are on in one schedule."""
    return [
        dimension
        for dimension in DIMENSIONS
        if dimension.led_by in (None, led_by) and choose.chance(dimension.percent)
    ]
