"""The outside judge: each invariant of the model, kept by one trace and broken by another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checker.outside.judge import INVARIANTS, OutsideJudge, judge_trace
from checker.outside.run_folder import judge_folder

P = "log-0"


class Trace:
    """A trace written event by event; each event is a turn of its own."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        for node in ("n1", "n2", "n3"):
            self.add(node, "started")
            self.add(node, "registered", broker_epoch=1)
            self.add("v1", "broker", broker=node, broker_epoch=1, state="unfenced")
        self.record(1, "n1", "n1 n2 n3")
        for node in ("n1", "n2", "n3"):
            self.role(node, "n1", 1, 1)

    def add(self, node: str, event: str, **fields: Any) -> None:
        stamp = {"t_us": len(self.events), "node": node, "incarnation": 1, "event": event}
        self.events.append({**stamp, **fields})

    def data(self, node: str, event: str, **fields: Any) -> None:
        self.add(node, event, partition=P, **fields)

    def record(self, epoch: int, leader: str, isr: str, elr: str = "", **more: Any) -> None:
        """The controller commits a record; leader epoch and partition epoch are the same here."""
        known = {"last_known_elr": [], "replicas": ["n1", "n2", "n3"], "min_isr": 2}
        self.data(
            "v1",
            "partition",
            **{
                "leader": leader,
                "leader_epoch": epoch,
                "partition_epoch": epoch,
                "isr": isr.split(),
                "elr": elr.split(),
                **known,
                **more,
            },
        )

    def role(self, node: str, leader: str, epoch: int, partition_epoch: int, end: int = 0) -> None:
        self.data(
            node,
            "role",
            role="leader" if node == leader else "follower",
            leader=leader,
            leader_epoch=epoch,
            partition_epoch=partition_epoch,
            leo=end,
            hw=0,
        )

    def append(self, node: str, base: int, end: int, of: str = "a") -> None:
        self.data(node, "append", base_offset=base, leo=end, leader_epoch=1, hash=f"{of}{end}")

    def hw(self, node: str, end: int, of: str = "a") -> None:
        self.data(node, "hw", hw=end, batch_end=end, hash=f"{of}{end}" if end else "")

    def cut(self, node: str, end: int) -> None:
        self.data(node, "truncated", leo=end, hw=0)

    def ack(self, node: str, base: int, end: int) -> None:
        self.data(node, "ack", base_offset=base, leo=end, acks=-1)

    def judge(self) -> dict[str, str]:
        return {each.invariant: each.sentence for each in judge_trace(self.events).broken}


def committed() -> Trace:
    """Two records in a batch, on all three replicas, committed and acknowledged."""
    trace = Trace()
    for node in ("n1", "n2", "n3"):
        trace.append(node, 0, 2)
    trace.hw("n1", 2)
    trace.ack("n1", 0, 2)
    return trace


def test_a_sound_trace_keeps_every_invariant() -> None:
    trace = committed()
    trace.hw("n2", 2)
    trace.data("n1", "proposed", isr=["n1", "n2"], leader_epoch=1, partition_epoch=1)
    trace.record(2, "n1", "n1 n2", leader_epoch=1)
    trace.data(
        "n1", "isr", isr=["n1", "n2"], maximal_isr=["n1", "n2"], leader_epoch=1, partition_epoch=2
    )
    trace.append("n1", 2, 3)
    trace.append("n2", 2, 3)
    trace.hw("n1", 3)
    trace.record(3, "n2", "n2", elr="n1")
    trace.role("n2", "n2", 3, 3, end=3)
    assert trace.judge() == {}


def role_before_registration(trace: Trace) -> None:
    trace.add("n2", "started")
    trace.role("n2", "n1", 1, 1, end=2)


def append_with_a_gap(trace: Trace) -> None:
    trace.append("n2", 3, 4)


def fenced_member(trace: Trace) -> None:
    trace.add("v1", "broker", broker="n3", broker_epoch=1, state="fenced")


def elr_at_min_isr(trace: Trace) -> None:
    trace.record(2, "n1", "n1 n2", elr="n3", leader_epoch=1)


def left_out_of_the_quorum(trace: Trace) -> None:
    trace.record(2, "n1", "n1 n2", leader_epoch=1)
    trace.data(
        "n1", "isr", isr=["n1", "n2"], maximal_isr=["n1", "n2"], leader_epoch=1, partition_epoch=2
    )
    trace.record(3, "n1", "n1 n2 n3", leader_epoch=1)


def incomplete_candidate(trace: Trace) -> None:
    trace.cut("n3", 0)


def incomplete_leader(trace: Trace) -> None:
    trace.cut("n3", 0)
    trace.record(2, "n3", "n3 n2")


