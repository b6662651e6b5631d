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


def compact(value: str) -> bytes:
    """Return a text with its size, plus one, before it: seven bits a byte, the lowest first."""
    bits = f"{len(value) + 1:b}"
    parts = [int(bits[max(0, at - 7) : at], 2) for at in range(len(bits), 0, -7)]
    return bytes([*(part | 128 for part in parts[:-1]), parts[-1]]) + value.encode()


TAGGED = b"\1\x83\1\x81\1" + b"t" * 129
"""One field that no request asks for: its number, its size, its content."""
BROKERS = struct.pack(">ii", 0, 2) + b"".join(
    struct.pack(">i", number) + text("127.0.0.1") + struct.pack(">i", 9000 + number) + text(rack)
    for number, rack in ((1, "4.4.0"), (2, None))
)
PARTITION = struct.pack(">ihiii", 1, 0, 0, 2, 7) + numbers(2, 1) + numbers(2) + numbers()


def metadata_of(topic: str) -> bytes:
    named = struct.pack(">ih", 1, 0) + text(topic) + b"\0"
    return BROKERS + text("cluster") + struct.pack(">i", 1) + named + PARTITION


METADATA = metadata_of("log-0")


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


@pytest.mark.parametrize("size", [1, 126, 127, 128, 16_382, 16_383, 30_000])
def test_replicas_are_moved_unless_they_are_there(size: int) -> None:
    topic = "x" * (size - 1) + "y"
    named, ok = b"\2" + compact(topic) + b"\2", struct.pack(">ihB", 0, 0, 0)
    with broker(answer(metadata_of(topic))) as (address, asked):
        reassign(address, topic, (1, 2))
    assert len(asked) == 1
    done = answer(TAGGED + ok + named + ok + bytes(3))
    with broker(answer(metadata_of(topic)), done) as (address, asked):
        reassign(address, topic, range(1, 130))
    assert asked[1][:4] == struct.pack(">hh", 45, 0)
    assert named in asked[1]
    assert b"\x82\1" + struct.pack(">129i", *range(1, 130)) in asked[1]
    refused = answer(TAGGED + ok + named + struct.pack(">ih", 0, 39) + compact("m" * size))
    served = broker(answer(metadata_of(topic)), refused)
    with served as (address, _), pytest.raises(RuntimeError, match=f"error 39 {'m' * size}$"):
        reassign(address, topic, (1, 3))


def test_controllers_are_listed_and_removed() -> None:
    topic = b"\2\x13__cluster_metadata\2" + struct.pack(">ih", 0, 0) + b"\0"
    state = struct.pack(">16sqqq", b"d" * 16, 9, -1, -1) + TAGGED
    ids = b"\3" + struct.pack(">i", 1) + state + struct.pack(">i", 4) + state + b"\1"
    told = b"\0" + struct.pack(">hB", 0, 0) + topic + struct.pack(">iiq", 1, 7, 9) + ids
    with broker(answer(told)) as (address, asked):
        assert voters(address) == {1: b"d" * 16, 4: b"d" * 16}
    assert asked[0][:4] == struct.pack(">hh", 55, 2)
    with broker(answer(b"\0" + struct.pack(">ihBB", 0, 0, 0, 0))) as (address, asked):
        remove_voter(address, "cluster", 4, b"d" * 16)
    assert asked[0].endswith(b"\x08cluster" + struct.pack(">i", 4) + b"d" * 16 + b"\0")
    none = broker(answer(b"\0" + struct.pack(">hB", 41, 0)), answer(b"\0\0\0\0\0\0\x29\4not\0"))
    with none as (address, _):
        with pytest.raises(RuntimeError, match="error 41"):
            voters(address)
        with pytest.raises(RuntimeError, match="error 41 not"):
            remove_voter(address, "cluster", 4, b"d" * 16)
