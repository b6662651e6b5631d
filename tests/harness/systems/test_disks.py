"""Our own brokers on both kinds of disks: the same schedule has the same verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.systems.disks import UserDisks
from nemesis.disk import control
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError
from tests.support.command import exit_code
from tests.support.disk_rig import suspend
from tests.support.patience import brief, patient, played
from tests.support.running_harness import lines

pytestmark = [pytest.mark.integration, pytest.mark.needs("fuse")]

ONE = {"brokers": 1, "partitions": 1, "replication_factor": 1, "min_isr": 1}


def judged(
    disk: str, cluster: dict[str, Any], fault: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> tuple[str, bool, bool]:
    """Return the verdict of a run, whether it names a lost record, and whether the fault had an
    effect. The storm ends with its fault."""
    schedule = {
        "floodmark_schedule": 1,
        "cluster": {**ONE, **cluster},
        "workload": {"batch": 1, "rate": 30, "seed": 1, "clients": 2, "duration_ms": 100_000},
        "faults": [{"on": "n1", "for_ms": 300, "after": {"event": "ack", "nth": 10}, **fault}],
    }
    file = Path(f"{disk}.json")
    file.write_text(json.dumps(schedule))
    output = "--no-spark --no-report --quiet --json"
    exit_code(f"run --schedule {file} --disk {disk} --store {disk} {output}".split())
    told = json.loads(capsys.readouterr().out)
    info = json.loads((Path(told["path"]) / "run.json").read_text())
    assert info["system"]["disk"] == disk
    assert info["problems"] == []
    found = lines(Path(told["path"]) / "faults.jsonl")
    lost = "lost" in json.dumps(told["result"].get("anomalies", ()))
    effect = any(line.get("writes", line["action"] == "inject") for line in found)
    return told["result"]["verdict"], lost, effect


@pytest.mark.parametrize(
    ("cluster", "fault"),
    [
        ({"flush": "sync"}, {"what": "power-cut", "keep_percent": 0}),
        ({"flush": "async", "flush_interval_ms": 60_000}, {"what": "power-cut", "keep_percent": 0}),
        (
            {"flush": "async", "flush_interval_ms": 60_000},
            {"what": "power-cut", "keep_percent": 100},
        ),
        ({"flush": "sync"}, {"what": "fsync-error"}),
        ({"flush": "sync"}, {"what": "lying-fsync", "for_ms": 1500}),
    ],
)
def test_the_journal_and_a_disk_in_user_space_have_the_same_verdict(
    cluster: dict[str, Any],
    fault: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    for patch in (brief, patient, played):
        patch(monkeypatch)
    on_each = {disk: judged(disk, cluster, fault, capsys) for disk in ("journal", "user-space")}
    assert on_each["journal"] == on_each["user-space"]
    assert on_each["journal"][2]


def test_a_disk_whose_process_ends_is_a_problem_and_excuses_its_node(tmp_path: Path) -> None:
    disks = UserDisks({"n1": tmp_path / "n1", "n2": tmp_path / "n2"}, tmp_path, Schedule(faults=()))
    excused: list[str] = []
    try:
        first = disks.start("n1")
        disks.watch(excused.append)
        assert (excused, disks.problems) == ([], [])
        psutil.Process(first).kill()
        disks.look("n1", excused.append)
        assert excused == ["n1"], "a disk that is about to end is waited for"
        # The next process of the node has a disk again.
        second = disks.start("n1")
        disks.watch(excused.append)
        assert second != first
        assert excused == ["n1"]
        assert [problem.kind for problem in disks.problems] == ["disk-ended"]
        disks.power_cut("n1", 0.0, None)
        disks.watch(excused.append)
        assert len(disks.problems) == 1, "a power cut ends the process on purpose"
    finally:
        disks.close()


def test_a_power_cut_that_is_not_over_in_time_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "n1"
    folder.mkdir()
    (folder / "log").write_text("x")
    disks = UserDisks({"n1": folder}, tmp_path, Schedule(faults=()))
    try:
        disks.copy("n1")
        assert [path.name for path in tmp_path.glob("n1.copy*")] == ["n1.copy-1"]
        suspend(disks.start("n1"))
        monkeypatch.setattr(control, "ORDER_S", 0.05)
        with pytest.raises(FloodmarkError):
            disks.power_cut("n1", 0.0, None)
        assert [problem.kind for problem in disks.problems] == ["disk-ended"]
    finally:
        disks.close()
    assert [path.name for path in tmp_path.glob("n1*")] == ["n1"], "no copy is left"