def others_committed(trace: Trace) -> None:
    trace.cut("n2", 0)
    trace.append("n2", 0, 2, of="b")
    trace.hw("n2", 2, of="b")
    trace.hw("n3", 2)


def metadata_differs(trace: Trace) -> None:
    for node, of in (("v1", "x"), ("n1", "y")):
        where = {"partition": "__cluster_metadata-0"}
        trace.add(node, "append", base_offset=0, leo=1, leader_epoch=1, hash=f"{of}1", **where)
        trace.add(node, "hw", hw=1, batch_end=1, hash=f"{of}1", **where)


def gone_everywhere(trace: Trace) -> None:
    for node in ("n1", "n2", "n3"):
        trace.cut(node, 0)


def leader_with_another_log(trace: Trace) -> None:
    trace.cut("n2", 0)
    trace.append("n2", 0, 2, of="b")
    trace.record(2, "n2", "n2 n3")
    trace.role("n2", "n2", 2, 2, end=2)


def nobody_to_ask(trace: Trace) -> None:
    trace.record(2, "", "", last_known_elr=["n1"])


BROKEN: dict[str, Callable[[Trace], None]] = {
    "ValidBrokerState": role_before_registration,
    "ValidReplicaState": append_with_a_gap,
    "ValidControllerState": fenced_member,
    "ValidControllerIsrAndElr": elr_at_min_isr,
    "ReplicationQuorumSuperset": left_out_of_the_quorum,
    "LeaderCandidateCompleteness": incomplete_candidate,
    "LeaderCompleteness": incomplete_leader,
    "LogMatching": others_committed,
    "MetadataLogMatching": metadata_differs,
    "NoCommittedRecordLostGlobally": gone_everywhere,
    "ConsistentRead": leader_with_another_log,
    "MinIsrRecoveryQuorum": nobody_to_ask,
}


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_a_trace_that_breaks_an_invariant_is_caught(invariant: str) -> None:
    trace = committed()
    assert trace.judge() == {}
    BROKEN[invariant](trace)
    assert invariant in trace.judge()


def test_events_of_one_turn_are_one_action() -> None:
    """The controller fences a broker and takes it out of the ISR with one batch of records."""
    trace = committed()
    fenced_member(trace)
    trace.record(2, "n1", "n1 n2", leader_epoch=1)
    apart = judge_trace(trace.events)
    together = OutsideJudge()
    for event in trace.events[:-2]:
        together.turn([event])
    together.turn(trace.events[-2:])
    assert [each.invariant for each in apart.broken] == ["ValidControllerState"]
    assert together.broken == []


def test_a_process_that_starts_counts_only_when_its_log_is_known() -> None:
    trace = committed()
    trace.add("n3", "started")
    trace.add("n3", "registered", broker_epoch=9)
    assert trace.judge() == {}
    trace.role("n3", "n1", 1, 1, end=0)
    assert list(trace.judge()) == ["LeaderCandidateCompleteness"]


@pytest.mark.parametrize("text", [None, "", "not a line\n"])
def test_a_run_without_a_trace_is_not_judged(tmp_path: Path, text: str | None) -> None:
    """No event breaks no invariant, and shows nothing."""
    (tmp_path / "run.json").write_text('{"promise": {}}')
    (tmp_path / "schedule.json").write_text('{"cluster": {"protocol": "kafka"}}')
    if text is not None:
        (tmp_path / "trace").mkdir()
        (tmp_path / "trace" / "n1.jsonl").write_text(text)
    assert judge_folder(tmp_path).why_not


@pytest.mark.parametrize(
    ("end", "why_not"),
    [
        ("", ""),
        ('{"t_us": 9, "no', ""),
        ("\n", ""),
        (
            'not a line\n{"t_us": 99, "node": "n1", "incarnation": 1, "event": "stopped"}\n',
            "line 19 of its trace n1.jsonl cannot be read",
        ),
    ],
)
def test_a_line_in_the_middle_that_cannot_be_read(tmp_path: Path, end: str, why_not: str) -> None:
    """Only what a killed process leaves at the end is left out."""
    (tmp_path / "run.json").write_text('{"promise": {}}')
    (tmp_path / "schedule.json").write_text('{"cluster": {"protocol": "kafka"}}')
    (tmp_path / "trace").mkdir()
    text = "".join(f"{json.dumps(event)}\n" for event in committed().events)
    (tmp_path / "trace" / "n1.jsonl").write_text(text + end)
    found = judge_folder(tmp_path)
    assert found.why_not.startswith(why_not)
    assert bool(found.why_not) == bool(why_not)
    assert bool(found.judge.events) == (not why_not)
