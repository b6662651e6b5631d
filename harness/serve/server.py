"""The web server of a store, with a limit on the number of connections."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final, Self

import psutil
import uvicorn

from harness.serve.app import headers, store_app
from node.formats.errors import UsageError
from node.formats.host_errors import reason

BUSY_CONNECTIONS: Final = 64
"""The number of open connections from which on requests are answered with 503."""
STOP_S: Final = 3
_ALWAYS: Final = ("localhost", "127.0.0.1", "[::1]")


class StoreServer:
    """The web server of one store."""

    def __init__(self, host: str, port: int, store: Path) -> None:
        """Open the listening socket. Raises UsageError if the address cannot be used."""
        self._socket = _listen(host, port)
        config = uvicorn.Config(
            store_app(store, _hosts(host)),
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[*headers().items()],
            limit_concurrency=BUSY_CONNECTIONS,
            timeout_graceful_shutdown=STOP_S,
        )
        self._server = _Server(config)

    @property
    def port(self) -> int:
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


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at the address. Raises UsageError."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(
            where, family=family, backlog=BUSY_CONNECTIONS, dualstack_ipv6=both
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
