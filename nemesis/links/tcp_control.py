"""The control of the TCP proxy: its configuration, its commands, and the harness's end of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import multiprocess

from nemesis.links.hub_control import AddRule, GetStats, RemoveRule
from nemesis.links.rule import Counts, LinkRule
from node.formats.errors import FloodmarkError
from node.runtime import children
from node.runtime.reap import REAP_S

DEADLINE_S: Final = 10.0
START_S: Final = 60.0
"""A busy machine takes its time to start a process."""
NAMING_S: Final = 1.0
"""How long an unknown process may dial before the harness has said whose it is."""
_LOOK_S: Final = 0.1

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


class ProxyAnswer(msgspec.Struct, kw_only=True):
    """The proxy's answer to any command; `error` says why it was refused, "" if it was not."""

    error: str = ""
    number: int = 0
    counts: Counts | None = None
    stats: ProxyStats | None = None


class ProxyGone(FloodmarkError):
    """The proxy does not answer: it could not start, or it died."""


class TcpLinks:
    """The proxy of one run, as a process that ends with this one. Main thread only. Its methods are
    those of `nemesis.links.hub_control.HubControl`: `add`, `remove`, `wait_ready`, `close`. Every
    call waits at most `DEADLINE_S` (`wait_ready`: `START_S`) and then raises ProxyGone. `problems`
    are sentences that make the verdict of the run unknown."""

    def __init__(self, config: ProxyConfig) -> None:
        """Start the proxy's process; `wait_ready` returns when it listens at all doors."""
        from nemesis.links import tcp_proxy

        self._config = config
        self._pipe, theirs = multiprocess.Pipe()
        self._child = children.start("tcp-proxy", tcp_proxy.main, config, theirs)
        theirs.close()
        self._closed = False

    @property
    def problems(self) -> list[str]:
        """A sentence if the proxy has ended by itself; none otherwise."""
        if self._closed or self._child.exitcode is None:
            return []
        return [str(self._why_gone())]

    @property
    def pid(self) -> int:
        """The pid of the proxy; 0 once it is closed."""
        return 0 if self._closed else self._child.pid

    def wait_ready(self) -> None:
        """Return once the proxy listens at every door. Raises FloodmarkError if an address cannot
        be used."""
        self._ask(GetStats(), START_S)

    def add(self, rule: LinkRule) -> int:
        """Put a rule in force; return its number. Raises FloodmarkError for an impossible one."""
        return self._ask(AddRule(rule=rule)).number

    def remove(self, number: int) -> Counts:
        """End a rule and return its effects; bytes that it held go on at once."""
        counts = self._ask(RemoveRule(number=number)).counts
        assert counts is not None
        return counts

    def set_processes(self, name: str, pids: Sequence[int]) -> None:
        """Name the processes of a node, each time it is started, or of the clients."""
        self._ask(SetProcesses(name=name, pids=tuple(pids)))

    def stats(self) -> ProxyStats:
        """Return the counts of connections so far."""
        stats = self._ask(GetStats()).stats
        assert stats is not None
        return stats

    def close(self) -> None:
        """End the proxy, and every connection through it. May be called twice. Its last counts
        become the last line of its output file."""
        if not self._closed:
            self._closed = True
            if self._config.output_file and self._child.exitcode is None:
                with contextlib.suppress(FloodmarkError, OSError):
                    stats = msgspec.json.encode(self.stats()) + b"\n"
                    with Path(self._config.output_file).open("ab") as file:
                        file.write(stats)
            self._pipe.close()
            self._child.kill()
            self._child.join(REAP_S)

    def _ask(self, command: ProxyCommand, limit_s: float = DEADLINE_S) -> ProxyAnswer:
        """Send a command, await its answer. Raises ProxyGone, or FloodmarkError if refused."""
        deadline = time.monotonic() + limit_s
        try:
            self._pipe.send_bytes(msgspec.msgpack.encode(command))
            while not self._pipe.poll(_LOOK_S):
                if time.monotonic() > deadline:
                    # An answer that came later would be taken for that of the next command.
                    self._child.kill()
                    raise ProxyGone(f"the TCP proxy did not answer within {limit_s:g} s")
            answer = msgspec.msgpack.decode(self._pipe.recv_bytes(), type=ProxyAnswer)
        except (OSError, EOFError):
            self._child.join(DEADLINE_S)
            raise self._why_gone() from None
        if answer.error:
            raise FloodmarkError(answer.error)
        return answer

    def _why_gone(self) -> ProxyGone:
        seen = f" (see {self._config.output_file})" if self._config.output_file else ""
        return ProxyGone(f"the TCP proxy ended by itself, with code {self._child.exitcode}{seen}")


Pipe = Any
"""The proxy's end of the pipe: a `multiprocess` connection."""
