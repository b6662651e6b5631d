"""The TCP proxy: a process that stands between unmodified servers, under link rules.

For each role of a node the proxy has an address that all others dial (a `Door`), and forwards from
there to the address at which the node listens. It looks up who dials (`nemesis.links.dialers`), so
addresses may be advertised and gossiped. `nemesis.links.tcp_rules` says what the rules mean. Three
things are not as they would be on a wire, because a listener cannot leave a SYN unanswered:

* While a link is cut, `connect` of a new connection succeeds, and nothing more happens. The node
  hears nothing of it. If the dialer is still there at the heal, the proxy connects to the node
  then.
* A node that does not listen (it is dead) gives a connection that is reset, not a refused one.
* Bytes that waited for a heal pass at once: no retransmission timer has to run out."""

from __future__ import annotations

import asyncio
import random
import resource
import sys
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, Literal

from nemesis.links.dialers import Dialers
from nemesis.links.link_process import AddRule, GetStats, LinkAnswer, RemoveRule
from nemesis.links.tcp_connection import ConnectionEnd, ProxiedConnection
from nemesis.links.tcp_control import Door, ProxyCommand, ProxyConfig, ProxyStats, SetProcesses
from nemesis.links.tcp_rules import UNKNOWN, TcpRules
from node.formats.errors import FloodmarkError
from node.formats.host_errors import reason
from node.runtime.children import settle_in
from node.runtime.requests import Pipe, obey

BACKLOG: Final = 512


def main(config: ProxyConfig, pipe: Pipe) -> None:
    """Run the proxy's process: forward bytes until the harness closes the pipe."""
    settle_in(config.parent_pid, config.output_file)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        asyncio.run(TcpProxy(config, pipe).run())
    except FloodmarkError as error:
        sys.stderr.write(f"TCP proxy: {error}\n")
        sys.exit(error.exit_code)


class TcpProxy:
    """The proxy's listening sockets, connections and commands, in one event loop."""

    def __init__(self, config: ProxyConfig, pipe: Pipe) -> None:
        self._config = config
        self._pipe = pipe
        self._rules = TcpRules(config.shared_clients)
        self._rng = random.Random(f"tcp/{config.seed}")
        self._dialers = Dialers()
        self._connections: dict[int, ProxiedConnection] = {}
        self._admissions: dict[int, asyncio.Task[None]] = {}
        self._servers: list[asyncio.Server] = []
        self._failure = ""
        self._last_number = 0
        self._stats = ProxyStats()
        self._stopped = asyncio.Event()
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Listen at all doors, then carry out commands. Raises FloodmarkError for an address that
        cannot be used."""
        loop = asyncio.get_running_loop()
        for door in self._config.doors:
            try:
                made = partial(self._accepted, door)
                server = await loop.create_server(made, *door.listen, backlog=BACKLOG)
            except OSError as error:
                where = "{}:{}".format(*door.listen)
                raise FloodmarkError(
                    f"cannot listen on {where} for {door.node}: {reason(error)}"
                ) from None
            self._servers.append(server)
        loop.set_exception_handler(self._failed)
        loop.add_reader(self._pipe.fileno(), self._obey)
        await self._stopped.wait()
        if self._failure:
            raise FloodmarkError(self._failure)

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End the proxy after an unexpected error: in doubt it must not carry on."""
        self._failure = f"{context.get('message')}: {context.get('exception')!r}"
        self._stopped.set()

    # -- connections

    def _accepted(self, door: Door) -> ConnectionEnd:
        self._last_number += 1
        made = ProxiedConnection(self._last_number, door.node, self._rules, self._rng, self._over)
        self._connections[made.number] = made
        task = asyncio.get_running_loop().create_task(self._admit(made, door))
        self._admissions[made.number] = task
        task.add_done_callback(lambda _: self._admissions.pop(made.number, None))
        return made.near

    def _over(self, connection: ProxiedConnection) -> None:
        self._connections.pop(connection.number, None)
        if connection.number in self._admissions:
            self._admissions[connection.number].cancel()

    async def _admit(self, connection: ProxiedConnection, door: Door) -> None:
        """Find out the dialer, wait while the link is cut, and connect to the node."""
        connection.dialer = door.dialer or await self._name(connection)
        name = f"{connection.dialer}>{door.node} {door.role}"
        self._stats.accepted[name] = self._stats.accepted.get(name, 0) + 1
        self._stats.unknown += connection.dialer == UNKNOWN
        while True:
            between = (connection.dialer, connection.node)
            if resets := self._rules.about(*between, "reset"):
                self._rules.ended(resets, connection.number)
                connection.reset()
                return
            cuts = self._rules.about(*between, "drop")
            if not cuts:
                break
            connection.phase = "held"
            connection.apply_rules()
            self._rules.held(cuts, connection.number)
            await self._changed()
        connection.phase = "dialing"
        await self._connect(connection, door)

    async def _connect(self, connection: ProxiedConnection, door: Door) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: connection.far, *door.target)
        except OSError:
            self._stats.refused += 1
            connection.reset()
            return
        connection.up()

    async def _name(self, connection: ProxiedConnection) -> str:
        """Return the dialer's name. A process that has just started may be named in a moment."""
        # The protocol is made before its transport: let that come first.
        await asyncio.sleep(0)
        ends = connection.near.ends
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.naming_s
        while ends is not None:
            name = self._dialers.name_of(ends)
            if name is not None:
                return name
            left = deadline - loop.time()
            if left <= 0 or not self._dialers.is_open(ends):
                break
            try:
                await asyncio.wait_for(self._changed(), left)
            except TimeoutError:
                break
        return UNKNOWN

    def _changed(self) -> Coroutine[Any, Any, Literal[True]]:
        """Return what waits for the next change of rules or names, counted from this call: a task
        that awaits it begins only after others, and one of them may tell of a change."""
        return self._news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # -- commands

    def _obey(self) -> None:
        """Carry out one command and answer it; without a harness there is nothing to do."""
        if not obey(self._pipe, ProxyCommand, self._answer, LinkAnswer):
            self._stopped.set()

    def _answer(self, command: ProxyCommand) -> LinkAnswer[ProxyStats]:
        match command:
            case AddRule(rule=rule):
                number = self._rules.add(rule)
                self._enforce(number)
                return LinkAnswer(number=number)
            case RemoveRule(number=number):
                counts = self._rules.remove(number)
                if counts is None:
                    raise FloodmarkError(f"there is no link rule {number}")
                for connection in list(self._connections.values()):
                    connection.recall(number)
                    connection.apply_rules()
                self._tell()
                return LinkAnswer(counts=counts)
            case SetProcesses(name=name, pids=pids):
                self._dialers.set_processes(name, pids)
                self._tell()
            case GetStats():
                self._stats.open = len(self._connections)
                self._stats.rules = self._rules.counts()
                return LinkAnswer(stats=self._stats)
        return LinkAnswer()

    def _enforce(self, number: int) -> None:
        """Let a new rule act on the connections that are there."""
        action, rules = self._rules.action(number), self._rules
        for connection in list(self._connections.values()):
            if connection.phase == "naming":
                continue
            dialer, node = connection.dialer, connection.node
            if action == "reset" and number in rules.about(dialer, node, "reset"):
                rules.ended((number,), connection.number)
                connection.reset()
            elif action == "half-open":
                loser = next(
                    (r for s, r in ((dialer, node), (node, dialer)) if rules.covers(number, s, r)),
                    None,
                )
                if loser is not None and connection.lose(number, loser):
                    rules.ended((number,), connection.number)
            connection.apply_rules()
        self._tell()
