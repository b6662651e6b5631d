"""A run in namespaces of its own, without pytest: `python -m tests.support.kernel_rig WHAT`.

`faults` tries link rules between three nodes and prints what came of each as JSON. `wait` starts
nodes, prints the network namespaces of all, and waits to be killed."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from typing import Any

from harness.systems.external import launcher
from nemesis.links import namespaces
from nemesis.links.kernel_links import KernelLinks, address
from nemesis.links.rule import Action, LinkRule
from tests.support.tcp_process import PROGRAM, TcpProcess
from tests.support.waiting import PATIENCE_S

NODES = ("n1", "n2", "n3")
CLIENTS = ("c1", "c2")
PORT, SPARED_PORT = 4222, 8222
AT_ONCE_S = 0.2


class RigNode(TcpProcess):
    """A node as a run starts it; the one called "clients" is where the harness is."""

    def __init__(self, links: KernelLinks, name: str) -> None:
        where = [address(name), str(PORT), str(SPARED_PORT)] if name in NODES else ["127.0.0.1"]
        inside = links.prefix(name) if name in NODES else ()
        super().__init__([*launcher.starter(), *inside, *PROGRAM, *where])


class Rig:
    """Three nodes, and the clients."""

    def __init__(self) -> None:
        self.links = KernelLinks(NODES, CLIENTS, (SPARED_PORT,))
        self.nodes = {name: RigNode(self.links, name) for name in (*NODES, "clients")}
        self.told: dict[str, Any] = {}

    def echo(self, a: str, name: str, patience_s: float = PATIENCE_S) -> Any:
        """Send and receive on a connection."""
        sent = self.nodes[a]("send", name, "hello")
        return self.nodes[a]("receive", name, 5, patience_s) if sent == "ok" else sent

    def dial(self, a: str, b: str, name: str = "", port: int = PORT) -> Any:
        return self.nodes[a]("dial", name or b, address(b), port)

    def rule(self, senders: str, receivers: str, action: Action = "drop") -> int:
        names = tuple(senders.split(",")), tuple(receivers.split(","))
        return self.links.add(LinkRule(senders=names[0], receivers=names[1], action=action))

    def faults(self) -> None:
        """Check the effects of each rule on open connections and on new ones."""
        told = self.told
        for a, b in (("n1", "n2"), ("n1", "n3"), ("n2", "n1"), ("clients", "n2")):
            told[f"{a} {b} whole"] = self.dial(a, b), self.echo(a, b)
        cut = self.rule("n1", "n2")
        told["n1 n2 cut"] = self.echo("n1", "n2", AT_ONCE_S)
        told["n2 n1 cut one way"] = self.echo("n2", "n1", AT_ONCE_S)
        told["n1 n3 beside"] = self.echo("n1", "n3")
        told["clients n2 beside"] = self.echo("clients", "n2")
        counts = self.links.remove(cut)
        told["cut counts"] = counts.of, counts.dropped > 0
        told["n1 n2 healed"] = self.nodes["n1"]("receive", "n2", 5, PATIENCE_S)
        told["n2 n1 healed"] = self.nodes["n2"]("receive", "n1", 5, PATIENCE_S)
        away = self.rule(",".join(CLIENTS), "n2")
        told["clients n2 cut"] = self.echo("clients", "n2", AT_ONCE_S)
        told["clients n2 spared"] = self.dial("clients", "n2", "asks", SPARED_PORT)
        self.links.remove(away)
        told["clients n2 healed"] = self.nodes["clients"]("receive", "n2", 5, PATIENCE_S)
        reset = self.rule("n1", "n2", "reset")
        told["n1 n2 reset"] = self.echo("n1", "n2")
        told["n2 n1 reset"] = self.echo("n2", "n1")
        told["n1 n2 refused"] = self.dial("n1", "n2", "again")
        told["reset counts"] = self.links.remove(reset).dropped > 0
        told["n1 n2 after"] = self.dial("n1", "n2", "after"), self.echo("n1", "after")

    def wait(self) -> None:
        """Stay until killed."""
        pids = [node.process.pid for node in self.nodes.values()]
        spaces = [os.stat(f"/proc/{pid}/ns/net").st_ino for pid in (*pids, os.getpid())]
        self.told = {"namespaces": sorted(set(spaces))}
        self.tell()
        sys.stdin.read()

    def tell(self) -> None:
        """Print what came of it."""
        sys.stdout.write(json.dumps(self.told) + "\n")
        sys.stdout.flush()


def main(what: str) -> None:
    """Enter the namespaces, and do it."""
    namespaces.enter()
    with closing(KernelLinks(NODES, CLIENTS, (PORT,))) as earlier:  # Nothing of it stays in force.
        earlier.add(LinkRule(senders=("n1",), receivers=("n3",), action="drop"))
    rig = Rig()
    getattr(rig, what)()
    rig.tell()
    for node in rig.nodes.values():
        node.process.kill()
    rig.links.close()


if __name__ == "__main__":
    main(sys.argv[1])
