"""Why a schedule fails, told by leaving out its faults and the messages they struck."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from harness.formats import finding
from harness.formats.finding import Counterfactual, Explanation
from harness.search import explain
from harness.search.generator import TIMINGS
from nemesis import ready_made
from nemesis.faults import Cut, Kill
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload


def failing(
    *faults: Fault, protocol: str = "high-watermark", bugs: tuple[str, ...] = ()
) -> Schedule:
    """Two brokers under a trickle of writes."""
    return Schedule(
        cluster=Cluster(
            protocol=protocol,
            brokers=2,
            replication_factor=2,
            min_isr=1,
            partitions=1,
            timings=TIMINGS,
            bugs=bugs,
        ),
        workload=Workload(
            seed=7,
            clients=1,
            consumers=0,
            rate=10.0,
            batch=1,
            payload_bytes=16,
            timeout_ms=600,
            duration_ms=700,
        ),
        faults=faults,
    )


@functools.cache
def bounced() -> Explanation:
    """KIP-101's loss in two kills, and a cut long after that matters to nobody."""
    return explain.explain(
        failing(
            Kill(on="n2", at_ms=146, for_ms=1),
            Kill(on="n1", at_ms=146, for_ms=400),
            Cut(on="n2", to="clients", at_ms=1, for_ms=1),
        )
    )


def test_each_fault_is_left_out_in_turn() -> None:
    told = bounced()
    faults = [one for one in told.counterfactuals if one.kind == "fault"]
    assert [(one.fault, one.fails) for one in faults] == [(0, False), (1, False), (2, True)]
    assert "Kill n2" in faults[0].without


def test_the_story_ends_at_the_step_that_broke_something() -> None:
    told = bounced()
    assert told.bucket == "no-lost-acknowledged-write: cut:own-high-watermark"
    assert (told.partition, told.offset >= 0) == ("log-0", True)
    breaks = [s for s in told.sentences if s.breaks]
    assert breaks[0].breaks == "cut:own-high-watermark"
    assert all(s.t_us >= told.storm_us for s in breaks)


@functools.cache
def cut_off() -> Explanation:
    """A leader that acknowledges what it alone has is cut off for a while: few messages are lost,
    and another leader is elected without the write."""
    return explain.explain(
        failing(
            Cut(on="n1", to="rest", at_ms=2, for_ms=400), protocol="kafka", bugs=("ack-before-isr",)
        )
    )


def test_each_message_that_was_lost_is_let_through_in_turn() -> None:
    """The cut is shorter than two sessions: only the last heartbeat would have been in time."""
    single = [one for one in cut_off().counterfactuals if one.kind == "message"]
    assert len(single) > 5
    assert [one.message for one in single if not one.fails] == ["heartbeat"]
    assert not [one for one in single if one.message == "heartbeat"][-1].fails


def test_messages_of_one_kind_are_let_through_together() -> None:
    groups = {
        (one.sender, one.receiver, one.message): one.fails
        for one in cut_off().counterfactuals
        if one.kind == "messages"
    }
    assert [link for link, fails in groups.items() if not fails] == [("n1", "v1", "heartbeat")]


def test_an_explanation_is_saved_and_printed(tmp_path: Path) -> None:
    told, file = bounced(), tmp_path / finding.EXPLANATION
    explain.write(told, file)
    assert msgspec.json.decode(file.read_bytes(), type=Explanation) == told
    lines = list(explain.as_lines(told))
    assert "without fault 0 (Kill n2): does not fail" in lines
    assert any(line.startswith("!") for line in lines)


def test_another_failure_that_comes_instead_is_named() -> None:
    one = Counterfactual(kind="fault", without="fault 0 (Kill n1)", fails=False, instead="other: x")
    told = msgspec.structs.replace(bounced(), counterfactuals=(one,))
    assert list(explain.as_lines(told))[-1].endswith("fails in another way (other: x)")


def test_a_divergence_is_explained_at_its_first_offset() -> None:
    schedule = ready_made.load("kip-279-scenario-1")
    told = explain.explain(schedule)
    assert told.property == "committed-prefix-agreement"
    appends = [s for s in told.sentences if s.kind == "append" and " as leader of " in s.text]
    assert len({s.node for s in appends}) == 2, "two leaders, two records at one offset"
