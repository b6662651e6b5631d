"""`floodmark systems check`: a run without a fault, a kill and a cut, and where it stops."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.runs import system_check
from harness.runs.system_check import CheckStep
from harness.systems.external import cluster
from tests.support import trial_adapters
from tests.support.command import exit_code
from tests.support.patience import brief, patient

CHANGES = ("join", "replace")
TRIAL = f"{trial_adapters.__name__}:Trial"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, ms in (("CALM_MS", 2000), ("FAULT_AT_MS", 800), ("FAULT_MS", 500)):
        monkeypatch.setattr(system_check, name, ms)
    for patch in (brief, patient):
        patch(monkeypatch)
    # The trial has one replica of three, and says so.
    monkeypatch.setattr(cluster, "IN_SYNC_TIMEOUT_S", 0.1)
    monkeypatch.setattr(cluster.ExternalCluster, "tells_in_sync", False)


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    """Its exit code and lines."""
    code = exit_code(["systems", "check", "--quiet", *words])
    return code, capsys.readouterr().out.splitlines()


def test_a_step_is_printed_before_the_next_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    file, seen = io.BytesIO(), []

    def steps(*_: Any, **__: Any) -> Iterator[CheckStep]:
        for name in ("class", "kill"):
            yield CheckStep(name, True, "it is so")
            seen.append(file.getvalue().decode())

    monkeypatch.setattr(system_check, "check_system", steps)
    with io.TextIOWrapper(file) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert exit_code(["systems", "check", "--quiet", TRIAL]) == 0
        assert seen == ["ok  class: it is so\n", "ok  class: it is so\nok  kill: it is so\n"]


@pytest.mark.integration
def test_each_step_is_a_run_and_a_cut_must_cut_something(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, lines = check(capsys, TRIAL)
    steps = ["ok  class", "ok  no fault", "ok  kill", "NOT cut"]
    assert [line.split(":")[0] for line in lines[:4]] == steps
    # Its nodes do not talk to each other.
    assert (code, "had no effect" in lines[3]) == (1, True), lines
    assert "The start took" in lines[1]
    assert "a failover at most" in lines[2]
    for name in ("kill", "cut"):
        assert '"leader:log-0"' in Path(f"store/check-{name}/latest/schedule.json").read_text()
    info = json.loads(next(Path("store/check-kill").glob("*/run.json")).read_text())
    took_ms = (info["phases"]["storm_us"] - info["phases"]["start_us"]) / 1000
    trial = trial_adapters.Trial
    # A restart may take as long as the start did, and as the adapter declares.
    assert trial.failover_ms + trial.restart_ms <= info["failover_ms"]
    assert info["failover_ms"] <= trial.failover_ms + max(trial.restart_ms, took_ms)
    assert {f.name[6:] for f in Path("store").iterdir()} == {"cut", "kill", "no-fault"}


@pytest.mark.nightly
@pytest.mark.needs("nats")
def test_an_adapter_that_works_passes_every_step(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    patient(monkeypatch)
    code, lines = check(capsys, "nats", "--set", "sync=always", "--store", str(tmp_path / "runs"))
    assert code == 0, lines
    steps = [line.split(":")[0] for line in lines if not line.startswith(" ")]
    names = ("class", "no fault", "kill", "cut", "far behind", "power cut", *CHANGES, "group")
    assert steps == [f"ok  {name}" for name in names]


def test_a_run_shows_the_time_of_a_restart_and_changes_that_came_to_nothing(tmp_path: Path) -> None:
    assert system_check._back_ms(tmp_path) == 0
    heal = {"fault": 0, "action": "heal", "t_us": 2_000_000, "nodes": ["n3"]}
    change = {"fault": 1, "action": "effect", "what": "join", "detail": "no answer", "unseen": 1}
    (tmp_path / "faults.jsonl").write_text(f"{json.dumps(heal)}\n{json.dumps(change)}\n")
    isr = [(1_000_000, ["n3"]), (2_500_000, ["n1"]), (5_000_000, ["n1", "n3"]), (6_000_000, ["n3"])]
    events = [{"event": "isr", "t_us": t_us, "isr": nodes} for t_us, nodes in isr]
    (tmp_path / "probes.jsonl").write_text("".join(f"{json.dumps(e)}\n" for e in events))
    assert system_check._back_ms(tmp_path) == 3000
    told = system_check._unseen_changes(tmp_path)
    assert told == ("join was not seen to be done: no answer",)


@pytest.mark.nightly
@pytest.mark.needs("rabbitmq")
def test_connections_past_the_links_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    patient(monkeypatch)
    monkeypatch.setattr(system_check, "_plans", lambda system, links: [(system, "no fault", ())])
    _, lines = check(capsys, "rabbitmq", "--store", str(tmp_path / "runs"))
    assert any("directly: link faults do not touch it" in line for line in lines), lines


@pytest.mark.integration
def test_it_stops_at_the_first_step_that_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    patient(monkeypatch, recovery_ms=500)
    code, lines = check(capsys, TRIAL, "--set", "broken=read")
    assert (code, lines[0].split(":")[0]) == (1, "ok  class")
    assert lines[1].startswith("NOT no fault: ")
    assert "KeyError: 'read is broken'" in lines[1]
    assert lines[-1].startswith("    run: ")
    assert not any("kill" in line or "cut" in line for line in lines)


@pytest.mark.integration
def test_a_mistake_of_an_adapter_gets_a_hint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "twice.py"
    file.write_text(
        "from tests.support.trial_adapters import Trial\n"
        "class Twice(Trial):\n"
        "    async def send(self, connection, record):\n"
        "        await super().send(connection, record)\n"
        "        return await super().send(connection, record)\n"
    )
    code, lines = check(capsys, f"{file}:Twice")
    assert (code, lines[1].split(":")[0]) == (1, "NOT no fault")
    assert f"    hint: {system_check.HINTS['duplicate']}" in lines
