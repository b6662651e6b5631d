"""Timelines: what a run's trace says about one offset, in sentences."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from checker.formats.verdict import Anomaly, RunResult, Verdict, Witness
from checker.output.timeline import AFTERWARDS, MAX_SENTENCES, read_of, tell
from checker.output.timeline_file import write_timeline
from nemesis.formats.fault_log import Action, FaultLine
from node.formats.event_text import parse
from node.formats.trace import event

Line = dict[str, Any]
P = "log-0"


class Tape:
    """Trace events, one after another, a millisecond apart."""

    def __init__(self) -> None:
        self.events: list[Line] = []
        self.faults: list[FaultLine] = []
        self._t_us = itertools.count(1000, 1000)

    def __call__(self, node: str, name: str, incarnation: int = 1, **fields: object) -> None:
        about = None if name in ("started", "stopped") else P
        self.events.append(
            {"t_us": next(self._t_us), "node": node, "incarnation": incarnation}
            | event(name, about, **fields)
        )

    def fault(self, what: str, *nodes: str, action: Action = "inject") -> None:
        self.faults.append(
            FaultLine(fault=0, t_us=next(self._t_us), what=what, action=action, nodes=nodes)
        )

    def append(self, node: str, epoch: int, base: int, leo: int, role: str = "follower") -> None:
        self(node, "append", base_offset=base, leo=leo, leader_epoch=epoch, hash="", role=role)

    def role(self, node: str, role: str, leader: str, epoch: int, leo: int, hw: int) -> None:
        self(
            node,
            "role",
            role=role,
            leader=leader,
            leader_epoch=epoch,
            partition_epoch=epoch,
            leo=leo,
            hw=hw,
        )

    def hw(self, node: str, hw: int, role: str) -> None:
        self(node, "hw", hw=hw, leo=hw, leader_epoch=1, role=role, batch_end=hw, hash="")

    def told(self, offset: int, read_us: int | None = None) -> list[str]:
        found = tell(
            map(parse, reversed(self.events)),
            self.faults,
            partition=P,
            offset=offset,
            read_us=read_us,
        )
        return [f"{'! ' if s.breaks else ''}{s.text}" for s in found]


def kip_101_scenario_1() -> Tape:
    t = Tape()
    t.append("n1", 1, 1, 2, role="leader")
    t.append("n2", 1, 1, 2)
    t.hw("n1", 2, "leader")
    t("n1", "ack", base_offset=1, leo=2, acks=-1, hw=2, isr=["n1", "n2"], client="c1")
    t.fault("kill", "n2")
    t("n2", "started", 2, protocol="high-watermark", bugs=[], clean=True)
    t.role("n2", "follower", "n1", 1, leo=2, hw=1)
    t("n2", "truncated", from_leo=2, leo=1, hw=1, reason="own-high-watermark", hash="")
    t.fault("kill", "n1")
    t(
        "v1",
        "partition",
        leader="n2",
        leader_epoch=2,
        partition_epoch=2,
        isr=["n2"],
        elr=[],
        last_known_elr=[],
        replicas=["n1", "n2"],
        unclean=False,
        adding=[],
        removing=[],
        min_isr=1,
    )
    t.role("n2", "leader", "n2", 2, leo=1, hw=1)
    t.append("n2", 2, 1, 2, role="leader")
    return t


def test_kip_101s_first_scenario_is_told_to_the_letter() -> None:
    assert kip_101_scenario_1().told(offset=1) == [
        "n1 appends offset 1 as leader of epoch 1.",
        "n2 copies offset 1 of epoch 1 from its leader.",
        "n1 moves its high watermark to 2: offset 1 is committed.",
        "n1 acknowledges offset 1 to c1 (acks=all), ISR [n1, n2], high watermark 2.",
        "Fault: kill n2.",
        "n2 starts again (process 2).",
        "! n2 truncates its log from 2 to 1, to its own high watermark. "
        "Offset 1 is removed from n2 and is still on n1.",
        "Fault: kill n1.",
        "The controller commits: n2 leads epoch 2, ISR [n2].",
        "! n2 becomes leader of epoch 2 (log end 1, high watermark 1), without offset 1.",
        "! n2 appends offset 1 as leader of epoch 2, where another record was acknowledged.",
    ]


def test_a_story_about_another_offset_is_another_story() -> None:
    assert kip_101_scenario_1().told(offset=7) == []


def test_a_zombie_leader_is_named() -> None:
    t = Tape()
    t.role("n2", "leader", "n2", 2, leo=5, hw=5)
    t.append("n1", 1, 5, 6, role="leader")
    assert t.told(offset=5) == [
        "n1 appends offset 5 as leader of epoch 1, although n2 already leads epoch 2."
    ]


def test_what_happens_long_afterwards_is_left_out() -> None:
    t = kip_101_scenario_1()
    for process in range(3, 60):
        t("n1", "started", process, protocol="high-watermark", bugs=[], clean=True)
    told = t.told(offset=1)
    assert len(told) == 11 + AFTERWARDS


def test_a_long_story_keeps_what_broke_something() -> None:
    t = Tape()
    t.append("n1", 1, 1, 2, role="leader")
    t("n1", "ack", base_offset=1, leo=2, acks=-1, hw=2, isr=["n1"], client="c1")
    for process in range(2, 200):
        t("n3", "started", process, protocol="kafka", bugs=[], clean=True)
    t("n1", "truncated", from_leo=2, leo=1, hw=1, reason="out-of-range", hash="")
    told = t.told(offset=1)
    assert len(told) == MAX_SENTENCES
    assert told[-1].startswith("! n1 truncates its log from 2 to 1, to its leader's log end")


def test_the_healing_of_everything_is_named() -> None:
    t = Tape()
    t.append("n1", 1, 1, 2, role="leader")
    t.fault("", "n1", "n3", action="heal")
    assert t.told(offset=1)[-1] == "End of all faults: n1 and n3."


def read_and_never_acknowledged() -> Tape:
    """The leader died between commit and answer: its client knows nothing, a consumer has it."""
    t = Tape()
    t.append("n1", 1, 1, 2, role="leader")
    t.append("n2", 1, 1, 2)
    t.hw("n1", 2, "leader")
    t("n2", "truncated", from_leo=2, leo=1, hw=1, reason="own-high-watermark", hash="")
    t.role("n2", "leader", "n2", 2, leo=1, hw=1)
    t.append("n2", 2, 1, 2, role="leader")
    return t


def test_what_was_read_is_owed_from_its_commit_on() -> None:
    t = read_and_never_acknowledged()
    broke = [s for s in t.told(offset=1, read_us=3500) if s.startswith("! ")]
    assert [s.partition(", to")[0] for s in broke] == [
        "! n2 truncates its log from 2 to 1",
        "! n2 becomes leader of epoch 2 (log end 1, high watermark 1), without offset 1.",
        "! n2 appends offset 1 as leader of epoch 2, where another record was read.",
    ]
    # Its answer may come to the client after the cut.
    assert [s for s in t.told(offset=1, read_us=9500) if s.startswith("! ")] == broke
    assert not [s for s in t.told(offset=1) if s.startswith("! ")]


def test_what_was_read_above_the_high_watermark_is_owed_once_it_was_read() -> None:
    t = read_and_never_acknowledged()
    del t.events[2]
    assert [s[:7] for s in t.told(offset=1, read_us=2500) if s.startswith("! ")] == [
        "! n2 tr",
        "! n2 be",
        "! n2 ap",
    ]
    assert not [s for s in t.told(offset=1, read_us=9500) if s.startswith("! ")]


def test_a_stale_record_may_be_cut_where_a_later_one_was_acknowledged() -> None:
    t = Tape()
    t.append("n1", 1, 1, 2, role="leader")
    t.append("n2", 2, 1, 2, role="leader")
    t("n2", "ack", base_offset=1, leo=2, acks=-1, hw=2, isr=["n2"], client="c1")
    t("n1", "truncated", from_leo=2, leo=1, hw=1, reason="offset-for-leader-epoch", hash="")
    t("n2", "truncated", from_leo=2, leo=1, hw=1, reason="offset-for-leader-epoch", hash="")
    broke = [s for s in t.told(offset=1) if s.startswith("! ")]
    assert [s[:14] for s in broke] == ["! n2 truncates"]


def lying_disk(role: str, epoch: int) -> list[str]:
    """n1 led epoch 1 and acknowledged offset 1; after a power cut its log ends below it."""
    t = Tape()
    t.role("n1", "leader", "n1", 1, leo=1, hw=1)
    t.append("n1", 1, 1, 2, role="leader")
    t.append("n2", 1, 1, 2)
    t("n1", "ack", base_offset=1, leo=2, acks=-1, hw=2, isr=["n1", "n2"], client="c1")
    t.role("n1", role, "n1", epoch, leo=1, hw=1)
    found = tell(map(parse, t.events), [], partition=P, offset=1)
    return [f"{s.breaks}: {s.text}" for s in found][-1:]


def test_a_leader_that_comes_back_without_what_was_not_on_disk_breaks_its_word() -> None:
    text = "(log end 1, high watermark 1), without offset 1."
    assert lying_disk("leader", 1) == [f"came-back-without: n1 becomes leader of epoch 1 {text}"]
    assert lying_disk("leader", 2) == [f"elected-without: n1 becomes leader of epoch 2 {text}"]
    assert lying_disk("follower", 2) == [
        ": n1 follows n1 in epoch 2 (log end 1, high watermark 1): "
        "offset 1 is no longer in its log."
    ]


def test_only_a_record_that_vanished_is_owed_for_being_read() -> None:
    read = Witness(what="read", t_us=7, offset=3)
    gone = Anomaly(
        property="no-lost-acknowledged-write",
        name="vanished",
        offset=3,
        witnesses=(Witness(what="read", t_us=5, offset=2), read),
    )
    assert read_of(gone) == 7
    assert read_of(replace(gone, name="lost")) is None


@pytest.mark.parametrize("declared", [True, False])
def test_a_trace_for_which_the_system_does_not_vouch_tells_nothing(
    tmp_path: Path, declared: bool
) -> None:
    info = {"capabilities": ["trace"] if declared else ["logs"], "partitions": {"log-0": ["n1"]}}
    (tmp_path / "run.json").write_text(json.dumps(info))
    (tmp_path / "trace").mkdir()
    moved = event("truncated", "log-0", from_leo=5, leo=1, hw=1, reason="own-hw", hash="")
    line = {"t_us": 5, "node": "n1", "incarnation": 1} | moved
    (tmp_path / "trace" / "n1.jsonl").write_text(json.dumps(line) + "\n")
    lost = Anomaly(
        property="no-lost-acknowledged-write",
        name="lost",
        verdict=Verdict.INVALID,
        partition="log-0",
        offset=3,
    )
    result = RunResult(run="r", verdict=Verdict.INVALID, sentence="", anomalies=(lost,))
    written = write_timeline(tmp_path, result)
    assert (written is not None) == declared
