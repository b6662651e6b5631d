"""The link hub as a real process, with nodes n1, n2 and n3 around it: a stage of scripts.

They are started once in a process of tests. A case begins with whole nodes, without rules, and with
nothing on its way. A message is a fetch with a number in it."""

from __future__ import annotations

import atexit
import json
import os
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import zmq

from harness.systems.ports import PortLease
from nemesis.links.hub_control import HubConfig, HubControl
from nemesis.links.rule import Counts, LinkRule
from node.formats import wire
from node.formats.errors import FloodmarkError
from node.formats.messages import FetchRequest, MetadataRequest
from node.formats.wire import envelope
from tests.support.paths import lasting_folder
from tests.support.waiting import PATIENCE_S, until

LAST: Final = 1_000_000_000
DEADLINE_MS: Final = round(PATIENCE_S * 1000)
LEASES: list[PortLease] = []
"""Held until this process ends: no test, here or in a process beside it, gets a port twice."""
GARBAGE: Final[dict[str, list[bytes]]] = {
    "empty": [b""],
    "unknown-node": [envelope("n2x", "n1", b"\x80")],
    "no-text": [b"\x02\x02\x02\xff\xfen1", b""],
    "no-text-in-a-name": [b"\x02\xff\xffn2n1"],
    "a-hundred-frames": [envelope("n2", "n1", b"")] * 100,
}


def free_addresses(count: int) -> list[str]:
    """Return addresses on ports below those that connections are given, so a node can return."""
    LEASES.append(PortLease(count))
    return [f"tcp://127.0.0.1:{port}" for port in LEASES[-1].ports]


class Node:
    """A node of the cluster: hears on its own address, speaks to the hub."""

    def __init__(self, name: str, address: str, hub_address: str) -> None:
        self.name = name
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.linger = 0  # or a test that fails would leave a context that never ends
        self.inbox = self._context.socket(zmq.PULL)
        self.inbox.set(zmq.RCVTIMEO, DEADLINE_MS)
        self.inbox.bind(address)
        self.outbox = self._context.socket(zmq.PUSH)
        self.outbox.set(zmq.SNDHWM, 0)
        self.outbox.connect(hub_address)

    def send(self, to: str, number: int, kind: str = "fetch", body: bytes | None = None) -> None:
        fetch = FetchRequest(partition="log-0", offset=max(number, 0), corr=number)
        message = fetch if kind == "fetch" else MetadataRequest(corr=number)
        self.outbox.send_multipart(wire.encode(to, self.name, message, body))

    def receive(self) -> tuple[int, bytes | None]:
        """Return the number of the next message, and its body."""
        found = wire.decode(self.inbox.recv_multipart())
        return found[2].corr, found[3]

    def die(self) -> None:
        """Close everything, as the kernel does for a killed process."""
        self._context.destroy(linger=0)


class Net:
    """Three nodes around a hub, which runs as a process of its own."""

    def __init__(self, folder: Path) -> None:
        addresses = free_addresses(4)
        self.config = HubConfig(
            bind=addresses[0],
            nodes=dict(zip(("n1", "n2", "n3"), addresses[1:], strict=True)),
            seed=1,
            parent_pid=os.getpid(),
            output_file=str(folder / "hub.txt"),
        )
        self.control = HubControl(self.config)
        self.nodes: dict[str, Node] = {}

    def born(self, name: str) -> Node:
        self.nodes[name] = Node(name, self.config.nodes[name], self.config.bind)
        return self.nodes[name]

    def begin(self) -> None:
        """Have no rules, whole nodes, and nothing on its way."""
        self.control.wait_ready()
        for number in self.control.stats().rules:
            self.control.remove(number)
        for name in self.config.nodes.keys() - self.nodes.keys():
            node = self.born(name)

            def answered(node: Node = node) -> int:
                node.send(node.name, -1)
                return node.inbox.poll(20)

            until(answered)
        for sender in self.nodes.values():
            # What comes from one sender comes in order: after this one there are no others.
            for receiver in self.nodes.values():
                sender.send(receiver.name, LAST)
                fetch = FetchRequest(partition="log-0", offset=LAST, corr=LAST)
                last = wire.encode(receiver.name, sender.name, fetch, None)
                while receiver.inbox.recv_multipart() != last:
                    pass

    def close(self) -> None:
        for node in self.nodes.values():
            node.die()
        self.control.close()


@cache
def one_net() -> Net:
    """Return the net of this process, as the last test left it."""
    made = Net(lasting_folder("hub"))
    atexit.register(made.close)
    return made


