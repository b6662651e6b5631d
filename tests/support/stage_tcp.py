"""The TCP proxy as a real process, between nodes that are plain programs: a stage of scripts.

One proxy serves all cases of a process. `rule n1 n2 drop` puts a rule in force; rules are numbered
from 1 in each case. A link is called as its receiver, if it has no other name."""

from __future__ import annotations

import atexit
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from harness.systems.ports import PortLease
from nemesis.links.rule import Action, LinkRule
from nemesis.links.tcp_control import Door, ProxyConfig, ProxyStats, TcpLinks
from nemesis.links.tcp_rules import CLIENTS, WINDOW_BYTES
from node.formats.errors import FloodmarkError
from tests.support.paths import lasting_folder
from tests.support.tcp_process import PROGRAM, TcpProcess
from tests.support.waiting import PATIENCE_S, until

HOST = "127.0.0.1"
ROLES = ("client", "peer")


def start_node(*ports: int) -> TcpProcess:
    """Start a node's process, in a session of its own."""
    return TcpProcess([*PROGRAM, HOST, *map(str, ports)], own_session=True)


class Net:
    """Three nodes with two roles each, a client, and the proxy between them."""

    def __init__(self, folder: Path) -> None:
        self.names = ("n1", "n2", "n3")
        self.lease = PortLease(len(self.names) * len(ROLES) * 2)
        free = iter(self.lease.ports)
        self.real = {(n, r): next(free) for n in self.names for r in ROLES}
        self.doors = {(n, r): next(free) for n in self.names for r in ROLES}
        self.links = TcpLinks(
            ProxyConfig(
                doors=tuple(
                    Door(
                        node=node,
                        role=role,
                        listen=(HOST, self.doors[node, role]),
                        target=(HOST, self.real[node, role]),
                    )
                    for node, role in self.doors
                ),
                shared_clients=("c1", "c2"),
                parent_pid=os.getpid(),
                output_file=str(folder / "links.txt"),
            )
        )
        self.links.wait_ready()
        self.nodes: dict[str, TcpProcess] = {}
        self.before = ProxyStats()

    def begin(self) -> None:
        """Begin with new processes and whole links."""
        for number in self.links.stats().rules:
            self.links.remove(number)
        for node in self.nodes.values():
            node.kill()
        self.nodes.clear()
        for name in (*self.names, CLIENTS):
            self.start(name)
        self.links.remove(self.rule("*", "*", "reset"))
        until(lambda: self.links.stats().open == 0, "no connections are left")
        self.before = self.links.stats()

    def start(self, name: str) -> None:
        """Start a node, or the client, which listens nowhere."""
        ports = [] if name == CLIENTS else [self.real[name, role] for role in ROLES]
        self.nodes[name] = start_node(*ports)
        self.links.set_processes(name, [self.nodes[name].process.pid])

    def accepted(self) -> dict[str, int]:
        """Count connections since the test began, by dialer and node."""
        counts = Counter(self.links.stats().accepted)
        return dict(counts - Counter(self.before.accepted))

    def dial(self, a: str, b: str, name: str = "", role: str = "peer") -> str:
        """Connect `a` to `b`; return the name of the connection in `a`."""
        name = name or b
        assert self.nodes[a]("dial", name, HOST, self.doors[b, role]) == "ok"
        return name

    def dial_in_vain(self, a: str, b: str) -> str:
        """Return the end of a connection that is reset, at once or a moment later."""
        said = self.nodes[a]("dial", "in vain", HOST, self.doors[b, "peer"])
        return str(self.receive(a, "in vain", 1) if said == "ok" else said)

    def echo(self, a: str, name: str, text: str = "hello") -> Any:
        """Send from `a` and receive what comes back."""
        sent = self.nodes[a]("send", name, text)
        return self.receive(a, name, len(text)) if sent == "ok" else sent

    def receive(self, a: str, name: str, size: int, seconds: float = PATIENCE_S) -> Any:
        """Return the bytes that have arrived at `a`."""
        return self.nodes[a]("receive", name, size, seconds)

    def rule(self, a: str, b: str, action: Action, **fields: Any) -> int:
        """Put a rule in force from `a` to `b` (comma lists of names)."""
        senders, receivers = tuple(a.split(",")), tuple(b.split(","))
        return self.links.add(
            LinkRule(senders=senders, receivers=receivers, action=action, **fields)
        )

    def await_acted(self, number: int, times: int = 1) -> None:
        """Until a rule has done something to so many connections."""
        until(lambda: self.links.stats().rules[number].acted >= times, f"rule {number} acts")

    def close(self) -> None:
        """Leave nothing behind."""
        for node in self.nodes.values():
            node.kill()
        self.links.close()
        self.lease.release()


