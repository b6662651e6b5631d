"""The setup of a run: what a repetition keeps of it, and that it is decided once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

import pytest

from harness import pytest_plugin
from harness.replay import replay as replays
from harness.runs import run as runs
from harness.runs.options import requested
from harness.runs.requests import RunRequest
from harness.runs.run import RunOrder
from harness.search.requests import ShrinkRequest
from harness.search.shrink import shrink_run
from harness.search.worlds.real import StormSubject
from harness.systems import registry
from harness.systems.external.system import ExternalSystem
from nemesis.faults import Cut, Kill
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.formats.errors import FloodmarkError, UsageError
from tests.support import trial_adapters
from tests.support.command import exit_code

TRIAL = f"{trial_adapters.__name__}:Trial"
SINGLE = Workload(batch=1)
OF_RUN = {"name": TRIAL, "settings": {"speed": "slow"}, "links": "none", "disk": "plain"}


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Return a failed run on direct connections, which are not the usual links."""
    (tmp_path / "run.json").write_text(json.dumps({"system": OF_RUN}))
    cluster = Cluster(protocol="Trial", partitions=1, voters=0)
    kill = Kill(on="n1", at_ms=1, for_ms=1)
    schedule = Schedule(cluster=cluster, workload=SINGLE, faults=(kill,))
    (tmp_path / "schedule.json").write_bytes(schedule.to_pretty_json())
    (tmp_path / "results.json").write_text(json.dumps(FAILED))
    return tmp_path


LOST = "no-lost-acknowledged-write"
FAILED = {
    "run": "a",
    "verdict": "invalid",
    "sentence": "b",
    "properties": [{"property": LOST, "verdict": "invalid"}],
    "anomalies": [{"property": LOST, "name": "lost"}],
}


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[RunOrder]:
    """Return what is ordered; no run begins."""
    found: list[RunOrder] = []

    def refuse(order: RunOrder, **_: Any) -> NoReturn:
        found.append(order)
        raise FloodmarkError("no run")

    for module in (runs, replays):
        monkeypatch.setattr(module, "run_once", refuse)
    return found


def test_a_repetition_has_the_links_and_the_disk_of_the_run(
    run_folder: Path, orders: list[RunOrder]
) -> None:
    assert exit_code(["run", "--system", TRIAL, "--schedule", str(run_folder), "--quiet"]) != 0
    assert exit_code(["replay", str(run_folder), "--system", TRIAL, "--quiet"]) != 0
    with pytest.raises(FloodmarkError, match="no run"):
        pytest_plugin._run(RunRequest(schedule=run_folder, system=TRIAL), run_folder, "a test")
    assert len(orders) == 3
    for order in orders:
        assert (order.on.links, order.on.disk) == ("none", "plain")
        assert order.on.system.settings["speed"] == "slow"
    request = ShrinkRequest(run=run_folder, system=TRIAL)
    job = shrink_run._of_run(request, lambda: False, None, print)  # type: ignore[arg-type]
    assert isinstance(job.subject, StormSubject)
    assert (job.subject.links, job.subject.disk) == ("none", "plain")
    assert (job.finding.links, job.finding.disk) == ("none", "plain")


def test_an_option_is_stronger_than_what_the_run_had(run_folder: Path) -> None:
    _, on = requested(RunRequest(schedule=run_folder, system=TRIAL, links="proxy"))
    assert (on.links, on.disk, on.system.settings["speed"]) == ("proxy", "plain", "slow")
    cluster = Cluster(protocol="Trial", partitions=1, voters=0)
    faults = (Cut(on="n1", to="rest", at_ms=1, for_ms=1),)
    cut = Schedule(cluster=cluster, workload=SINGLE, faults=faults)
    (run_folder / "schedule.json").write_bytes(cut.to_pretty_json())
    with pytest.raises(UsageError, match="nodes are connected directly"):
        requested(RunRequest(schedule=run_folder, system=TRIAL))


def test_a_drawn_storm_with_joins_has_spares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_adapters.Trial, "changes", ("join",))
    schedule, _ = requested(RunRequest(system=TRIAL, faults="join"))
    assert schedule.cluster.spares == 2


def test_a_storm_of_pytest_has_the_disk_that_was_asked_for(orders: list[RunOrder]) -> None:
    request = RunRequest(system=TRIAL, disk="declared", faults="kill", seed=1)
    with pytest.raises(FloodmarkError, match="no run"):
        pytest_plugin._run(request, Path("store"), "a test")
    (order,) = orders
    assert order.on.disk == "declared"


def test_the_system_its_links_and_its_disk_are_decided_once(
    orders: list[RunOrder], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Counter[str]()

    def counted(owner: Any, name: str) -> None:
        method = getattr(owner, name)

        def call(*given: Any, **more: Any) -> Any:
            counts[name] += 1
            return method(*given, **more)

        monkeypatch.setattr(owner, name, call)

    counted(registry, "_load")
    counted(ExternalSystem, "link_form")
    counted(ExternalSystem, "disk_form")
    assert exit_code(["run", "--system", TRIAL, "--seed", "1", "--quiet"]) != 0
    assert len(orders) == 1
    assert counts == {"_load": 1, "link_form": 1, "disk_form": 1}
