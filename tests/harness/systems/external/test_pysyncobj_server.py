"""The server of a node of PySyncObj, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.systems.adapter import Node
from harness.systems.external.processes import starter
from harness.systems.ports import PortLease
from harness.systems.pysyncobj import SERVER, PySyncObj
from tests.support.paths import ROOT
from tests.support.waiting import until


def test_what_an_earlier_process_applied_is_not_the_log_of_one_that_was_killed(
    tmp_path: Path,
) -> None:
    (tmp_path / "applied").write_text(json.dumps({"log-0": [b"old".hex()]}))
    lease = PortLease(2)
    try:
        client, peer = lease.ports
        arguments = ["127.0.0.1", str(client), "{}", f"127.0.0.1:{peer}"]
        server = subprocess.Popen(
            [*starter(), sys.executable, "-P", "-m", SERVER, *arguments],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT)},
        )
        ports = {"client": client, "peer": peer}
        node = Node("n1", tmp_path, ports, ports)
        adapter = PySyncObj({"files": "memory", "compact": "5000"})
        until(lambda: answers(adapter, node), "a server that answers")
        server.kill()
        server.wait()
        with pytest.raises(FileNotFoundError):
            adapter.dump(node, "log-0")
    finally:
        lease.release()


def answers(adapter: PySyncObj, node: Node) -> bool:
    try:
        adapter.connect("c1", [node])[0].close()
    except ConnectionRefusedError:
        return False
    return True
