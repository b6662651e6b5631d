"""Sessions with a PostgreSQL that is a few lines, and the script beside a server of it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.systems.external.postgres_node import PostgresNode
from harness.systems.external.postgres_wire import PostgresSession, SqlError

READY = b"Z", b"I"
WELCOME = (b"R", bytes(4)), (b"S", b"server_version\015\0"), READY


@contextmanager
def server(*answers: tuple[tuple[bytes, bytes], ...]) -> Iterator[int]:
    """Give each message of a client the next answer, then close the connection."""

    def serve() -> None:
        there, _ = listening.accept()
        with there:
            for answer in answers:
                there.recv(4096)
                for kind, body in answer:
                    there.sendall(kind + struct.pack(">I", 4 + len(body)) + body)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(5)


def row(*columns: bytes | None) -> tuple[bytes, bytes]:
    parts = [b"\xff" * 4 if c is None else struct.pack(">I", len(c)) + c for c in columns]
    return b"D", struct.pack(">H", len(columns)) + b"".join(parts)


def test_the_rows_of_all_statements_come_in_order() -> None:
    answer = (b"C", b"BEGIN\0"), row(b"7", None), (b"N", b"SNOTICE\0\0"), row(b""), READY
    with server(WELCOME, answer) as port, PostgresSession("127.0.0.1", port, 5) as session:
        assert session.query("SELECT 1", 5) == [("7", ""), ("",)]


def test_an_error_has_its_code_and_a_connection_that_ends_is_one() -> None:
    answer = (b"E", b"SERROR\0C25006\0Mread-only\0\0"), READY
    with server(WELCOME, answer) as port, PostgresSession("127.0.0.1", port, 5) as session:
        with pytest.raises(SqlError, match="read-only") as raised:
            session.query("INSERT", 5)
        assert raised.value.code == "25006"
        with pytest.raises(ConnectionError):
            session.query("SELECT 1", 5)


def test_a_server_that_wants_a_password_is_refused() -> None:
    with server(((b"R", b"\0\0\0\x05salt"),)) as port, pytest.raises(ConnectionError):
        PostgresSession("127.0.0.1", port, 5)


class Script(PostgresNode):
    """The script of n1, which sees the places in `seen` and has the timeline `own`."""

    def __init__(self, folder: Path, seen: Any, own: int, *, first: bool = True) -> None:
        told = {"name": "n1", "flags": [], "peers": {}, "here": "", "first": first}
        super().__init__("", str(folder), told)
        self.seen, self.own, self.done = seen, own, list[str]()

    def look(self) -> Any:
        return self.seen

    def timeline(self) -> int:
        return self.own

    def call(self, program: str, *words: Any) -> bool:
        self.done.append(program)
        self.data.mkdir()
        return True


@pytest.mark.parametrize(
    ("files", "seen", "done"),
    [
        ((), (False, (0, ""), ""), ["initdb"]),
        ((), (True, (1, "n2"), "there:1"), ["pg_basebackup"]),
        (("postgresql.auto.conf",), (True, (2, "n2"), "there:1"), ["pg_basebackup"]),
        (("postgresql.auto.conf",), (True, (2, "n0"), "there:1"), []),
        (("postgresql.auto.conf",), (True, (3, "n2"), "there:1"), ["pg_basebackup"]),
        (("postgresql.auto.conf", "standby.signal"), (True, (3, "n2"), "there:1"), []),
        (("postgresql.auto.conf", "standby.signal"), (False, (0, ""), ""), []),
    ],
)
def test_a_node_is_copied_again_only_if_another_is_primary_in_its_place(
    tmp_path: Path, files: tuple[str, ...], seen: Any, done: list[str]
) -> None:
    for file in files:
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / file).touch()
    node = Script(tmp_path, seen, own=2)
    node.prepare()
    assert node.done == done
