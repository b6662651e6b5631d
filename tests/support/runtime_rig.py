"""A broker process under test and its one client: started, written to, watched, and reaped.

Nothing here sleeps for a guessed time: every wait is for an event, and fails at a deadline."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from pathlib import Path
from typing import Any, Self

import multiprocess
import zmq

from harness.systems.floodmark.nodes import ProcessOrders
from node.core import batch
from node.core.api import NodeConfig
from node.formats import wire
from node.formats.messages import AnyMessage, ProduceRequest
from node.runtime.children import Child
from node.runtime.loop import MakeCore
from node.runtime.process import ProcessConfig, spawn
from tests.support.waiting import PATIENCE_S, until

BODY = batch.build(1, b"record")


def free_address() -> str:
    """Return an address on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


def until_gone(pid: int) -> None:
    """Wait until a process, not necessarily a child, has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # Not select(), which refuses descriptors above 1,023.
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(PATIENCE_S * 1000), f"process {pid} lives on"
    finally:
        os.close(fd)


class Node:
    """One broker process with a fake core, and a client `c1` connected to it both ways."""

    def __init__(self, folder: Path, make_core: MakeCore, **changes: Any) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.inbox = self._context.socket(zmq.PULL)
        port = self.inbox.bind_to_random_port("tcp://127.0.0.1")
        self.folder = folder
        self.make_core = make_core
        settings: dict[str, Any] = {
            "core": NodeConfig(node="n1", voters=("n1",), brokers=("n1",)),
            "data_dir": str(folder / "data"),
            "trace_file": str(folder / "n1.jsonl"),
            "output_file": str(folder / "n1.txt"),
            "bind": free_address(),
            "peers": {"*": f"tcp://127.0.0.1:{port}"},
            "boot_id": "boot-1",
        }
        self.config = ProcessConfig(**{**settings, **changes})
        self.outbox = self._context.socket(zmq.PUSH)
        self.outbox.set(zmq.RECONNECT_IVL, 10)
        self.outbox.set(zmq.IMMEDIATE, 1)
        self.outbox.set(zmq.SNDTIMEO, int(PATIENCE_S * 1000))
        self.outbox.connect(self.config.bind)
        self.process: Child
        self.breakpoints: ProcessOrders

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        process = getattr(self, "process", None)
        if process is not None and process.exitcode is None:
            process.kill()
            process.join(PATIENCE_S)
        self._context.destroy(linger=0)

    def start(self) -> Self:
        """Start a process and wait until it says that it has started."""
        before = len(self.trace("started"))
        near, far = multiprocess.Pipe()
        self.breakpoints = ProcessOrders(near)
        self.process = spawn(self.config, self.make_core, far)
        far.close()
        until(
            lambda: len(self.trace("started")) > before or self.process.exitcode is not None,
            "started",
        )
        return self

    def trace(self, event: str | None = None) -> list[dict[str, Any]]:
        """Trace events so far, of one name if given."""
        path = Path(self.config.trace_file)
        lines = path.read_text().splitlines() if path.exists() else []
        events = [json.loads(line) for line in lines]
        return [one for one in events if event in (None, one["event"])]

    def output(self) -> str:
        return Path(self.config.output_file).read_text()

    def send(self, message: AnyMessage, body: bytes | None = None) -> None:
        """Send as client c1. What a process would have got that has ended is lost."""
        if self._has_ended():
            return
        try:
            self.outbox.send_multipart(wire.encode("n1", "c1", message, body))
        except zmq.Again:  # It may have ended in between: then there is nobody to send to.
            if not self._has_ended():
                raise

    def _has_ended(self) -> bool:
        """Return whether the process that `start` started has; some tests start it otherwise."""
        process = getattr(self, "process", None)
        return process is not None and process.exitcode is not None

    def receive(self) -> AnyMessage:
        """Return the next message to c1."""
        assert self.inbox.poll(int(PATIENCE_S * 1000)), f"no answer; output: {self.output()}"
        receiver, sender, message, _ = wire.decode(self.inbox.recv_multipart())
        assert (receiver, sender) == ("c1", "n1")
        return message

    def produce(self, partition: str, corr: int = 0) -> AnyMessage:
        """Write one batch and wait for the answer."""
        self.send(ProduceRequest(corr=corr, partition=partition), BODY)
        return self.receive()

    def ended(self) -> int:
        """Wait for the end of the process; returns its exit code."""
        self.process.join(PATIENCE_S)
        code = self.process.exitcode
        assert code is not None, "the process did not end"
        return code

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        os.kill(self.process.pid, signal.SIGTERM)
        return self.ended()
