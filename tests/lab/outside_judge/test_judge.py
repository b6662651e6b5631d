"""The outside judge: each invariant of the model, kept by one trace and broken by another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab.outside_judge.judge import INVARIANTS, OutsideJudge, judge_trace
from tests.lab.outside_judge.run_folder import OutsideVerdict, judge_folder
from tests.support.checker.story import NODES, P
from tests.support.checker.story_text import blocks, steps_of, take


class Trace:
    """A trace written event by event; each event is a turn of its own."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        for node in NODES:
            self.add(node, "started")
            self.add(node, "registered", broker_epoch=1)
            self.add("v1", "broker", broker=node, broker_epoch=1, state="unfenced")
        self.record(1, "n1", NODES)
        for node in NODES:
            self.role(node, "n1", 1, 1)

    def add(self, node: str, event: str, **fields: Any) -> None:
        stamp = {"t_us": len(self.events), "node": node, "incarnation": 1, "event": event}
        told = {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items()}
        self.events.append({**stamp, **told})

    def data(self, node: str, event: str, **fields: Any) -> None:
        self.add(node, event, partition=P, **fields)

    def record(self, epoch: int, leader: str, isr: tuple[str, ...], **more: Any) -> None:
        """Commit a record; leader epoch and partition epoch are the same here."""
        leader = leader.replace("none", "")
        known = {"leader": leader, "leader_epoch": epoch, "partition_epoch": epoch, "isr": isr}
        known |= {"elr": (), "last_known_elr": (), "replicas": NODES, "min_isr": 2}
        self.data("v1", "partition", **known | more)

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

    def judge(self) -> dict[str, str]:
        return {each.invariant: each.sentence for each in judge_trace(self.events).broken}


def committed(more: str = "") -> Trace:
    """Two records in a batch, on all three replicas, committed and acknowledged; then more."""
    steps = "append n1 0 2; append n2 0 2; append n3 0 2; hw n1 2; data n1 ack base_offset=0 leo=2"
    return take(Trace(), [*steps_of(f"{steps} acks=-1; {more}")])


TRACES = {
    name: ";".join(lines) for name, lines in blocks(Path(__file__).with_name("traces.txt")).items()
}
FENCED = TRACES["ValidControllerState"]


def test_a_sound_trace_keeps_every_invariant() -> None:
    assert committed().judge() == {}
    assert committed(TRACES["sound"]).judge() == {}


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_a_trace_that_breaks_an_invariant_is_caught(invariant: str) -> None:
    assert invariant in committed(TRACES[invariant]).judge()


def test_events_of_one_turn_are_one_action() -> None:
    """The controller fences a broker and takes it out of the ISR with one batch of records."""
    trace = committed(f"{FENCED}; record 2 n1 n1,n2 leader_epoch=1")
    apart = judge_trace(trace.events)
    together = OutsideJudge()
    for event in trace.events[:-2]:
        together.turn([event])
    together.turn(trace.events[-2:])
    assert [each.invariant for each in apart.broken] == ["ValidControllerState"]
    assert together.broken == []


def test_a_process_that_starts_counts_only_when_its_log_is_known() -> None:
    started = "add n3 started; add n3 registered broker_epoch=9"
    assert committed(started).judge() == {}
    known = committed(f"{started}; role n3 n1 1 1 end=0")
    assert list(known.judge()) == ["LeaderCandidateCompleteness"]


def test_a_replica_that_found_its_log_damaged_is_no_candidate_until_it_cut_it() -> None:
    restarted = "add n3 started; add n3 registered broker_epoch=9"
    declines = f"{restarted}; data n3 damaged offset=0; role n3 n1 1 1 end=0"
    assert committed(declines).judge() == {}
    assert list(committed(f"{declines}; cut n3 0").judge()) == ["LeaderCandidateCompleteness"]


UNREADABLE = 'not a line\n{"t_us": 99, "node": "n1", "incarnation": 1, "event": "stopped"}\n'


def folder_with(folder: Path, trace: str | None) -> OutsideVerdict:
    """Return the judgement of a run folder with such a trace of n1."""
    (folder / "run.json").write_text('{"promise": {}}')
    (folder / "schedule.json").write_text('{"cluster": {"protocol": "kafka"}}')
    if trace is not None:
        (folder / "trace").mkdir()
        (folder / "trace" / "n1.jsonl").write_text(trace)
    return judge_folder(folder)


@pytest.mark.parametrize("text", [None, "", "not a line\n"])
def test_a_run_without_a_trace_is_not_judged(tmp_path: Path, text: str | None) -> None:
    """No event breaks no invariant, and shows nothing."""
    assert folder_with(tmp_path, text).why_not


@pytest.mark.parametrize("end", ["", '{"t_us": 9, "no', "\n", UNREADABLE])
def test_a_line_in_the_middle_that_cannot_be_read(tmp_path: Path, end: str) -> None:
    """Only what a killed process leaves at the end is left out."""
    text = "".join(f"{json.dumps(event)}\n" for event in committed().events)
    found = folder_with(tmp_path, text + end)
    unread = "line 19 of its trace n1.jsonl cannot be read"
    assert found.why_not[: len(unread)] == (unread if end == UNREADABLE else "")
    assert bool(found.judge.events) == (end != UNREADABLE)
