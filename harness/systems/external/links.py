"""What stands between the nodes of an external system, so that links can fail."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from harness.systems.adapter import Node
from nemesis.links.abilities import KERNEL, TCP_PROXY, LinkAbilities
from nemesis.links.rule import Counts, LinkRule
from nemesis.links.tcp_control import Door, ProxyConfig, TcpLinks
from nemesis.links.tcp_rules import CLIENTS as CLIENTS

PROXY_LINKS: Final = "proxy"
KERNEL_LINKS: Final = "kernel"
ABILITIES: Final[Mapping[str, LinkAbilities]] = {PROXY_LINKS: TCP_PROXY, KERNEL_LINKS: KERNEL}
"""The forms of links that can fail, and what each can do."""


class Links(Protocol):
    """Links under control, as `nemesis.links.hub_control.HubControl` has them for our brokers."""

    @property
    def problems(self) -> Sequence[str]:
        """Sentences that make a verdict unknown, such as that they have ended by themselves."""
        ...

    @property
    def pid(self) -> int:
        """Their process; 0 if they have none."""
        ...

    def wait_ready(self) -> None:
        """Return once everything can be dialed. Raises FloodmarkError."""
        ...

    def set_processes(self, name: str, pids: Sequence[int]) -> None:
        """Say which processes a node has, or the clients (`CLIENTS`)."""
        ...

    def add(self, rule: LinkRule) -> int:
        """Put a rule in force; returns its number. Raises FloodmarkError."""
        ...

    def remove(self, number: int) -> Counts:
        """End a rule; returns what it did."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


def make_links(nodes: Sequence[Node], clients: Sequence[str], seed: int, output: Path) -> Links:
    """Start a TCP proxy in front of every role of every node that others dial. Main thread only.

    `clients` are the names of those of the storm, which have one process in common.
    """
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