@cache
def one_net() -> Net:
    """Return the net of this process, as the last test left it."""
    made = Net(lasting_folder("net"))
    atexit.register(made.close)
    return made


class TcpStage:
    """The net, with new processes and whole links."""

    def __init__(self) -> None:
        self._net = one_net()
        self._net.begin()
        self._rules: list[int] = []

    def dial(self, a: str, *bs: str, name: str = "") -> None:
        """Open connections to these nodes."""
        for b in bs:
            self._net.dial(a, b, name)

    def dial_in_vain(self, a: str, b: str) -> str:
        """Open a connection that is reset."""
        return self._net.dial_in_vain(a, b)

    def echo(self, a: str, link: str) -> str:
        """Send a word and receive it again."""
        return str(self._net.echo(a, link))

    def send(self, a: str, link: str, text: str, times: int = 1) -> None:
        assert self._net.nodes[a]("send", link, text * times) == "ok"

    def receive(self, a: str, link: str, size: int, in_vain: int = 0) -> str:
        """Return the bytes that arrive; `in_vain` does not wait for long."""
        got = str(self._net.receive(a, link, size, 0.01 if in_vain else PATIENCE_S))
        return f"{len(got)} bytes" if len(got) > 100 else got

    def flood(self, a: str, link: str, windows: int) -> None:
        """Send so many windows of bytes, or as many as find a place."""
        self._net.nodes[a]("flood", link, windows * WINDOW_BYTES)

    def end(self, a: str, link: str, how: str = "close") -> None:
        self._net.nodes[a](how, link)

    def hears(self, node: str, size: int, windows: int = 0, most: int = 0) -> None:
        """Wait until so many bytes have arrived, and no more than `most`."""
        size += windows * WINDOW_BYTES
        until(lambda: self._net.nodes[node]("heard") >= size, f"{size} bytes at {node}")
        assert self._net.nodes[node]("heard") <= max(size, most)

    def heard(self, node: str) -> str:
        """Return the bytes that arrived at a node."""
        return f"{self._net.nodes[node]('heard')} bytes"

    def connections(self, node: str) -> str:
        return str(self._net.nodes[node]("connections"))

    def accepts(self, node: str) -> None:
        """Wait until a node has a connection."""
        until(lambda: self._net.nodes[node]("connections") == 1, "it is accepted")

    def rule(self, a: str, b: str, action: Action, **fields: Any) -> str | None:
        """Put a rule in force, or see why that is refused."""
        try:
            self._rules.append(self._net.rule(a, b, action, **fields))
        except FloodmarkError as error:
            return f"refused: {error}"
        return None

    def acts(self, rule: int = 1, times: int = 1) -> None:
        """Wait until a rule has done something to so many connections."""
        self._net.await_acted(self._rules[rule - 1], times)

    def remove(self, *rules: int, shows: str = "") -> list[str]:
        """Remove rules, the first one unless others are named; show some of their counts."""
        counts = [self._net.links.remove(self._rules[rule - 1]) for rule in rules or (1,)]
        names = [name for name in shows.split(",") if name]
        return [f"{name} {getattr(each, name)}" for each in counts for name in names]

    def kill(self, *nodes: str) -> None:
        for node in nodes:
            self._net.nodes[node].kill()

    def start(self, node: str) -> None:
        self._net.start(node)

    def open_links(self, number: int) -> None:
        """Wait until so many connections are open in the proxy."""
        until(lambda: self._net.links.stats().open == number, f"{number} connections are open")

    def refused(self) -> str:
        """Return the connections that the proxy could not make."""
        return f"{self._net.links.stats().refused - self._net.before.refused} refused"
