"""Breakpoints in the simulated world mean what they mean to a real process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

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


def found_after_the_kill(result: SimResult) -> int:
    """The log end that the next process of n1 found on its disk."""
    roles = events(result, lambda e: e["event"] == "role" and e["node"] == "n1")
    return int(next(e["leo"] for e in roles if e["incarnation"] == 2))


def test_a_write_is_committed_and_its_answer_never_sent() -> None:
    result = run(Break(at_ms=0, **APPENDED), Kill(after=STOPPED, on="n1", for_ms=100), must="any")
    assert ends(result) == ["info"]
    assert found_after_the_kill(result) == 1
    assert result.verdict == "valid"


def test_before_the_commit_nothing_of_the_turn_is_kept() -> None:
    result = run(
        Break(at_ms=0, before="commit", **APPENDED),
        Kill(after=STOPPED, on="n1", for_ms=100),
        must="any",
        cluster=Cluster(protocol="kip-279", partitions=1, brokers=3),
    )
    assert ends(result) == ["info"]
    assert found_after_the_kill(result) == 0
    assert not events(result, lambda e: e["event"] == "append")


@pytest.mark.parametrize(
    ("bugs", "ends_as"),
    [((), "info"), (("ack-before-commit",), "ok"), (("count-before-commit",), "ok")],
)
def test_an_early_message_leaves_before_the_commit(bugs: tuple[str, ...], ends_as: str) -> None:
    alone = Cluster(
        protocol="quorum", partitions=1, brokers=2, replication_factor=1, min_isr=1, bugs=bugs
    )
    result = run(
        Break(at_ms=0, before="commit", **APPENDED),
        Kill(after=STOPPED, on="n1", for_ms=100),
        must="any",
        cluster=alone,
    )
    assert ends(result) == [ends_as]
    assert ("no-lost-acknowledged-write" in result.broken) is bool(bugs)


@pytest.mark.parametrize(("protocol", "kept"), [("kafka", True), ("kip-279", False)])
def test_followers_have_what_the_disk_of_a_crashed_leader_lacks(protocol: str, kept: bool) -> None:
    """Where a leader cannot lead on in its epoch after a crash, it replicates while its disk syncs:
    the next leader has the record, although the crashed one lost it. Nobody was promised it."""
    result = run(
        Break(at_ms=0, before="commit", **APPENDED),
        Kill(after=STOPPED, on="n1", for_ms=3000),
        must="any",
        cluster=Cluster(protocol=protocol, partitions=1, brokers=3, voters=1),
    )
    copies = events(result, lambda e: e["event"] == "append" and e["role"] == "follower")
    assert bool(copies) is kept
    assert result.verdict == "valid"


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
