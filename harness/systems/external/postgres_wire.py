"""A session of a client with PostgreSQL: simple queries, without a password."""

from __future__ import annotations

import socket
import struct
from typing import Final, Self

_HEAD: Final = struct.Struct(">cI")
_COLUMN: Final = struct.Struct(">i")
_PROTOCOL: Final = struct.pack(">I", 196608)
MOST_BYTES: Final = 64 << 20
Row = tuple[str, ...]


class SqlError(Exception):
    """Raised for an error that the server reports; `code` is its SQLSTATE."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__(f"{fields.get('M', '')} ({fields.get('C', '')})")
        self.code = fields.get("C", "")


class PostgresSession:
    """A connection to one server."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        """Connect as the user `postgres`. Raises OSError or SqlError."""
        self._socket = socket.create_connection((host, port), timeout_s)
        self._file = self._socket.makefile("rb")
        try:
            words = b"user\0postgres\0database\0postgres\0client_encoding\0UTF8\0\0"
            self._socket.sendall(struct.pack(">I", 8 + len(words)) + _PROTOCOL + words)
            self._answer()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def query(self, text: str, timeout_s: float) -> list[Row]:
        """Return the rows of all statements of `text`; NULL is "". Raises SqlError or OSError."""
        self._socket.settimeout(timeout_s)
        body = text.encode() + b"\0"
        self._socket.sendall(_HEAD.pack(b"Q", 4 + len(body)) + body)
        return self._answer()

    def _answer(self) -> list[Row]:
        """Read until the server is ready for the next query."""
        rows: list[Row] = []
        error: SqlError | None = None
        while True:
            kind, size = _HEAD.unpack(self._read(_HEAD.size))
            body = self._read(size - 4)
            if kind == b"D":
                rows.append(tuple(_columns(body)))
            elif kind == b"E":
                parts = [part.decode(errors="replace") for part in body.split(b"\0") if part]
                error = SqlError({part[0]: part[1:] for part in parts})
            elif kind == b"Z":
                if error is not None:
                    raise error
                return rows
            elif kind == b"R" and body[:4] != b"\0\0\0\0":
                raise ConnectionError("the server wants a password")

    def _read(self, size: int) -> bytes:
        if not 0 <= size <= MOST_BYTES:
            raise ConnectionError(f"a message of {size} bytes")
        found = self._file.read(size)
        if len(found) < size:
            raise ConnectionError("the server closed the connection")
        return found


def _columns(body: bytes) -> list[str]:
    found, at = [], 2
    while at < len(body):
        (size,) = _COLUMN.unpack_from(body, at)
        at += 4 + max(size, 0)
        found.append(body[at - max(size, 0) : at].decode())
    return found
