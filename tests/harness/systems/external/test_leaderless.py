"""Systems without leaders, and systems that need links of the kernel, as Galera is both."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from pymysql import OperationalError

from harness.systems import galera, registry
from harness.systems.adapter import Adapter, Node
from harness.systems.external.links import enter_for
from harness.systems.external.probe import Probe
from nemesis.formats.schedule import Cluster
from nemesis.links import namespaces
from nemesis.targets import resolve
from nemesis.view import ClusterView
from node.formats.errors import UsageError
from tests.support import trial_adapters


def test_nodes_without_a_leader_say_that_they_are_ready(tmp_path: Path) -> None:
    class Equals(trial_adapters.Trial):
        probe = Adapter.probe

        def ready(self, me: Node) -> bool:
            return me.name in ready

    nodes = {name: Node(name, Path(), {}, {}) for name in ("n1", "n2", "n3")}
    ready, running, view = {"n2"}, dict.fromkeys(nodes, 1), ClusterView()
    adapter = Equals({"broken": "", "speed": ""})
    of = (adapter, nodes, lambda: tuple(nodes), ("log-0",), running.__getitem__)
    made, view.leaderless = Probe(*of, tmp_path / "probe.txt"), True

    def found(*roles: str, busy: tuple[str, ...] = ()) -> list[str]:
        for node in nodes.values():
            made._ask_ready(node, 1)
        for event in made.events():
            view.observe(event)
        asked = (view, Cluster(), Random(1), nodes)
        return [" ".join(resolve(f"{r}:log-0", *asked, busy=busy).nodes) for r in roles]

    assert found("leader", "isr", "lagging", "followers") == ["n2", "n2", "n1", ""]
    assert found("another-follower", busy=("n1", "n2")) == ["n3"]
    ready.update(nodes)
    assert found("isr", "followers", "lagging") == ["n1 n2 n3", "n2 n3", ""]
    assert (made.names_in_sync, view.leader_epoch("log-0")) == (True, -1)
    running["n3"] = 2
    assert found("isr") == ["n1 n2"], "its new process has not said so yet"


def test_a_node_that_is_not_ready_is_asked_again_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(galera, "ask", Mock(side_effect=[OperationalError(1047, "wait"), []]))
    nodes = [Node(name, Path(), {}, {}) for name in ("n1", "n2", "n3")]
    adapter: Any = galera.Galera({})
    adapter.session = MagicMock()
    with pytest.raises(OperationalError, match="wait"):
        adapter.change(nodes, nodes[:2], "", 0)
    adapter.change(nodes, nodes[:2], "", 0)


class OnKernelLinks(trial_adapters.Trial):
    links_needed = "kernel"


def test_a_system_that_needs_kernel_links_gets_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, name = [], f"{__name__}:OnKernelLinks"
    monkeypatch.setattr(namespaces, "enter", lambda: entered.append("entered"))
    enter_for(["no-such-system", "tests.support.trial_adapters:Trial"])
    assert not entered
    enter_for([name])
    assert entered
    assert registry.find(name).link_forms == ("kernel", "none")
    with pytest.raises(UsageError, match="it can only be kernel, none"):
        registry.find(name).link_form("proxy")
