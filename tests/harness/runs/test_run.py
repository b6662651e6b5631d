"""The course of a run over a cluster made of nothing: phases, faults, and what goes wrong."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from harness.formats import seal
from harness.runs import run_folder
from harness.runs.progress import Progress, leaders_in_words
from harness.runs.storm import ProgressState
from node.formats.errors import StorageError
from tests.support.harness_fakes import FakeSystem
from tests.support.scripts import beside, proving
from tests.support.stage_run import RunStage

test_script = proving(beside(__file__))


def test_the_phases_come_in_order_and_are_written_down() -> None:
    stage = RunStage()
    stage.run()
    info = stage.info
    phases = info["phases"]
    assert phases.pop("in_sync_us") >= phases["heal_us"]
    assert phases.pop("alike_us") == 0, "this cluster says nothing of its logs"
    assert phases.pop("drain_us") == 0, "nobody was a member of a group"
    assert list(phases) == [
        *("start_us", "storm_us", "heal_us", "recovered_us"),
        *("stop_writing_us", "final_us", "end_us"),
    ]
    assert list(phases.values()) == sorted(phases.values())
    assert phases["start_us"] > 0
    assert phases["heal_us"] - phases["storm_us"] >= 60_000
    assert info["partitions"]["log-0"] == ["n1", "n2", "n3"]
    assert info["clients"]["c1"] == "producer"
    assert info["schedule_digest"] == stage.schedule.digest()
    told = {"version": FakeSystem().version(), "simulated": True, "settings": {}}
    assert info["system"] == {
        "name": "floodmark",
        **told,
        "servers": {},
        "links": "hub",
        "disk": "journal",
    }
    assert info["replay"] == f"floodmark run --schedule {stage.store}/{info['run']}"
    assert info["recovery_limit_ms"] == 2061


def test_a_run_on_a_disk_that_fills_up_still_says_that_it_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last run.json and the seal go to space that was taken at the beginning."""
    stage = RunStage()
    write, full = seal.write_whole, list[bool]()

    def write_unless_full(path: Path, content: bytes) -> None:
        if full and list(stage.store.rglob(".reserve")):
            raise StorageError(f"{path}: the disk is full")
        write(path, content)

    for module in (seal, run_folder):
        monkeypatch.setattr(module, "write_whole", write_unless_full)
    stage.clients(after={"go": lambda: full.append(True)})
    stage.run()
    assert stage.info["state"] == "finished"
    assert {problem["kind"] for problem in stage.info["problems"]} == {"disk-full"}
    assert stage.info["seal"]


def test_progress_in_a_log_is_plain_lines_and_quiet_is_silent() -> None:
    said, nothing = io.StringIO(), io.StringIO()
    with Progress(stream=said) as loud, Progress(stream=nothing, quiet=True) as quiet:
        for progress in (loud, quiet):
            progress.phase("storm", 30)
            progress.show(ProgressState(acked=5, leaders=("n1", "")))
            progress.note("a [bracketed] note")
    assert said.getvalue() == "storm ...\na [bracketed] note\n"
    assert nothing.getvalue() == ""


def test_many_leaders_are_counted() -> None:
    assert leaders_in_words(("n1", "", "n2")) == "n1 - n2"
    assert leaders_in_words(("n1",) * 6 + ("",) + ("n2",) * 4) == "-×1 n1×6 n2×4"