class HubStage:
    """The net, with whole nodes and no rules."""

    def __init__(self) -> None:
        self._net = one_net()
        self._net.begin()
        self._rules: list[int] = []
        self._garbage = self._net.control.stats().garbage

    def send(self, a: str, b: str, numbers: Any, *, kind: str = "fetch", body: int = 0) -> None:
        """Send messages with these numbers (`3`, `0-9`), and a body of so many bytes a number."""
        first, _, last = str(numbers).partition("-")
        for number in range(int(first), int(last or first) + 1):
            data = bytes([number % 256]) * body * number
            self._net.nodes[a].send(b, number, kind, data or None)

    def receive(self, name: str, count: int) -> str:
        """Return the numbers of the next messages, and how long their bodies are."""
        found = [self._net.nodes[name].receive() for _ in range(count)]
        assert all(not body or set(body) == {number % 256} for number, body in found)
        size = sum(len(body or b"") for _, body in found)
        return spans([number for number, _ in found]) + (f", {size} bytes" if size else "")

    def rule(
        self, action: str, a: str, b: str, kinds: str = "", match: str = "{}", **more: int
    ) -> None:
        made = LinkRule(
            senders=(a,),
            receivers=(b,),
            action=action,  # type: ignore[arg-type]
            kinds=tuple(filter(None, kinds.split(","))),
            match=json.loads(match),
            **more,  # type: ignore[arg-type]
        )
        self._rules.append(self._net.control.add(made))

    def acted(self, rule: int, what: str, times: int) -> None:
        """Wait until a rule has delayed, held or dropped so many messages."""
        number = self._rules[rule - 1]
        until(lambda: getattr(self._net.control.stats().rules[number], what) == times)

    def remove(self, rule: int) -> str:
        """Remove a rule; return what it did."""
        did = self._net.control.remove(self._rules[rule - 1])
        counts = {name: getattr(did, name) for name in Counts.__struct_fields__}
        return ", ".join(f"{name} {count}" for name, count in counts.items() if count)

    def waiting(self) -> str:
        """Return how many messages are delayed and held."""
        stats = self._net.control.stats()
        return f"{stats.delayed} delayed, {stats.held} held"

    def die(self, name: str) -> None:
        self._net.nodes.pop(name).die()

    def send_until_lost(self, a: str, b: str) -> None:
        """Send until the hub says that it cannot reach the receiver."""
        before = self._net.control.stats().unreachable.get(b, 0)

        def noticed() -> bool:
            self._net.nodes[a].send(b, 1)
            return self._net.control.stats().unreachable.get(b, 0) > before

        until(noticed)

    def send_until_heard(self, a: str, b: str, first: int) -> str:
        """Start a node and send it messages from a number on until one arrives."""
        node, number = self._net.born(b), first
        while not node.inbox.poll(20):
            self._net.nodes[a].send(b, number)
            number += 1
        return f"one of {first} and above" if node.receive()[0] >= first else "an old one"

    def garbage(self, a: str, *names: str) -> None:
        """Send what is no message."""
        for name in names or GARBAGE:
            self._net.nodes[a].outbox.send_multipart(GARBAGE[name])

    def header(self, a: str, b: str, data: Any = "", times: int = 1) -> str:
        """Send a message with a header in hexadecimal; return whether it arrives untouched."""
        sent = [envelope(b, a, bytes.fromhex(str(data)) * times), b"body"]
        self._net.nodes[a].outbox.send_multipart(sent)
        return "untouched" if self._net.nodes[b].inbox.recv_multipart() == sent else "changed"

    def fields(self, a: str, b: str, header: str) -> None:
        """Send a message whose header has these fields."""
        data = msgspec.msgpack.encode(json.loads(header))
        self._net.nodes[a].outbox.send(envelope(b, a, data))

    def skip(self, name: str, number: int) -> str:
        """Receive until a number comes; return how many messages came before it."""
        fetch = FetchRequest(partition="log-0", offset=number, corr=number)
        last, count = wire.encode(name, "n1", fetch, None), 0
        while self._net.nodes[name].inbox.recv_multipart() != last:
            count += 1
        return f"{count} before it"

    def counted(self) -> str:
        """Return how much garbage the hub has counted since the case began."""
        return f"{self._net.control.stats().garbage - self._garbage} are garbage"

    def order(self, *command: str, **rule: str) -> str:
        """Give the hub a command in JSON, or to add a rule with these fields; return its answer."""
        made = {name: sized(json.loads(str(value))) for name, value in rule.items()}
        made = {"senders": ["n1"], "receivers": ["n2"], "action": "drop"} | made
        given = sized(json.loads(command[0])) if command else {"do": "add", "rule": made}
        try:
            return str(self._net.control.ask(given).number)
        except FloodmarkError as error:
            return str(error)


def sized(value: Any) -> Any:
    """Return a value in which `{"times": [n, x]}` is n times x."""
    if isinstance(value, dict) and "times" in value:
        count, one = value["times"]
        return (
            one * count
            if isinstance(one, str | list)
            else dict.fromkeys(map(str, range(count)), one)
        )
    return {n: sized(v) for n, v in value.items()} if isinstance(value, dict) else value


def spans(numbers: list[int]) -> str:
    """Return numbers as text; three and more that follow one another as `0-9`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    texts = [f"{s[0]}-{s[-1]}" if len(s) > 2 else " ".join(map(str, s)) for s in found]
    return " ".join(texts)
