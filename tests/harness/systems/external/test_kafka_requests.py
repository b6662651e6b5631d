"""The requests of Kafka's protocol that floodmark sends itself, to a broker of a few lines."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from harness.systems.external.kafka_requests import (
    Metadata,
    Partition,
    metadata,
    reassign,
    remove_voter,
    voters,
)


def text(value: str | None) -> bytes:
    return (
        struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()
    )


def numbers(*values: int) -> bytes:
    return struct.pack(f">i{len(values)}i", len(values), *values)


BROKERS = struct.pack(">ii", 0, 2) + b"".join(
    struct.pack(">i", number) + text("127.0.0.1") + struct.pack(">i", 9000 + number) + text(rack)
    for number, rack in ((1, "4.4.0"), (2, None))
)
TOPICS = struct.pack(">i", 1) + struct.pack(">h", 0) + text("log-0") + b"\0"
PARTITION = struct.pack(">ihiii", 1, 0, 0, 2, 7) + numbers(2, 1) + numbers(2) + numbers()
METADATA = BROKERS + text("cluster") + struct.pack(">i", 1) + TOPICS + PARTITION


@contextmanager
def broker(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Answer each connection with the next of `answers`; yield the address, and what was asked."""
    asked: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            for answer in answers:
                connection, _ = server.accept()
                with connection, connection.makefile("rb") as stream:
                    asked.append(stream.read(struct.unpack(">i", stream.read(4))[0]))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", asked
        thread.join(5)


def answer(body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, 0) + body


def test_a_broker_says_what_it_knows() -> None:
    with broker(answer(METADATA)) as (address, asked):
        known = metadata(address)
    partition = Partition(leader=2, epoch=7, replicas=(2, 1), isr=(2,))
    assert known == Metadata({1: "4.4.0", 2: ""}, {"log-0": partition})
    assert asked[0][:4] == struct.pack(">hh", 3, 7)


@pytest.mark.parametrize(
    "sent", [b"", answer(METADATA)[:-1], struct.pack(">ii", -1, 0), answer(METADATA[:-1])]
)
def test_a_wrong_answer_is_an_error(sent: bytes) -> None:
    with broker(sent) as (address, _), pytest.raises((ValueError, struct.error)):
        metadata(address)


def test_replicas_are_moved_unless_they_are_there() -> None:
    with broker(answer(METADATA)) as (address, asked):
        reassign(address, "log-0", (1, 2))
    assert len(asked) == 1
    done = b"\0" + struct.pack(">ihB", 0, 0, 0) + b"\2\6log-0\2" + struct.pack(">ihB", 0, 0, 0)
    with broker(answer(METADATA), answer(done + bytes(3))) as (address, asked):
        reassign(address, "log-0", (1, 3))
    assert asked[1][:4] == struct.pack(">hh", 45, 0)
    assert struct.pack(">Bii", 3, 1, 3) in asked[1]
    refused = b"\0" + struct.pack(">ihB", 0, 0, 0) + b"\2\6log-0\2" + struct.pack(">ih", 0, 39)
    served = broker(answer(METADATA), answer(refused))
    with served as (address, _), pytest.raises(RuntimeError, match="error 39"):
        reassign(address, "log-0", (1, 3))


def test_controllers_are_listed_and_removed() -> None:
    topic = b"\2\x13__cluster_metadata\2" + struct.pack(">ih", 0, 0) + b"\0"
    state = struct.pack(">16sqqqB", b"d" * 16, 9, -1, -1, 0)
    ids = b"\3" + struct.pack(">i", 1) + state + struct.pack(">i", 4) + state + b"\1"
    told = b"\0" + struct.pack(">hB", 0, 0) + topic + struct.pack(">iiq", 1, 7, 9) + ids
    with broker(answer(told)) as (address, asked):
        assert voters(address) == {1: b"d" * 16, 4: b"d" * 16}
    assert asked[0][:4] == struct.pack(">hh", 55, 2)
    with broker(answer(b"\0" + struct.pack(">ihBB", 0, 0, 0, 0))) as (address, asked):
        remove_voter(address, "cluster", 4, b"d" * 16)
    assert asked[0].endswith(b"\x08cluster" + struct.pack(">i", 4) + b"d" * 16 + b"\0")
    none = broker(answer(b"\0" + struct.pack(">h", 41)), answer(b"\0\0\0\0\0\0\x29\4not\0"))
    with none as (address, _):
        with pytest.raises(RuntimeError, match="error 41"):
            voters(address)
        with pytest.raises(RuntimeError, match=r"not \(error 41\)"):
            remove_voter(address, "cluster", 4, b"d" * 16)
