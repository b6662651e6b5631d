"""Keys: who is let in, under which name, and that a process without keys is open to all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
import zmq

from node.formats import wire
from node.formats.messages import MetadataRequest
from node.runtime.curve import ANY_NAME, Caller, CurveKeys, Gate, speak
from tests.support.runtime_fakes import FakeCore
from tests.support.runtime_rig import Node
from tests.support.waiting import until

Socket = zmq.Socket[bytes]


def pair() -> tuple[str, str]:
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


SERVER, N2, HUB, UNAUTHENTICATED = pair(), pair(), pair(), pair()
SERVER_KEYS = CurveKeys(
    public=SERVER[0],
    secret=SERVER[1],
    servers={},
    callers=(Caller(public=N2[0], names=("n2",)), Caller(public=HUB[0], names=(ANY_NAME,))),
)


def keys_of(own: tuple[str, str], address: str, server: str = SERVER[0]) -> CurveKeys:
    return CurveKeys(public=own[0], secret=own[1], servers={address: server})


class Place:
    """A socket behind a gate, and those who call it."""

    def __init__(self, stack: ExitStack, keys: CurveKeys | None) -> None:
        self._stack = stack
        self._context = stack.enter_context(zmq.Context())
        self.gate = Gate(self._context, keys)
        self.inbox: Socket = self._context.socket(zmq.PULL)
        self.inbox.set(zmq.LINGER, 0)
        self.gate.listen(self.inbox)
        port = self.inbox.bind_to_random_port("tcp://127.0.0.1")
        self.address = f"tcp://127.0.0.1:{port}"
        stack.callback(self._context.destroy, linger=0)

    def call(self, keys: CurveKeys | None) -> Socket:
        context = zmq.Context()
        self._stack.callback(context.destroy, linger=0)
        socket: Socket = context.socket(zmq.PUSH)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.IMMEDIATE, 1)
        socket.set(zmq.RECONNECT_IVL, -1)
        speak(keys, socket, self.address)
        socket.connect(self.address)
        return socket

    def connect(self, keys: CurveKeys) -> Socket:
        """Call, and wait for the connection."""
        socket = self.call(keys)
        until(lambda: self.connected(socket), "a connection")
        return socket

    def connected(self, socket: Socket) -> bool:
        self.gate.serve()
        return bool(socket.poll(5, zmq.POLLOUT))

    def heard(self) -> list[bytes] | None:
        """Return the next message, if the gate admits it under the name in its second frame."""
        until(lambda: self.gate.serve() or self.inbox.poll(5), "a message")
        frames = self.inbox.recv_multipart(copy=False)
        admitted = self.gate.admits(frames[0], frames[-1].bytes)
        return [each.bytes for each in frames] if admitted else None


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_caller_speaks_under_its_own_name_only(stack: ExitStack) -> None:
    place = Place(stack, SERVER_KEYS)
    n2 = place.connect(keys_of(N2, place.address))
    for name in (b"n2", b"v1", b"", b"n2 "):
        n2.send_multipart([b"x", name])
    assert [place.heard() for _ in range(4)] == [[b"x", b"n2"], None, None, None]
    assert (place.gate.wrong_names, place.gate.unauthenticated) == (3, 0)


def test_the_hub_speaks_for_everybody(stack: ExitStack) -> None:
    place = Place(stack, SERVER_KEYS)
    hub = place.connect(keys_of(HUB, place.address))
    hub.send_multipart([b"x", b"v1"])
    assert place.heard() == [b"x", b"v1"]


@pytest.mark.parametrize("who", ["no keys", "unknown key", "wrong server"])
def test_an_outsider_is_counted_and_not_let_in(stack: ExitStack, who: str) -> None:
    place = Place(stack, SERVER_KEYS)
    keys = {
        "no keys": None,
        "unknown key": keys_of(UNAUTHENTICATED, place.address),
        "wrong server": keys_of(N2, place.address, UNAUTHENTICATED[0]),
    }
    outsider = place.call(keys[who])

    def counted() -> bool:
        place.gate.serve()
        # One without keys leaves as soon as it sees that keys are wanted.
        return place.gate.unauthenticated + place.gate.broken_off == 1

    until(counted, "the outsider is counted")
    assert not place.connected(outsider)
    place.connect(keys_of(N2, place.address))


def test_keys_do_not_show_in_messages() -> None:
    assert SERVER[1] not in f"{SERVER_KEYS} {SERVER_KEYS!r}"


@pytest.mark.integration
def test_a_process_refuses_outsiders_and_says_so(tmp_path: Path) -> None:
    """It stops and starts with the same keys, and is reached again."""
    with Node(tmp_path, FakeCore) as node:
        node.config = msgspec.structs.replace(node.config, curve=SERVER_KEYS)
        node.start()
        frames = wire.encode("n1", "n2", MetadataRequest())
        with zmq.Context() as context, context.socket(zmq.PUSH) as outsider:
            outsider.set(zmq.LINGER, 0)
            speak(keys_of(UNAUTHENTICATED, node.config.bind), outsider, node.config.bind)
            outsider.connect(node.config.bind)
            until(lambda: node.trace("refused"), "a refusal")
            assert node.trace("refused")[0]["reason"] == "unauthenticated"
        for incarnation in (1, 2):
            with zmq.Context() as context, context.socket(zmq.PUSH) as friend:
                friend.set(zmq.LINGER, 0)
                friend.set(zmq.IMMEDIATE, 1)
                speak(keys_of(N2, node.config.bind), friend, node.config.bind)
                friend.connect(node.config.bind)
                assert friend.poll(30_000, zmq.POLLOUT), incarnation
                friend.send_multipart(frames)
                friend.send_multipart(wire.encode("n1", "c1", MetadataRequest()))
                before = len(node.trace("refused"))
                until(
                    lambda was=before: len(node.trace("refused")) >= max(was, 1), "the forged one"
                )
            assert node.stop() == 0
            if incarnation == 1:
                node.start()
        assert "unauthenticated refused" in node.output()
