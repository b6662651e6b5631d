"""The server of a node of PySyncObj, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from harness.systems.adapter import Node, Record
from harness.systems.external.launcher import starter
from harness.systems.ports import PortLease
from harness.systems.pysyncobj import SERVER, PySyncObj
from node.formats.json_input import Unreadable
from tests.support.paths import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.integration

ADAPTER = PySyncObj({"files": "memory", "compact": "5000"})


@contextmanager
def server(folder: Path) -> Iterator[tuple[Node, subprocess.Popen[bytes]]]:
    """Yield a cluster of one node, which leads."""
    lease = PortLease(2)
    client, peer = lease.ports
    arguments = ["127.0.0.1", str(client), "{}", f"127.0.0.1:{peer}"]
    process = subprocess.Popen(
        [*starter(), sys.executable, "-P", "-m", SERVER, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
    )
    try:
        ports = {"client": client, "peer": peer}
        node = Node("n1", folder, ports, ports)
        until(lambda: is_ready(node), "a node that leads")
        yield node, process
    finally:
        process.kill()
        process.wait()
        lease.release()


def test_what_an_earlier_process_applied_is_not_the_log_of_one_that_was_killed(
    tmp_path: Path,
) -> None:
    (tmp_path / "applied").write_text(json.dumps({"log-0": [b"old".hex()]}))
    with server(tmp_path) as (node, process):
        process.kill()
        process.wait()
        with pytest.raises(FileNotFoundError):
            ADAPTER.dump(node, "log-0")


def test_a_server_that_is_stopped_while_it_appends_leaves_all_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    sent: list[bytes] = []

    def send_until_it_ends(node: Node) -> None:
        connection = ADAPTER.connect("c1", [node])
        with suppress(OSError, RuntimeError, Unreadable):
            while True:
                payload = f"{len(sent)}".encode()
                record = Record("log-0", payload, len(sent), -1, 5.0)
                assert ADAPTER.send(connection, record) == len(sent)
                sent.append(payload)

    with server(tmp_path) as (node, process):
        client = threading.Thread(target=send_until_it_ends, args=(node,))
        client.start()
        until(lambda: len(sent) > 20, "records")
        process.terminate()
        assert process.wait(60) == 0
        client.join(60)
        kept = [payload for _, payload in ADAPTER.dump(node, "log-0") or ()]
    assert kept[: len(sent)] == sent


def is_ready(node: Node) -> bool:
    try:
        ADAPTER.create([node], "log-0", 1)
    except (RuntimeError, ConnectionRefusedError):
        return False
    return True
