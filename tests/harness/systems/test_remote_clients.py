"""The process of the clients, as the harness sees it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from harness.clients.factory import ClientFactory
from harness.systems import remote_clients
from harness.systems.remote_clients import ClientsConfig, RemoteClients
from nemesis.formats.schedule import Cluster, Workload


def never_reports(config: ClientsConfig, pipe: Any) -> None:
    signal.pause()


@pytest.mark.integration
def test_clients_that_never_report_are_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_us = [5_000_000]
    monkeypatch.setattr(remote_clients, "now_us", lambda: clock_us[0])
    config = ClientsConfig(
        factory=ClientFactory(cluster=Cluster(), workload=Workload()),
        history=str(tmp_path / "history.jsonl"),
        output=str(tmp_path / "clients.txt"),
        parent_pid=0,
    )
    clients = RemoteClients(never_reports, config)
    assert not clients.status.problem
    clock_us[0] += remote_clients.START_US
    assert not clients.status.problem, "it may take so long to start"
    clock_us[0] += 1
    assert "the process of the clients has said nothing for 30 s" in clients.status.problem
    clients.close(timeout_s=0.0)
