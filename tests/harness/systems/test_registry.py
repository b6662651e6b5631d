"""A system under test is one module: this one brings its own, and storms it to a verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.systems import registry
from harness.systems.adapter import Node
from harness.systems.external.system import ExternalSystem
from nemesis.faults import Kill
from nemesis.formats.schedule import Cluster, Schedule
from node.formats.errors import UsageError
from tests.support import trial_systems
from tests.support.command import exit_code
from tests.support.harness_fakes import virtual_time
from tests.support.waiting import PATIENCE_S


def test_a_system_of_its_own_is_stormed_to_a_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`test_other_systems.py` has one that loses records."""
    virtual_time(monkeypatch)
    monkeypatch.chdir(tmp_path)
    name = f"{trial_systems.__name__}:InMemoryLog"
    words = f"--system {name} --partitions 1 --time-limit 0.3 --seed 1 --no-spark --quiet --json"
    code = exit_code(["run", *words.split()])
    told = json.loads(capsys.readouterr().out)
    assert (told["result"]["verdict"], code) == ("valid", 0), told["result"]
    folder = Path(told["path"])
    info = json.loads((folder / "run.json").read_text())
    about = {"name": name, "version": "7.1", "simulated": False, "settings": {}}
    assert info["system"] == {**about, "links": "none", "disk": "plain"}
    assert (info["protocol"], info["voters"]) == ("InMemoryLog", [])
    assert info["replay"] == f"floodmark run --system {name} --schedule {folder}"
    schedule = json.loads((folder / "schedule.json").read_text())
    assert {fault["what"] for fault in schedule["faults"]} <= {"kill", "pause"}
    assert Path(told["page"]).is_file()


def test_what_a_system_cannot_take_is_refused() -> None:
    system = registry.find(f"{trial_systems.__name__}:InMemoryLog")
    system.check(Schedule(faults=(Kill(on="n1", at_ms=1),)))
    with pytest.raises(UsageError, match=r"InMemoryLog' cannot take 'cut' \(it can: kill, pause\)"):
        system.check_kinds(("kill", "cut"))
    with pytest.raises(UsageError, match="InMemoryLog' has no bug 'M18'"):
        system.complete(Cluster(bugs=("M18",)))
    ours = registry.find(registry.DEFAULT)
    assert ours.name == "floodmark"
    assert {"kill", "cut", "upgrade", "elect-unclean"} <= set(ours.faults)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("pulsar", r"unknown system 'pulsar' \(known: etcd, floodmark, kafka, .*, redis\)"),
        ("registry", "unknown system 'registry'"),
        ("no.such.module:System", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("json:Missing", "cannot be loaded: json has no Missing"),
        ("json:JSONDecoder", "'json:JSONDecoder' is no system"),
    ],
)
def test_an_unknown_system_is_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        registry.find(name)


@pytest.mark.parametrize("name", ["etcd", "nats", "pysyncobj", "redis"])
def test_a_node_can_be_the_only_one(tmp_path: Path, name: str) -> None:
    system = registry.find(name, {} if name == "pysyncobj" else {"server": sys.executable})
    assert isinstance(system, ExternalSystem)
    adapter = system.choice.load()
    ports = dict.fromkeys((*adapter.listens, *adapter.probed), 7000)
    assert adapter.command(Node("n1", tmp_path, ports, ports), [])


@pytest.mark.integration
def test_loading_every_system_changes_nothing_of_the_standard_library() -> None:
    """A library that is imported in the process of the command may replace functions of others."""
    script = (
        "import inspect, os, select, signal, socket, subprocess, threading, time\n"
        "modules = (os, select, signal, socket, subprocess, threading, time)\n"
        "before = [dict(vars(module)) for module in modules]\n"
        "from harness.systems import registry\n"
        "for name in registry.names():\n"
        "    registry.find(name)\n"
        "for module, was in zip(modules, before):\n"
        "    for name, value in was.items():\n"
        "        if inspect.isroutine(value) and getattr(module, name) is not value:\n"
        "            print(module.__name__, name)\n"
    )
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == ""
