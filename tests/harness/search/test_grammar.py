"""The grammar and a search draw every fault on every role, and every pair of options there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, Final

import pytest
from msgspec.structs import replace

from harness.search.draw.mixture import Mixture
from harness.search.grammar.conditions import TIMING_PROFILES
from harness.search.grammar.weights import WEIGHTS
from nemesis.faults import KINDS
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.formats.trace import METADATA_PARTITION

CLUSTER: Final = (
    *("brokers", "replication_factor", "min_isr", "voters", "partitions", "flush"),
    *("flush_interval_ms", "unclean_election", "retention_records", "fetch_max_bytes", "timings"),
)
WORKLOAD: Final = (
    *("clients", "consumers", "rate", "batch", "batch_most", "spread", "acks"),
    *("in_flight", "idempotent", "members", "timeout_ms"),
)
ROLES: Final = ("leader", "follower", "broker", "controller", "voters")
SIMULATED: Final = {name: kind for name, kind in KINDS.items() if kind.simulated}
REFUSED: Final = {
    ("brokers", "replication_factor"): "each replica is on a broker of its own",
    ("brokers", "min_isr"): "each replica is on a broker of its own",
    ("replication_factor", "min_isr"): "no more replicas can be in sync than there are",
    ("retention_records", "idempotent"): "brokers know batches by their log",
    ("retention_records", "members"): "the log of their groups is kept",
    ("acks", "idempotent"): "a lost batch leaves a gap in the sequence",
}
"""The pairs of options of which some values are refused, and why."""
Option = tuple[str, object]
Draws = Callable[[int], Iterator[Schedule]]


def composed(count: int) -> Iterator[Schedule]:
    """Yield schedules of the grammar for the protocol of Kafka."""
    return (Mixture("kafka").of_corpus(number) for number in range(count))


def searched(count: int) -> Iterator[Schedule]:
    """Yield schedules of a search for the protocol of Kafka."""
    return (Mixture("kafka").draw(0, number) for number in range(count))


def value_of(name: str, text: str) -> object:
    """Return the value of an option that a text of the table of weights stands for."""
    if name == "timings":
        return TIMING_PROFILES[int(text)]
    plain = getattr(Cluster() if name in CLUSTER else Workload(), name)
    if isinstance(plain, bool):
        return bool(text)
    return type(plain)(text) if text else plain


def options_of(schedule: Schedule) -> set[Option]:
    """Return the options of a schedule that the table has, with their values."""
    return {
        *((name, getattr(schedule.cluster, name)) for name in CLUSTER),
        *((name, getattr(schedule.workload, name)) for name in WORKLOAD),
    }


def refused(*options: Option) -> bool:
    """Return whether no cluster and workload can have these options together."""
    given = dict(options)
    size: Any = given.get("brokers", 5)
    cluster = {"brokers": size, "replication_factor": size} | given
    cluster = {name: value for name, value in cluster.items() if name in CLUSTER}
    made = replace(Cluster(min_isr=1, voters=3), **cluster)
    batch: Any = given.get("batch_most") or 1
    work: dict[str, Any] = {"batch": min(given.get("batch", 1), batch)}
    work |= {name: value for name, value in given.items() if name in WORKLOAD}
    return bool([*made.problems(), *replace(Workload(), **work).problems(made)])


def role_of(target: str) -> str:
    """Return the role that a target names."""
    role = target.partition(":")[0]
    return role if role in ROLES else {"n": "broker", "v": "voters"}.get(target[0], role)


def targets(schedules: Iterator[Schedule]) -> Counter[tuple[str, str]]:
    """Count the pairs of a kind and a role; a fault of the metadata partition counts as well."""
    met: Counter[tuple[str, str]] = Counter()
    for schedule in schedules:
        for fault in schedule.faults:
            ends = [getattr(fault, end, "") for end in ("on", "to")]
            met.update({(fault.what, role_of(end)) for end in ends if end} | {(fault.what, "")})
            if getattr(fault, "match", {}).get("partition") == METADATA_PARTITION:
                met[fault.what, "metadata"] += 1
    return met


def test_every_fault_of_the_registry_is_drawn_without_a_line_in_the_grammar() -> None:
    met = targets(composed(1500))
    assert {what for what, _ in met} == set(SIMULATED)
    assert met["link", "clients"]
    assert met["link", "metadata"]
    assert met["break", "metadata"]
    assert met["break", "voters"]


def test_every_option_of_the_table_is_drawn() -> None:
    met = {option for schedule in composed(1500) for option in options_of(schedule)}
    for name in (*CLUSTER, *WORKLOAD):
        wanted = {(name, value_of(name, text)) for text in WEIGHTS[name]}
        assert {option for option in met if option[0] == name} == wanted


@pytest.mark.nightly
@pytest.mark.parametrize("drawn", [composed, searched])
def test_no_pair_of_options_is_excluded_but_by_the_broker(drawn: Draws) -> None:
    met: set[frozenset[Option]] = set()
    for schedule in drawn(10_000):
        met.update(map(frozenset, combinations(sorted(options_of(schedule), key=str), 2)))
    never = [pair for pair in pairs_of_options() if frozenset(pair) not in met]
    assert not [pair for pair in never if not refused(*pair)]


def pairs_of_options() -> list[tuple[Option, Option]]:
    """Return all pairs of values of two options that the table has."""
    options = [(n, value_of(n, text)) for n in (*CLUSTER, *WORKLOAD) for text in WEIGHTS[n]]
    return [pair for pair in combinations(options, 2) if pair[0][0] != pair[1][0]]


def test_each_pair_of_options_that_is_refused_has_a_reason() -> None:
    pairs = [pair for pair in pairs_of_options() if refused(*pair)]
    assert {(one[0], other[0]) for one, other in pairs} == REFUSED.keys()


@pytest.mark.nightly
@pytest.mark.parametrize("drawn", [composed, searched])
def test_every_fault_hits_every_role(drawn: Draws) -> None:
    met = targets(drawn(10_000))
    never = [
        (what, role)
        for what, kind in SIMULATED.items()
        for role in ROLES
        if "on" in kind.__struct_fields__ and not met[what, role]
    ]
    assert not never
