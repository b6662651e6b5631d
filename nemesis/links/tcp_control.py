"""The control of the TCP proxy: its configuration, its commands, and the harness's end of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from nemesis.links.link_process import AddRule, GetStats, LinkProcess, RemoveRule
from nemesis.links.rule import Counts
from node.formats.errors import FloodmarkError

NAMING_S: Final = 1.0
"""How long an unknown process may dial before the harness has said whose it is."""

Address = tuple[str, int]
"""A host as an IPv4 address in digits, and a port."""


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """An address of the proxy that stands for a node: `listen` is dialed instead of `target`, at
    which the `node` listens in a `role` ("client", "peer"). `dialer` is the only node that dials
    here; "": the proxy looks up who dials."""

    node: str
    role: str
    listen: Address
    target: Address
    dialer: str = ""


class ProxyConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a proxy.

    `shared_clients` are the names of the clients that share one process, which dials as
    `nemesis.links.tcp_rules.CLIENTS`. `seed` draws jitter. A process that dials may be named
    (`SetProcesses`) up to `naming_s` seconds later. The proxy dies with `parent_pid`, the process
    that started it, and writes its output to `output_file` ("": to its parent's)."""

    doors: tuple[Door, ...]
    shared_clients: tuple[str, ...] = ()
    seed: int = 0
    naming_s: float = NAMING_S
    parent_pid: int
    output_file: str = ""


class SetProcesses(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="processes"):
    """The command that gives the processes `pids`, and their process groups and sessions, a name
    from now on."""

    name: str
    pids: tuple[int, ...]


ProxyCommand = AddRule | RemoveRule | GetStats | SetProcesses


class ProxyStats(msgspec.Struct, kw_only=True):
    """The connections that the proxy has handled since its start; `accepted` by "dialer>node role".
    `unknown` came from a process without a name, `refused` led to a node that did not listen,
    `open` are there now. `rules` are the counts of the rules in force."""

    accepted: dict[str, int] = {}
    unknown: int = 0
    refused: int = 0
    open: int = 0
    rules: dict[int, Counts] = {}


class TcpLinks(LinkProcess[ProxyStats]):
    """The proxy of one run, as a process that ends with this one. `problems` are sentences that
    make the verdict of the run unknown."""

    called = "TCP proxy"
    process = "tcp-proxy"

    def __init__(self, config: ProxyConfig) -> None:
        """Start the proxy's process; `wait_ready` returns when it listens at all doors."""
        from nemesis.links import tcp_proxy

        self._config = config
        super().__init__(tcp_proxy.main, config, config.output_file, ProxyStats)

    @property
    def problems(self) -> list[str]:
        """A sentence if the proxy has ended by itself; none otherwise."""
        if self._closed or self.child.exitcode is None:
            return []
        return [str(self.why_gone())]

    def set_processes(self, name: str, pids: Sequence[int]) -> None:
        """Name the processes of a node, each time it is started, or of the clients."""
        self.ask(SetProcesses(name=name, pids=tuple(pids)))

    def close(self) -> None:
        """End the proxy, and every connection through it. May be called twice. Its last counts
        become the last line of its output file."""
        if not self._closed and self._config.output_file and self.child.exitcode is None:
            with contextlib.suppress(FloodmarkError, OSError):
                stats = msgspec.json.encode(self.stats()) + b"\n"
                with Path(self._config.output_file).open("ab") as file:
                    file.write(stats)
        super().close()
