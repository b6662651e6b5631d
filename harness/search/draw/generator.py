"""The generator of schedules for the simulated world: cluster, workload, chain of scenarios. Pure.

A schedule lasts about two virtual seconds and has about thirty operations, so a run takes a
fraction of a second. Each schedule first draws which scenarios it may use, so that it uses few
kinds of them, but those often (swarm testing, Groce et al. 2012). Parts that only some bugs need
are dimensions (`harness.search.draw.dimensions`)."""

from __future__ import annotations

from typing import Final, Literal

from msgspec.structs import replace

from harness.search.draw.choice_source import RandomChoices
from harness.search.draw.dimensions import MAX_FAULTS_DRAWN, draw_dimensions, draw_late
from harness.search.draw.scenario_builder import ScenarioBuilder
from harness.search.draw.scenarios import (
    SCENARIOS,
    SCENARIOS_WITH_VOTES,
    Scenario,
    fail_disk,
    fail_leader,
    release,
)
from harness.search.draw.situations import draw_situation
from nemesis.formats.schedule import Cluster, Schedule, Timings, Workload
from node.core.protocol import LeaderBy
from node.core.protocol import protocol as protocol_of

GENERATOR_VERSION: Final = 21
"""The version of the generator; under another one a seed draws another schedule."""
MOST_SCENARIOS: Final = 6
TIMINGS: Final = Timings(
    heartbeat_ms=80,
    session_ms=250,
    lag_ms=200,
    fetch_wait_ms=80,
    fetch_timeout_ms=120,
    retry_ms=20,
    election_min_ms=170,
    election_max_ms=260,
    hw_checkpoint_ms=100,
    idle_wait_ms=60,
    leader_timeout_ms=250,
)
"""Each timeout is about a sixth of a storm's: two virtual seconds hold many elections."""
TIMING_PROFILES: Final = (
    TIMINGS,
    # A lagging follower stays in the in-sync set until the next election.
    replace(TIMINGS, lag_ms=2000),
    # Leaders change before a follower is found to lag.
    replace(TIMINGS, heartbeat_ms=50, session_ms=110, lag_ms=1000, leader_timeout_ms=120),
    # The in-sync set changes before a broker is found to be dead.
    replace(TIMINGS, session_ms=600, lag_ms=120),
    # Candidates stand at the same time, and the high watermark is seldom written down.
    replace(TIMINGS, election_min_ms=170, election_max_ms=185, hw_checkpoint_ms=2000),
)
"""Changes of the timeouts, which decide what a cluster notices first."""


def draw_schedule(
    choose: RandomChoices,
    protocol: str,
    bugs: tuple[str, ...] = (),
    disk_faults: tuple[str, ...] = (),
    always: tuple[str, ...] = (),
) -> Schedule:
    """Draw one schedule for `protocol`, with `bugs` turned on. Faults of the kinds `disk_faults`
    are drawn besides the usual ones; if it is empty, some schedules get some disk faults. The late
    dimensions named in `always` are on."""
    cluster = _cluster(choose, protocol, bugs)
    dimensions = draw_dimensions(choose, protocol_of(protocol).leader_by)
    for dimension in dimensions:
        cluster = dimension.cluster(choose, cluster)
    situation = draw_situation(choose, protocol_of(protocol).leader_by)
    if situation is not None:
        cluster = situation.cluster(choose, cluster)
    seed = choose.integer(0, 1 << 16)
    builder = ScenarioBuilder(
        choose=choose,
        cluster=cluster,
        partition=choose.pick(cluster.partition_names()),
        votes=protocol_of(protocol).leader_by is LeaderBy.VOTES,
    )
    scenarios = _enabled(choose, votes=builder.votes)
    scenarios += [scenario for dimension in dimensions for scenario in dimension.scenarios]
    if disk_faults:
        builder.disk_faults = disk_faults
        scenarios += [fail_disk] * max(1, len(scenarios) // 2)
    for number in range(MOST_SCENARIOS):
        # After a situation, less else happens.
        goes_on = 75 if situation is None else 45
        if len(builder.faults) >= MAX_FAULTS_DRAWN or (number > 0 and not choose.chance(goes_on)):
            break
        if number == 0 and situation is not None:
            situation.scenario(builder)
        else:
            choose.pick(scenarios)(builder)
        if builder.held and choose.chance(40):
            release(builder)
    workload = Workload(
        seed=seed,
        clients=choose.pick((2, 1, 3) if situation is None else (2, 1)),
        # A consumer that reads at once sees records that are committed and not acknowledged.
        consumers=choose.pick((1, 1, 1, 2, 0)),
        rate=choose.pick((20.0, 40.0, 10.0) if situation is None else (20.0, 10.0, 40.0, 10.0)),
        batch=choose.pick((1, 3)),
        payload_bytes=16,
        acks=-1 if choose.chance(92) else 1,
        timeout_ms=choose.pick((200, 100, 600)),
        duration_ms=min(2000, builder.now_ms + choose.pick((300, 500, 800))),
    )
    for dimension in dimensions:
        workload = dimension.workload(choose, workload)
    if situation is not None:
        workload = situation.workload(choose, workload)
    faults = tuple(builder.faults[:MAX_FAULTS_DRAWN])
    drawn = Schedule(cluster=cluster, workload=workload, faults=faults)
    return draw_late(choose, drawn, always)


def _cluster(choose: RandomChoices, protocol: str, bugs: tuple[str, ...]) -> Cluster:
    brokers = choose.pick((3, 3, 3, 2, 3, 4))
    votes = protocol_of(protocol).leader_by is LeaderBy.VOTES
    # With two voters, only both are a majority: there is little to get wrong.
    factor = min(brokers, choose.pick((3, 3, 3, 3, 3, 2) if votes else (3, 3, 3, 2)))
    if choose.chance(12 if votes else 6):
        factor = 1
    flush: Literal["sync", "async"] = choose.pick(("sync", "sync", "async"))
    unclean = choose.chance(8)
    if protocol_of(protocol).clean_only:
        flush, unclean = "sync", False
    return Cluster(
        protocol=protocol,
        bugs=bugs,
        brokers=brokers,
        voters=1,
        partitions=2 if choose.chance(10) else 1,
        replication_factor=factor,
        min_isr=min(factor, choose.pick((2, 1))),
        flush=flush,
        flush_interval_ms=choose.pick((1000, 200)),
        unclean_election=unclean,
        timings=choose.pick(TIMING_PROFILES),
    )


def _enabled(choose: RandomChoices, *, votes: bool) -> list[Scenario]:
    """Return the scenarios that this schedule may use, each decided by a coin."""
    possible = SCENARIOS_WITH_VOTES if votes else SCENARIOS
    chosen = [scenario for scenario, percent in possible.items() if choose.chance(percent)]
    return chosen or [fail_leader]
