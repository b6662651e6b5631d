"""The metadata partition with three and five voters: killed, paused, cut, without power (slow)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from node.formats.trace import FIELDS, PARTITION
from tests.support.paths import ROOT
from tests.support.real_run import Event, trace
from tests.support.running_harness import lines, ran

SCHEDULE = ROOT / "nemesis" / "schedules" / "voters-in-turn.json"


@pytest.mark.nightly
@pytest.mark.parametrize("voters", [3, 5])
def test_the_controller_fails_over_five_times_and_no_metadata_is_lost(
    tmp_path: Path, voters: int
) -> None:
    schedule = json.loads(SCHEDULE.read_text())
    schedule["cluster"]["voters"] = voters
    if voters == 5:
        # Two of five may be away at any time, so this one always is.
        schedule["faults"].append({"what": "kill", "after": {"event": "ack"}, "on": "v5"})
    (tmp_path / "schedule.json").write_text(json.dumps(schedule))
    folder, _ = ran(tmp_path, "run", "--schedule", "schedule.json")
    struck = [f["what"] for f in lines(folder / "faults.jsonl") if f["on"] == "controller"]
    assert {"kill", "pause", "isolate", "power-cut"} <= set(struck)

    events = trace(folder)
    active = [e for e in events if e["event"] == "controller" and e["state"] == "active"]
    terms = [e["term"] for e in active]
    assert terms == sorted(set(terms))
    assert len(terms) >= 6

    changes = [e for e in events if e["event"] == PARTITION]
    for partition in ("log-0", "log-1"):
        history = records([e for e in changes if e["partition"] == partition])
        decided = [first["t_us"] for first in history]
        ends = [e["t_us"] for e in active[1:]] + [events[-1]["t_us"] + 1]
        busy = [
            sum(begin["t_us"] <= at < end for at in decided)
            for begin, end in zip(active, ends, strict=True)
        ]
        assert sum(map(bool, busy)) >= 4, f"changes of {partition} by each controller: {busy}"


def records(told: list[Event]) -> list[Event]:
    """Return the records of one partition, and check that each continues the one before, that none
    is missing, and that no leader epoch falls.

    A voter that leads after it lost the hint of what is committed repeats all of it, and all must
    be equal.
    """
    history: dict[int, Event] = {}
    for event in told:
        known = history.setdefault(event["partition_epoch"], event)
        assert [known[name] for name in FIELDS[PARTITION]] == [
            event[name] for name in FIELDS[PARTITION]
        ]
    first = min(history)
    assert list(history) == list(range(first, first + len(history)))
    leader_epochs = [event["leader_epoch"] for event in history.values()]
    assert leader_epochs == sorted(leader_epochs)
    return list(history.values())
