"""A hub with keys: each process speaks under its own names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import zmq

from harness.systems.floodmark.keyring import CLIENTS, HUB, Keyring
from harness.systems.ports import PortLease
from nemesis.links.hub_control import HubConfig, HubControl
from node.formats.wire import envelope, names
from node.runtime.curve import Gate, speak
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.integration

PATIENCE_MS = round(PATIENCE_S * 1000)


class Net:
    """A hub in a process of its own; n2 listens, everybody may speak."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        lease = PortLease(3)
        stack.callback(lease.release)
        names = (HUB, "n1", "n2")
        self.addresses = {
            name: f"tcp://127.0.0.1:{port}" for name, port in zip(names, lease.ports, strict=True)
        }
        self.keyring = Keyring(("n1", "n2"), ("c1", "c2"), with_hub=True)
        self._context = zmq.Context()
        stack.callback(self._context.destroy, linger=0)
        self.gate = Gate(self._context, self.keyring.of("n2", self.addresses))
        self.inbox: zmq.Socket[bytes] = self._context.socket(zmq.PULL)
        self.gate.listen(self.inbox)
        self.inbox.bind(self.addresses["n2"])
        config = HubConfig(
            bind=self.addresses[HUB],
            nodes={"n1": self.addresses["n1"], "n2": self.addresses["n2"]},
            seed=1,
            parent_pid=os.getpid(),
            output_file=str(folder / "hub.txt"),
            curve=self.keyring.of(HUB, self.addresses),
        )
        self.control = HubControl(config)
        stack.callback(self.control.close)
        self.control.wait_ready()

    def speaker(self, owner: str) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(zmq.PUSH)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.IMMEDIATE, 1)
        if owner:
            speak(self.keyring.of(owner, self.addresses), socket, self.addresses[HUB])
        socket.connect(self.addresses[HUB])
        return socket

    def arrived(self) -> bool:
        self.gate.serve()
        return bool(self.inbox.poll(5))


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    with ExitStack() as stack:
        yield Net(stack, tmp_path)


def test_the_name_of_a_message_is_that_of_its_key(net: Net) -> None:
    """A message under another's name is dropped and counted; others arrive, in order."""
    n1, clients = net.speaker("n1"), net.speaker(CLIENTS)
    for speaker, own in ((n1, "n1"), (clients, "c2")):
        assert speaker.poll(PATIENCE_MS, zmq.POLLOUT)

        def reached(speaker: zmq.Socket[bytes] = speaker, own: str = own) -> bool:
            speaker.send(envelope("n2", own, b"are you there?"))
            return net.arrived()

        until(reached, "the hub reaches n2")
        for claimed in ("v1", "admin", "n2", "c9", "", own + "0"):
            speaker.send(envelope("n2", claimed, b"believe me"))
        speaker.send(envelope("n2", own, b"last"))
        found: list[bytes] = []
        while b"last" not in found:
            until(net.arrived, "a message")
            frame = net.inbox.recv()
            _, sender, start = names(frame)
            assert sender == own.encode()
            found.append(frame[start:])
        assert b"believe me" not in found
    assert net.control.stats().unauthenticated == 12


def test_who_has_no_keys_is_not_heard(net: Net) -> None:
    outsider = net.speaker("")

    def counted() -> bool:
        stats = net.control.stats()
        # It may leave by itself as soon as it sees that keys are wanted.
        return stats.unauthenticated + stats.broken_off > 0

    until(counted, "the outsider is counted")
    assert not outsider.poll(0, zmq.POLLOUT)
