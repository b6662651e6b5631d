"""Draws one small experiment: a cluster, a short workload, and a chain of acts. Pure.

Meant for the simulated world: about two virtual seconds and some thirty operations, so that a run
costs a fraction of a second. Each experiment draws a mask first, so that it uses few kinds of
acts, but those often (swarm testing, Groce and others 2012).
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec.structs import replace

from harness.search.choice_source import Chooser
from harness.search.scenario_builder import Scene
from harness.search.scenarios import ACTS, ACTS_WITH_VOTES, Act, let_go, strike
from nemesis.formats.schedule import Cluster, Schedule, Timings, Workload
from node.core.protocol import LeaderBy
from node.core.protocol import protocol as protocol_of

DRAWING: Final = 13
"""The generation of this routine: with another one the same seed gives another schedule."""
MAX_ACTS: Final = 6
MAX_FAULTS_DRAWN: Final = 14
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
"""Every timeout about a sixth of a storm's: two virtual seconds hold many elections."""
TEMPERS: Final = (
    TIMINGS,
    # Whoever lags keeps its place: an election finds it in the in-sync set.
    replace(TIMINGS, lag_ms=2000),
    # Leaders change before anybody is found to lag.
    replace(TIMINGS, heartbeat_ms=50, session_ms=110, lag_ms=1000, leader_timeout_ms=120),
    # The in-sync set changes before anybody is found to be dead.
    replace(TIMINGS, session_ms=600, lag_ms=120),
    # Candidates stand at the same moment, and nothing is soon written down.
    replace(TIMINGS, election_min_ms=170, election_max_ms=185, hw_checkpoint_ms=2000),
)
"""How clusters differ in what they notice first."""


def draw_schedule(choose: Chooser, protocol: str, bugs: tuple[str, ...] = ()) -> Schedule:
    """One experiment on `protocol`, with the bugs `bugs` turned on."""
    cluster = _cluster(choose, protocol, bugs)
    seed = choose.integer(0, 1 << 16)
    scene = Scene(
        choose=choose,
        cluster=cluster,
        partition=choose.pick(cluster.partition_names()),
        votes=protocol_of(protocol).leader_by is LeaderBy.VOTES,
    )
    acts = _mask(choose, votes=scene.votes)
    for number in range(MAX_ACTS):
        if len(scene.faults) >= MAX_FAULTS_DRAWN or (number > 0 and not choose.chance(75)):
            break
        choose.pick(acts)(scene)
        if scene.held and choose.chance(40):
            let_go(scene)
    workload = Workload(
        seed=seed,
        clients=choose.pick((2, 1, 3)),
        # Whoever reads at once sees what is committed and not acknowledged to anybody.
        consumers=choose.pick((1, 1, 1, 2, 0)),
        rate=choose.pick((20.0, 40.0, 10.0)),
        batch=choose.pick((1, 3)),
        payload_bytes=16,
        acks=-1 if choose.chance(92) else 1,
        timeout_ms=choose.pick((200, 100, 600)),
        duration_ms=min(2000, scene.now_ms + choose.pick((300, 500, 800))),
    )
    faults = tuple(scene.faults[:MAX_FAULTS_DRAWN])
    return Schedule(cluster=cluster, workload=workload, faults=faults)


def _cluster(choose: Chooser, protocol: str, bugs: tuple[str, ...]) -> Cluster:
    brokers = choose.pick((3, 3, 3, 2, 3, 4))
    votes = protocol_of(protocol).leader_by is LeaderBy.VOTES
    # Of two voters both are a majority: there is little to get wrong.
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
        timings=choose.pick(TEMPERS),
    )


def _mask(choose: Chooser, *, votes: bool) -> list[Act]:
    """The acts this experiment uses, each in or out by a coin; a leader is struck in most."""
    possible = ACTS_WITH_VOTES if votes else ACTS
    chosen = [act for act, percent in possible.items() if choose.chance(percent)]
    return chosen or [strike]
