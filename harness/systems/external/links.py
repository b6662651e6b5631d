"""The forms of links between the nodes of a third-party system that can fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from harness.systems import registry
from nemesis.links import namespaces
from nemesis.links.abilities import KERNEL, TCP_PROXY, LinkAbilities
from nemesis.links.kernel_links import KernelLinks
from nemesis.links.tcp_control import TcpLinks
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
