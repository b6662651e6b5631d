"""Random storms, the ready-made schedules, and what a schedule file may say about triggers."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest

from nemesis import ready_made
from nemesis.draw import at_groups, draw, expand
from nemesis.faults import KINDS, ClockRate, Kill, aliases, storm_kinds
from nemesis.faults.dice import Dice
from nemesis.faults.messages import routes
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload, check, parse
from node.core.protocol import METADATA_PROTOCOL, REGISTRY, Commit, LeaderBy
from node.formats.errors import UsageError
from node.formats.messages import AnyMessage
from tests.support import python_process

SEEDS = range(200)
STORM_KINDS = tuple(storm_kinds())
ALIASES = aliases()
ONLY_BY_NAME = tuple(name for name, drawing in storm_kinds().items() if not drawing.aliases)


def span(fault: Fault) -> tuple[int, int]:
    assert fault.at_ms is not None
    assert fault.for_ms is not None
    return fault.at_ms, fault.at_ms + fault.for_ms


def storm(seed: int, *kinds: str, voters: int = 1, **workload: Any) -> tuple[Fault, ...]:
    return draw(Cluster(voters=voters), Workload(**workload), kinds or ("all",), seed)


def most_at_once(faults: tuple[Fault, ...]) -> int:
    edges = sorted(edge for fault in faults for edge in ((span(fault)[0], 1), (span(fault)[1], -1)))
    now = most = 0
    for _, change in edges:
        now += change
        most = max(most, now)
    return most


def quiet_ms(faults: tuple[Fault, ...], duration_ms: int) -> int:
    """Return how long no fault was in force."""
    quiet = end = 0
    for begin, stop in sorted(map(span, faults)):
        quiet += max(0, begin - end)
        end = max(end, stop)
    return quiet + duration_ms - end


def test_a_storm_waits_until_a_node_that_starts_slowly_is_back() -> None:
    met = 0
    for seed in SEEDS:
        faults = draw(Cluster(), Workload(duration_ms=90_000), ("kill",), seed, restart_ms=9_000)
        ended = span(faults[0])[1]
        for begin, end in map(span, faults[1:]):
            met += begin >= ended
            assert begin < ended or begin >= ended + 7_000, faults
            ended = max(ended, end)
    assert met > len(SEEDS)


def test_delays_last_shorter_and_longer_than_the_timeouts() -> None:
    """Half of the lag is too short for an ISR to shrink, twice the session for a leader to stay."""
    timings = Cluster().timings
    lasted = [fault.for_ms or 0 for seed in SEEDS for fault in storm(seed, "delay")]
    assert 0.14 * min(timings.lag_ms, timings.session_ms) <= min(lasted)
    assert min(lasted) < 0.5 * min(timings.lag_ms, timings.session_ms)
    assert max(lasted) > 2 * max(timings.lag_ms, timings.session_ms)


@pytest.mark.parametrize("voters", [1, 3])
@pytest.mark.parametrize("duration_ms", [500, 5000, 30_000, 120_000])
def test_storms_are_schedules_that_end_in_time(duration_ms: int, voters: int) -> None:
    workload = Workload(duration_ms=duration_ms)
    for seed in SEEDS:
        faults = storm(seed, duration_ms=duration_ms, voters=voters)
        assert faults
        assert [f.at_ms for f in faults] == sorted(span(f)[0] for f in faults)
        assert all(0 < span(f)[0] < span(f)[1] < duration_ms for f in faults)
        assert most_at_once(faults) <= 2
        check(Schedule(cluster=Cluster(voters=voters), workload=workload, faults=faults))


def test_storms_leave_time_to_recover() -> None:
    quiet = [quiet_ms(storm(seed), 30_000) / 30_000 for seed in SEEDS]
    assert min(quiet) > 0.3
    assert sum(quiet) / len(quiet) > 0.45


def test_most_storms_have_every_kind() -> None:
    complete = [len({fault.what for fault in storm(seed)}) == len(ALIASES["all"]) for seed in SEEDS]
    assert sum(complete) > 0.8 * len(SEEDS)


def test_every_kind_meets_every_role() -> None:
    met = {
        (fault.what, str(getattr(fault, "on", "")).partition(":")[0])
        for seed in SEEDS
        for fault in storm(seed, voters=3)
    }
    wanted = {
        (kind, role.partition(":")[0])
        for kind, drawing in storm_kinds().items()
        if "all" in drawing.aliases
        for role, _ in drawing.targets
    }
    assert wanted - met == set()
    assert set(ALIASES["all"]) == {kind for kind, _ in met}


def test_a_single_voter_is_never_hit() -> None:
    hit = {getattr(fault, "on", "") for seed in SEEDS for fault in storm(seed)}
    assert not hit & {"controller", "voters", "v1"}


def test_leaders_are_struck_while_a_follower_lags() -> None:
    """Most storms have this combination at least once."""
    lag_ms = Cluster().timings.lag_ms

    def has_it(faults: tuple[Fault, ...]) -> bool:
        struck = [f for f in faults if f.what == "kill"]
        return any(
            str(getattr(deaf, "on", "")).startswith("follower:")
            and getattr(blow, "on", "")
            == str(getattr(deaf, "on", "")).replace("follower", "leader")
            and span(deaf)[0] + lag_ms < span(blow)[0] < span(deaf)[1]
            for blow in struck
            for deaf in faults
        )

    assert sum(has_it(storm(seed, "kill", "isolate", "pause")) for seed in SEEDS) > 100


@pytest.mark.parametrize("kind", STORM_KINDS)
def test_a_storm_of_one_kind_has_faults_of_that_kind_only(kind: str) -> None:
    for seed in range(20):
        assert {fault.what for fault in storm(seed, kind)} == {kind}


BY_NAME = {
    "clock": {"clock-skew", "clock-jump"},
    "disk": {"fsync-error", "slow-fsync", "disk-full", "torn-write", "bit-flip", "disk-emptied"}
    | {"read-error"},
    **{name: {name} for name in ("clock-rate", "syscall", "power-cut", "lying-fsync", "old-copy")},
}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_fault_that_is_not_for_every_storm_is_drawn_only_by_its_name(name: str) -> None:
    cluster, workload = Cluster(), Workload(duration_ms=60_000)
    assert set(expand([name], cluster)) == BY_NAME[name]
    assert not BY_NAME[name] & {*expand(["all"], cluster), "link"}
    for seed in range(20):
        faults = draw(cluster, workload, [name], seed)
        check(Schedule(workload=workload, faults=faults))
        assert faults
        assert {fault.what for fault in faults} <= BY_NAME[name]


def test_the_disks_of_one_broker_lose_something() -> None:
    victims = set()
    for seed in range(30):
        hit = {
            getattr(fault, "on", "")
            for fault in storm(seed, "disk", duration_ms=60_000)
            if KINDS[fault.what].loss
        }
        assert len(hit) <= 1
        victims |= hit
    assert victims == {"n1", "n2", "n3"}


def test_aliases_and_order_of_kinds() -> None:
    cluster = Cluster()
    assert expand(["partition"], cluster) == ALIASES["partition"]
    assert expand(["all", "kill"], cluster) == ALIASES["all"]
    assert expand([*ONLY_BY_NAME, "disk", "clock", "turn", "all"], cluster) == STORM_KINDS
    assert expand([], cluster) == draw(cluster, Workload(), [], 1) == ()
    assert storm(3, "kill", "cut", "ring") == storm(3, "ring", "kill", "cut", "kill")
    assert storm(3) != storm(4)


@pytest.mark.parametrize(
    ("kinds", "brokers", "message"),
    [
        (["kil"], 3, r"unknown fault 'kil' \(known: kill, power-cut, .*, partition, disk, all\)"),
        (["link"], 3, "fault 'link' is never drawn"),
        (["restart"], 3, "fault 'restart' is never drawn: .* a schedule file can have it"),
        (["bridge"], 2, "fault 'bridge' needs 3 brokers, there are 2"),
    ],
)
def test_impossible_kinds_are_refused(kinds: list[str], brokers: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        draw(Cluster(brokers=brokers, replication_factor=1, min_isr=1), Workload(), kinds, 0)


def test_small_clusters_get_what_they_are_large_enough_for() -> None:
    for brokers in (1, 2):
        cluster = Cluster(brokers=brokers, replication_factor=1, min_isr=1)
        kinds = {f.what for seed in SEEDS for f in draw(cluster, Workload(), ["all"], seed)}
        assert kinds == set(ALIASES["all"]) - {"bridge", "ring"}


@pytest.mark.parametrize("protocol", REGISTRY)
@pytest.mark.parametrize("sides", ["n", "nv", "v", "nc"])
def test_a_rule_is_about_messages_that_its_protocol_sends(protocol: str, sides: str) -> None:
    cluster = Cluster(protocol=protocol, voters=3)
    kinds = {kind for (kind, *_), _ in routes(Dice(cluster, Workload(), Random(0)), sides)}
    assert kinds
    assert kinds <= {str(kind.__struct_config__.tag) for kind in AnyMessage.__args__}
    rules = METADATA_PROTOCOL if sides == "v" else REGISTRY[protocol]
    assert ("vote" in kinds) == (sides in ("n", "v") and rules.leader_by is LeaderBy.VOTES)
    assert ("alter-partition" in kinds) == (sides == "nv" and rules.commit is Commit.ISR)
    assert ("append-entries" in kinds) == (sides == "n" and rules.pushes)
    assert ("fetch" in kinds) == (sides != "n" or not rules.pushes)


DRAW_HERE = """
import sys, msgspec
from nemesis.draw import draw
from nemesis.formats.schedule import Cluster, Workload
storms = [draw(Cluster(voters=3), Workload(), ["all"], seed) for seed in range(20)]
sys.stdout.buffer.write(msgspec.json.encode(storms))
"""


@pytest.mark.integration
@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_another_interpreter_draws_the_same(hash_seed: str) -> None:
    here = [storm(seed, voters=3) for seed in range(20)]
    there = python_process.run("-c", DRAW_HERE, PYTHONHASHSEED=hash_seed)
    assert there.stdout == msgspec.json.encode(here).decode()


@pytest.mark.parametrize("name", ready_made.names())
def test_a_ready_made_schedule_is_possible_on_its_cluster(name: str) -> None:
    schedule = ready_made.load(name)
    assert schedule.name == name
    assert schedule.faults
    assert parse(schedule.to_json()) == schedule


def test_a_fault_that_is_made_in_code_has_the_bounds_of_one_that_is_read() -> None:
    with pytest.raises(UsageError, match=r"fault 0 \(clock-rate\): percent: expected `int` >= 10"):
        check(Schedule(faults=(ClockRate(on="n1", at_ms=1, percent=5),)))


@pytest.mark.parametrize("faults", [5, {"what": "kill"}, "kill"])
def test_faults_must_be_a_list(faults: object) -> None:
    with pytest.raises(UsageError, match="faults"):
        parse(msgspec.json.encode({"floodmark_schedule": 1, "faults": faults}))


def test_most_of_the_faults_on_a_leader_are_on_that_of_its_group() -> None:
    faults = tuple(Kill(on="leader:log-0", at_ms=at) for at in range(100))
    moved = at_groups((*faults, Kill(on="n1", at_ms=0)), "seed")
    assert moved == at_groups((*faults, Kill(on="n1", at_ms=0)), "seed")
    assert Counter(f.on for f in moved if isinstance(f, Kill))["n1"] == 1
    on_group = [f for f in moved if isinstance(f, Kill) and f.on == "leader:group:log-0"]
    assert 60 < len(on_group) < 90
    check(Schedule(faults=moved[:20]), source="of groups")
    nowhere = tuple(Kill(on="leader", at_ms=at) for at in range(20))
    assert at_groups(nowhere, "seed") == nowhere, "the leader of some partition is of no group"


def test_every_drawn_storm_may_be_aimed_at_groups() -> None:
    for seed in SEEDS:
        faults = at_groups(storm(seed), str(seed))
        check(Schedule(cluster=Cluster(voters=1), faults=faults), source=f"seed {seed}")
