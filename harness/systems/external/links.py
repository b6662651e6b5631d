"""The TCP proxies between the nodes of a third-party system, which can drop, delay and cut."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from harness.systems import registry
from harness.systems.adapter import Node
from nemesis.links import namespaces
from nemesis.links.abilities import KERNEL, TCP_PROXY, LinkAbilities
from nemesis.links.kernel_links import KernelLinks
from nemesis.links.tcp_control import Door, ProxyConfig, TcpLinks
from nemesis.links.tcp_rules import CLIENTS as CLIENTS
from node.formats.errors import UsageError

PROXY_LINKS: Final = "proxy"
KERNEL_LINKS: Final = "kernel"
ABILITIES: Final[Mapping[str, LinkAbilities]] = {PROXY_LINKS: TCP_PROXY, KERNEL_LINKS: KERNEL}
"""The forms of links that can fail, and what each can do."""


Links = TcpLinks | KernelLinks


def enter_for(systems: Iterable[str]) -> None:
    """Go on in namespaces of this process's own, as `namespaces.enter` does, if one of the systems
    needs links of the kernel and this machine allows that."""
    for name in dict.fromkeys(systems):
        with suppress(UsageError):
            if registry.find(name).link_forms[0] == KERNEL_LINKS:
                namespaces.enter()


def make_links(nodes: Sequence[Node], clients: Sequence[str], seed: int, output: Path) -> TcpLinks:
    """Start a TCP proxy in front of every role of every node that others dial. Main thread only.
    `clients` are the names of the storm's clients, which share one process."""
    doors = tuple(
        Door(node=node.name, role=role, listen=(node.host, port), target=(node.host, target))
        for node in nodes
        for role, port in node.dialed.items()
        if (target := node.listens[role]) != port
    )
    return TcpLinks(
        ProxyConfig(
            doors=doors,
            shared_clients=tuple(clients),
            seed=seed,
            parent_pid=os.getpid(),
            output_file=str(output),
        )
    )
