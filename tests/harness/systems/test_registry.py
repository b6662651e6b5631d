"""Systems under test by name; `tests/harness/test_pytest_plugin.py` storms one of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.runs.requests import RunRequest
from harness.systems import registry
from harness.systems.adapter import Node
from harness.systems.external.system import ExternalSystem
from tests.support import python_process


@pytest.mark.parametrize("name", ["etcd", "nats", "pysyncobj", "redis"])
def test_a_node_can_be_the_only_one(tmp_path: Path, name: str) -> None:
    system = registry.find(name, {} if name == "pysyncobj" else {"server": sys.executable})
    assert isinstance(system, ExternalSystem)
    adapter = system.choice.load()
    ports = dict.fromkeys((*adapter.listens, *adapter.probed), 7000)
    node = Node("n1", tmp_path, ports, ports, files=tmp_path)
    assert adapter.command(node, [])


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
    done = python_process.run("-c", script)
    assert (done.returncode, done.stdout) == (0, "")


def test_options_that_mean_nothing_to_a_system_are_options() -> None:
    assert {*ExternalSystem.unused} <= {*RunRequest.__struct_fields__}
