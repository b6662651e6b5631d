"""The web server of a store, with limits on the number of connections and on their idle time."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self

import psutil
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from harness.serve.app import store_app
from node.formats.errors import UsageError
from node.formats.host_errors import reason

BUSY_CONNECTIONS: Final = 64
"""The number of open connections from which on requests are answered with 503."""
MOST_CONNECTIONS: Final = 128
"""The largest number of connections; one more is closed at once."""
IDLE_S: Final = 20.0
STOP_S: Final = 3
_ALWAYS: Final = ("localhost", "127.0.0.1", "[::1]")


class StoreServer:
    """The web server of one store."""

    def __init__(self, host: str, port: int, store: Path, *, idle_s: float = IDLE_S) -> None:
        """Open the listening socket. Raises UsageError if the address cannot be used. A connection
        without traffic is closed after `idle_s` to 2 `idle_s` seconds."""
        self._socket = _listen(host, port)

        class Connection(_Connection):
            idle_after_s = idle_s

        config = uvicorn.Config(
            store_app(store, _hosts(host)),
            http=Connection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=BUSY_CONNECTIONS,
            timeout_keep_alive=int(idle_s) or 1,
            timeout_graceful_shutdown=STOP_S,
        )
        self._server = _Server(config)

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return int(self._socket.getsockname()[1])

    @property
    def address(self) -> str:
        """The URL of the server for a browser."""
        host = str(self._socket.getsockname()[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def run(self) -> None:
        """Serve until `stop`, SIGINT or SIGTERM; then requests under way get STOP_S seconds to
        finish."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Ask the server to end. Any thread may call it."""
        self._server.should_exit = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


class _Server(uvicorn.Server):
    """A server that ends in order on SIGINT and SIGTERM, and does not raise them again."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Let the first signal ask the server to end, and the second end requests under way too."""
        self.force_exit = self.should_exit
        self.should_exit = True


class _Connection(H11Protocol):
    """A connection that is closed if there are too many, or if it has no traffic for too long.
    Uvicorn limits the time between two requests of a connection, but not the time that a request,
    or the reading of an answer, may take."""

    idle_after_s: float = IDLE_S

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._received = 0
        self._seen: tuple[object, ...] = ()
        self._look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Take a connection, if there is room."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection that either end has closed."""
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take some bytes of a request."""
        self._received += len(data)
        super().data_received(data)

    def _look_again(self) -> None:
        self._look = self.loop.call_later(self.idle_after_s, self._close_if_idle)

    def _close_if_idle(self) -> None:
        to_send = self.transport.get_write_buffer_size()
        at_work = self.cycle is not None and not self.cycle.response_complete
        seen = (self._received, self.cycle, to_send)
        if seen == self._seen and (to_send or not at_work):
            # Otherwise the kernel would continue to offer connections that wait already.
            own: socket.socket = self.transport.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        else:
            self._seen = seen
            self._look_again()


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at the address. Raises UsageError."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(
            where, family=family, backlog=MOST_CONNECTIONS, dualstack_ipv6=both
        )
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot listen on {host} port {port}: {reason(error)}") from None


def _hosts(host: str) -> Iterator[str]:
    """Yield the names under which a request may ask for a server that listens on `host`."""
    yield from _ALWAYS
    yield f"[{host}]" if ":" in host else host
    try:
        everywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        everywhere = False
    if everywhere:
        yield socket.gethostname()
        for addresses in psutil.net_if_addrs().values():
            for one in addresses:
                if one.family == socket.AF_INET:
                    yield one.address
                elif one.family == socket.AF_INET6:
                    yield f"[{one.address.partition('%')[0]}]"
