"""The files of a run, of a finding and of a nightly run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harness.formats.history import Op
from harness.formats.run_info import FIELDS, Promise, RunInfo, understood


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
