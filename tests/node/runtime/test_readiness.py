"""A wait ends for what has come, before or after it began, and for nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import zmq

from node.runtime.readiness import Readiness
from tests.support.waiting import PATIENCE_S

LONG_MS = int(PATIENCE_S * 1000)
Socket = zmq.Socket[bytes]
Watched = tuple[Socket, Socket, Readiness]


@pytest.fixture
def watched() -> Iterator[Watched]:
    """Return a pair of sockets, and what waits for the first."""
    with zmq.Context() as context:
        near, far = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        port = near.bind_to_random_port("tcp://127.0.0.1")
        far.connect(f"tcp://127.0.0.1:{port}")
        ready = Readiness()
        ready.watch(near)
        yield near, far, ready
        near.close(0)
        far.close(0)


def received(socket: Socket) -> list[bytes]:
    found = []
    try:
        while True:
            found.append(socket.recv(zmq.NOBLOCK))
    except zmq.Again:
        return found


def collect(ready: Readiness, socket: Socket, count: int) -> list[bytes]:
    """So many messages; every wait that names the socket is followed by taking all there is."""
    found: list[bytes] = []
    while len(found) < count:
        assert ready.wait(LONG_MS) == [socket]
        found += received(socket)
    return found


def test_what_came_before_it_was_watched_is_named_by_the_first_wait(watched: Watched) -> None:
    near, far, _ = watched
    far.send(b"early")
    assert near.poll(LONG_MS)
    ready = Readiness()
    ready.watch(near)
    assert ready.wait(LONG_MS) == [near]
    assert received(near) == [b"early"]


def test_no_message_is_missed_however_they_come(watched: Watched) -> None:
    near, far, ready = watched
    for size in (1, 2, 500, 1, 1, 50):
        sent = [b"%d" % number for number in range(size)]
        for each in sent:
            far.send(each)
        assert collect(ready, near, size) == sent


def test_what_was_left_is_named_again_at_once(watched: Watched) -> None:
    near, far, ready = watched
    far.send(b"one")
    far.send(b"two")
    assert collect(ready, near, 2) == [b"one", b"two"]
    ready.again(near)
    assert ready.wait(LONG_MS) == [near]
    received(near)
    assert ready.wait(0) == []


def test_a_descriptor_is_named_as_long_as_it_is_readable() -> None:
    read_fd, write_fd = os.pipe()
    try:
        ready = Readiness()
        ready.watch(read_fd)
        assert ready.wait(0) == []
        os.write(write_fd, b"x")
        assert ready.wait(LONG_MS) == [read_fd]
        assert ready.wait(LONG_MS) == [read_fd]
    finally:
        os.close(read_fd)
        os.close(write_fd)
