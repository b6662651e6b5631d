"""The whole command on real processes: a storm and its verdict, Ctrl-C, and a killed harness."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from harness.formats.history import Op, decode
from nemesis.faults import ClockRate, Delay, Kill, Pause, Reassign
from nemesis.formats.schedule import Cluster, Schedule, Workload
from tests.support.checker.done import pairs
from tests.support.running_harness import (
    CALM,
    SMALL,
    acknowledged,
    broken_properties,
    events,
    lines,
    ran,
    run_folder,
    start,
    wait_until,
)
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.integration


def history(folder: Path) -> list[Op]:
    return [decode(line) for line in (folder / "history.jsonl").read_bytes().splitlines()]


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of one short storm that was judged valid."""
    faults = (
        Kill(on="leader:log-0", at_ms=2000, for_ms=600),
        Delay(on="n1", to="v1", delay_ms=20, at_ms=3200, for_ms=900),
        Pause(on="n3", at_ms=3300, for_ms=300),
    )
    folder = tmp_path_factory.mktemp("storm")
    harness = start(folder, Schedule(cluster=SMALL, workload=CALM, faults=faults), "--json")
    out, err = harness.communicate(timeout=PATIENCE_S)
    assert harness.returncode == 0, (out, err)
    assert json.loads(out)["result"]["verdict"] == "valid", out
    return run_folder(folder)


@pytest.mark.xdist_group("storm")
def test_a_storm_over_correct_brokers_is_valid_and_leaves_everything(storm: Path) -> None:
    folder = storm
    info = json.loads((folder / "run.json").read_text())
    assert info["state"] == "finished"
    assert info["problems"] == []
    phases = info["phases"]
    assert phases.pop("alike_us") >= 0
    assert phases.pop("drain_us") == 0, "nobody was a member of a group"
    assert 0 not in phases.values()
    assert phases["heal_us"] <= phases.pop("in_sync_us") <= phases["stop_writing_us"]
    assert list(phases.values()) == sorted(phases.values())
    actions = [line["action"] for line in lines(folder / "faults.jsonl")]
    assert actions.count("inject") == 3
    exits = lines(folder / "exits.jsonl")
    assert all(each["expected"] for each in exits)
    assert sum(each["by"] == "kill" for each in exits) == 1
    for node in ("n1", "n2", "n3"):
        assert lines(folder / "logs" / f"{node}.jsonl")[-1]["partition"] == ""
    assert (folder / "report.html").stat().st_size > 0
    assert not (folder / "data").exists()


@pytest.mark.xdist_group("storm")
def test_the_history_of_a_run_keeps_the_discipline_of_clients(storm: Path) -> None:
    ops = history(storm)
    assert [op.t_us for op in ops] == sorted(op.t_us for op in ops)
    invoked = [op.op for op in ops if op.type == "invoke"]
    assert sorted(invoked) == list(range(len(invoked)))
    retired: set[int] = set()
    for op in ops:
        assert op.process not in retired, f"operation {op.op} of a retired process"
        if op.type == "info":
            retired.add(op.process)
    values = [op.sends[0].value for op in ops if op.f == "send" and op.type == "invoke"]
    assert len(set(values)) == len(values)
    seen: dict[str, int] = {}
    acked: dict[str, int] = {}
    for invocation, completion in pairs(ops):
        assert completion is not None, f"operation {invocation.op} never ended"
        if completion.type == "ok" and completion.f == "send":
            send = completion.sends[0]
            acked[send.partition] = max(acked.get(send.partition, 0), send.offset + send.count)
        if completion.final:
            for read in completion.reads:
                for records in read.records:
                    end = records.offset + records.count
                    seen[read.partition] = max(seen.get(read.partition, 0), end)
    assert set(acked) == {"log-0", "log-1"}
    assert all(seen[partition] >= end for partition, end in acked.items())


def test_ctrl_c_heals_collects_and_judges_what_is_there(tmp_path: Path) -> None:
    workload = Workload(seed=3, clients=4, consumers=2, rate=20, duration_ms=600_000)
    faults = (Pause(on="n1", at_ms=200),)
    schedule = Schedule(cluster=SMALL, workload=workload, faults=faults)
    harness = start(tmp_path, schedule, "--no-report")
    wait_until(lambda: acknowledged(tmp_path) > 60, harness)
    harness.send_signal(signal.SIGINT)
    out, err = harness.communicate(timeout=PATIENCE_S)
    assert harness.returncode in (0, 1, 2), (out, err)
    assert "Traceback" not in out + err
    folder = run_folder(tmp_path)
    assert json.loads((folder / "run.json").read_text())["state"] == "interrupted"
    result = json.loads((folder / "results.json").read_text())
    assert result["verdict"] != "invalid", result
    assert any(op.final and op.type == "ok" and op.f == "poll" for op in history(folder))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("bug", "broken"),
    [
        ("ack-before-isr", "no-lost-acknowledged-write"),
        ("read-beyond-hw", "reads-below-hw"),
        ("elect-any-replica", "log-and-metadata"),
    ],
)
def test_a_historical_bug_is_found_and_its_property_named(
    tmp_path: Path, bug: str, broken: str
) -> None:
    _, result = ran(tmp_path, "run", "--seed", "3", "--bug", bug, verdict="invalid")
    assert broken in broken_properties(result), result["sentence"]


@pytest.mark.nightly
def test_a_partition_is_resized_while_clocks_run_fast_and_slow(tmp_path: Path) -> None:
    """Idempotent producers write on; the last record of the partition names its last replicas."""
    faults = (
        ClockRate(on="n2", at_ms=1000, for_ms=8000, percent=200),
        ClockRate(on="v1", at_ms=1000, for_ms=8000, percent=67),
        Reassign(partition="log-0", replicas="n1,n2,n3,n4", at_ms=2000),
        Reassign(partition="log-0", replicas="n4,n1", at_ms=6000),
    )
    made = Schedule(
        cluster=Cluster(brokers=4, partitions=1),
        workload=Workload(seed=4, clients=3, consumers=1, idempotent=True, duration_ms=10_000),
        faults=faults,
    )
    (tmp_path / "resized.json").write_bytes(made.to_json())
    folder, _ = ran(tmp_path, "run", "--schedule", "resized.json")
    changes = events(folder, "v1", "partition")
    replicas = [event["replicas"] for event in changes if not event["adding"]]
    assert ["n1", "n2", "n3", "n4"] in replicas
    assert replicas[-1] == ["n4", "n1"]
