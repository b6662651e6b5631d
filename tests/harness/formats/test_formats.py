"""The files of a run, of a finding and of a nightly run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from checker.formats.story import StoryStep
from harness.formats import nightly_journal as journal
from harness.formats import nightly_run
from harness.formats.baseline import Baseline, Side
from harness.formats.finding import Counterfactual, Explanation
from harness.formats.history import LogRun, Op, Read, RecordRun, Send
from harness.formats.problem import Problem
from harness.formats.process_exits import Exit
from harness.formats.run_info import FIELDS, Phases, Promise, RunInfo, understood
from tests.support.format_table import Format, check

HUGE = 2**63
RUN = RecordRun(1, 2, 3, 4)
INFO = RunInfo(
    run="a/b",
    name="a",
    seed=7,
    protocol="kafka",
    command=["floodmark", "run"],
    world="real",
    promise=Promise(acks=1, staleness_ms=5),
    partitions={"log-0": ("n1", "n2")},
    phases=Phases(storm_us=1, end_us=9),
    state="finished",
    recovery_limit_ms=7500,
    problems=[Problem(kind="hub-ended", sentence="p")],
    rejected={"n1": 3},
)
SIDE = Side(protocol="kafka", bugs=("x",), verdict="valid", sentence="s", broken=("liveness",))


@pytest.mark.parametrize(
    "form",
    [
        Format(
            Send(partition="log-0", value=5, count=2, acks=1, offset=3),
            (("count", 2**17 + 1), ("count", -1), ("value", HUGE), ("partition", "")),
        ),
        Format(
            Read(partition="log-0", start=1, records=(RUN,), hw=2, node="n1"),
            (("start", -2), ("hw", HUGE - 1), ("records", [[1, 2, 2**17 + 1]])),
        ),
        Format(
            Op(
                op=1,
                t_us=2,
                process=3,
                client="c1",
                type="ok",
                f="txn",
                sends=(Send(partition="p", value=1),),
                final=True,
                error="e",
                step=4,
            ),
            (("op", -2), ("t_us", -1), ("process", HUGE), ("type", "done"), ("f", "push")),
        ),
        Format(
            LogRun(node="n1", partition="log-0", offset=1, count=2, hw=3, epochs=((1, 0),)),
            (("count", 2**40), ("offset", HUGE), ("epochs", [[1, -2]])),
        ),
        Format(
            Exit(node="n1", incarnation=1, t_us=2, code=-9, by="kill", expected=True),
            (("t_us", -1), ("code", HUGE), ("by", "accident"), ("incarnation", "1")),
        ),
        Format(Promise(acks=0, staleness_ms=3), (("staleness_ms", -2), ("flush", 1))),
        Format(Phases(storm_us=4), (("storm_us", -1), ("end_us", HUGE))),
        Format(INFO, (("epoch_us", 10**30), ("recovery_limit_ms", -1), ("phases", {"end_us": -1}))),
        Format(
            Explanation(
                schedule="d",
                bucket="b",
                storm_us=1,
                offset=2,
                sentences=(StoryStep(t_us=1, text="x", kind="role"),),
                counterfactuals=(Counterfactual(kind="fault", without="w", fails=True),),
                untried=3,
            ),
            (("storm_us", -1), ("offset", -2), ("untried", -1), ("counterfactuals", [{}])),
        ),
        Format(SIDE, (("bugs", "x"), ("sentence", None))),
        Format(
            Baseline(schedule="d", seed=1, as_it_is=SIDE, baseline=SIDE, same_again=True),
            (("seed", 1.5), ("baseline", {}), ("same_again", "yes")),
        ),
        Format(
            journal.Ran(
                key="k", why="storm", protocol="kafka", verdict="valid", sentence="s", faults=2
            ),
            (("seconds", -1.0), ("faults", -1), ("verdict", 1)),
        ),
        Format(
            nightly_run.Bucket(
                key="k",
                protocol="kafka",
                world="real",
                property="p",
                name="n",
                expected=True,
                count=3,
            ),
            (("count", -1), ("faults", HUGE), ("expected", "no")),
        ),
    ],
    ids=repr,
)
def test_format(form: Format) -> None:
    check(form)


def test_the_fields_of_a_run_info_are_understood_one_by_one() -> None:
    found = {"run": "a/b", "epoch_us": -1, "state": "finished", "unknown": 1}
    fields, problems = understood(found, FIELDS)
    assert fields == {"run": "a/b", "state": "finished"}
    assert problems == ["run.json: epoch_us is not understood: Expected `int` >= 0."]
    assert understood(found, {"run"}) == ({"run": "a/b"}, [])


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        ({}, True),
        ({"acks": 1, "durable_acks": False}, True),
        ({"durable_acks": False}, False),
        ({"acks": 1, "committed_kept": False}, False),
        ({"acks": 1, "unclean_election": True}, False),
    ],
)
def test_whether_committed_records_stay(changes: dict[str, Any], stays: bool) -> None:
    strictest = RunInfo().promise
    assert strictest == Promise()
    assert strictest.durable_acks
    assert strictest.contiguous_offsets
    assert msgspec.structs.replace(strictest, **changes).committed_stays is stays


def test_a_line_of_a_history_may_leave_out_what_is_default() -> None:
    op = Op(op=0, t_us=0, process=0, client="c", type="invoke", f="poll")
    assert msgspec.json.decode(msgspec.json.encode(op)).keys() == {
        *("op", "t_us", "process", "client", "type", "f")
    }
