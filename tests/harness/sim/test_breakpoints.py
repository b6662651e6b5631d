"""Breakpoints in the simulated world mean what they mean to a real process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from harness.sim.run import SimResult, simulate
from nemesis.faults import Break, Kill, Pause, Release
from nemesis.formats.schedule import After, Cluster, Fault, Schedule, Send, Workload

STOPPED = After(event="break")
APPENDED: dict[str, Any] = {
    "on": "n1",
    "event": "append",
    "match": {"partition": "log-0", "role": "leader"},
}

THREE = Cluster(partitions=1, brokers=3)
ALONE = Cluster(protocol="quorum", partitions=1, brokers=2, replication_factor=1, min_isr=1)


def of(protocol: str) -> Cluster:
    return replace(THREE, protocol=protocol)


def with_bug(name: str) -> Cluster:
    return replace(ALONE, bugs=(name,))


def run(*faults: Fault, sends: int = 1, must: str = "ok", cluster: Cluster = THREE) -> SimResult:
    """One partition led by n1; writes of one record each, one after the other."""
    operations = tuple(Send(client="c1", at_ms=10, must=must) for _ in range(sends))  # type: ignore[arg-type]
    workload = Workload(
        clients=0, consumers=0, operations=operations, duration_ms=8000, timeout_ms=2000
    )
    return simulate(
        Schedule(cluster=cluster, workload=workload, faults=faults), seed=1, stop_at="never"
    )


def ends(result: SimResult) -> list[str]:
    return [op.type for op in result.ops if op.f == "send" and op.type != "invoke"]


def events(result: SimResult, chosen: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    return [e for e in result.trace if e.get("partition") == "log-0" and chosen(e)]


@pytest.mark.parametrize(
    ("before", "cluster", "end", "kept", "copied"),
    [
        pytest.param("send", THREE, "info", 1, False, id="its answer is never sent"),
        # A leader that may lead on in its epoch replicates after the commit, any other while its
        # disk syncs: nobody was promised what followers have of it.
        pytest.param("commit", of("kip-279"), "info", 0, False, id="nothing of the turn is kept"),
        pytest.param("commit", of("kafka"), "info", 0, True, id="followers have the record"),
        pytest.param("commit", ALONE, "info", 1, False, id="one broker"),
        pytest.param("commit", with_bug("ack-before-commit"), "ok", 1, False, id="early ack"),
        pytest.param("commit", with_bug("count-before-commit"), "ok", 1, False, id="early count"),
    ],
)
def test_a_leader_is_killed_where_it_stands(
    before: Any, cluster: Cluster, end: str, kept: int, copied: bool
) -> None:
    result = run(
        Break(at_ms=0, before=before, **APPENDED),
        Kill(after=STOPPED, on="n1", for_ms=3000 if copied else 100),
        must="any",
        cluster=cluster,
    )
    assert ends(result) == [end]
    roles = events(result, lambda e: e["event"] == "role" and e["node"] == "n1")
    assert next(e["leo"] for e in roles if e["incarnation"] == 2) == kept
    appends = events(result, lambda e: e["event"] == "append" and e["role"] == "follower")
    assert bool(appends) is (copied or before == "send")
    assert ("no-lost-acknowledged-write" in result.broken) is bool(cluster.bugs)


@pytest.mark.parametrize("before", ["send", "commit"])
def test_a_released_process_goes_on_where_it_stopped(before: str) -> None:
    result = run(
        Break(at_ms=0, before=before, for_ms=300, **APPENDED),
        sends=2,  # type: ignore[arg-type]
    )
    (stop,) = events(result, lambda e: e["event"] == "break")
    acks = events(result, lambda e: e["event"] == "ack")
    assert ends(result) == ["ok", "ok"]
    assert len(acks) == 2
    assert acks[0]["t_us"] >= stop["t_us"] + 299_000  # the storm counts in milliseconds
    assert result.verdict == "valid"


def test_a_paused_process_that_is_released_goes_on_when_it_is_resumed() -> None:
    result = run(
        Break(at_ms=0, name="here", **APPENDED),
        Pause(after=STOPPED, on="n1", for_ms=400),
        Release(after=After(event="break", delay_ms=100), of="here"),
    )
    (stop,) = events(result, lambda e: e["event"] == "break")
    (ack,) = events(result, lambda e: e["event"] == "ack")
    assert ack["t_us"] >= stop["t_us"] + 399_000
    assert result.verdict == "valid"
