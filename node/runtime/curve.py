"""CURVE, the encryption of ZeroMQ, on the sockets of one process: who it is, who may send to it,
and under which names.

Every process of a run has a pair of keys, made for the run and known to no other. A socket that
listens has a gate: ZeroMQ completes a connection only if the gate knows the caller's key, and the
gate then knows by whose key each message came, whatever name the message claims. Without keys the
gate is open. Sources: ZeroMQ RFCs 26 (CurveZMQ) and 27 (ZAP).

A gate has no thread: its sockets are part of its process's poll, and `serve` answers the handshakes
that have come."""

from __future__ import annotations

import struct
from typing import Final

import msgspec
import zmq
from zmq.utils import z85

_DOMAIN: Final = b"floodmark"
ANY_NAME: Final = "*"
_ZAP_ADDRESS: Final = "inproc://zeromq.zap.01"
_ZAP_FRAMES: Final = 7
_SERVE_AT_MOST: Final = 1000
_HANDSHAKE_MS: Final = 10_000
_REFUSED: Final = int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH)
_BROKEN_OFF: Final = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
_EVENT: Final = struct.Struct("=H")
_NOW: Final = int(zmq.NOBLOCK)

Socket = zmq.Socket[bytes]


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A process that may connect to this one with the key `public`, to send messages under `names`
    (ANY_NAME: under any name, as the link hub does)."""

    public: str
    names: tuple[str, ...]


class CurveKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that one process of a run knows, as Z85 texts. `public` and `secret` are its own.
    `servers` maps each address that it connects to, to the key of the process that listens there.
    Only the `callers` may connect to it."""

    public: str
    secret: str
    servers: dict[str, str]
    callers: tuple[Caller, ...] = ()

    def __repr__(self) -> str:
        return f"CurveKeys(public={self.public!r})"


class Gate:
    """The check of keys on the sockets of one ZeroMQ context; without `keys` everybody may connect.

    `unauthenticated` counts refused connections, `wrong_names` dropped messages that claimed a name
    which does not belong to their key. `broken_off` counts connections that the caller closed
    before the handshake was over: it has no keys, or was killed just then. A caller that does not
    speak ZeroMQ at all is disconnected by the library and not counted."""

    def __init__(self, context: zmq.Context[Socket], keys: CurveKeys | None) -> None:
        self._context = context
        self._keys = keys
        self.unauthenticated = 0
        self.wrong_names = 0
        self.broken_off = 0
        self.sockets: list[Socket] = []
        self._monitors: list[Socket] = []
        self._names: dict[str, frozenset[bytes] | None] = {}
        self._callers: dict[bytes, bytes] = {}
        self.asks_nothing = True
        """Whether whoever was let in may use any name."""
        if keys is None:
            return
        for caller in keys.callers:
            every = ANY_NAME in caller.names
            named = None if every else frozenset(each.encode() for each in caller.names)
            self._names[caller.public] = named
            self._callers[z85.decode(caller.public.encode())] = caller.public.encode()
        self.asks_nothing = all(names is None for names in self._names.values())
        self._zap = context.socket(zmq.REP)
        self._zap.set(zmq.LINGER, 0)
        self._zap.bind(_ZAP_ADDRESS)
        self.sockets.append(self._zap)

    @property
    def rejected(self) -> int:
        """The number of connections and messages that were refused."""
        return self.unauthenticated + self.wrong_names

    def listen(self, socket: Socket) -> None:
        """Put the gate in front of a socket that will be bound."""
        if self._keys is None:
            return
        socket.set(zmq.CURVE_SERVER, 1)
        socket.set(zmq.CURVE_SECRETKEY, self._keys.secret.encode())
        socket.set(zmq.ZAP_DOMAIN, _DOMAIN)
        socket.set(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        address = f"inproc://gate.{len(self._monitors)}"
        socket.monitor(address, _REFUSED | _BROKEN_OFF)
        monitor = self._context.socket(zmq.PAIR)
        monitor.set(zmq.LINGER, 0)
        monitor.set(zmq.RCVHWM, 0)  # a full queue would hold up the sockets themselves
        monitor.connect(address)
        self._monitors.append(monitor)
        self.sockets.append(monitor)

    def speak(self, socket: Socket, address: str, server: str = "") -> None:
        """Give this process's keys to a socket that will connect to `address`; `server` is the key
        of the process that listens there, if `CurveKeys.servers` does not have it."""
        if self._keys is not None:
            speak(self._keys, socket, address, server)

    def serve(self) -> bool:
        """Answer the handshakes that have come, and count refused ones. Return whether none is
        left."""
        if self._keys is None:
            return True
        done = False
        for _ in range(_SERVE_AT_MOST):
            try:
                self._answer(self._zap.recv_multipart(_NOW))
            except zmq.Again:
                done = True
                break
        for monitor in self._monitors:
            done = self._count(monitor) and done
        return done

    def admits(self, frame: zmq.Frame, sender: bytes) -> bool:
        """Return whether the message of this frame came with a key that may use the name `sender`;
        if not, it counts as a wrong name."""
        if self.asks_nothing:
            return True
        try:
            names = self._names[str(frame.get("User-Id"))]
        except (KeyError, zmq.ZMQError):
            self.wrong_names += 1
            return False
        if names is None or sender in names:
            return True
        self.wrong_names += 1
        return False

    def _answer(self, request: list[bytes]) -> None:
        name = None
        if len(request) == _ZAP_FRAMES and request[5] == b"CURVE":
            name = self._callers.get(request[6])
        known = name is not None
        status, text = (b"200", b"OK") if known else (b"400", b"not of this run")
        number = request[1] if len(request) > 1 else b""
        self._zap.send_multipart([b"1.0", number, status, text, name or b"", b""], _NOW)

    def _count(self, monitor: Socket) -> bool:
        for _ in range(_SERVE_AT_MOST):
            try:
                # pyzmq's own reader of these would import asyncio into every broker.
                (event,) = _EVENT.unpack_from(monitor.recv_multipart(_NOW)[0])
            except zmq.Again:
                return True
            self.unauthenticated += bool(event & _REFUSED)
            self.broken_off += bool(event & _BROKEN_OFF)
        return False


def speak(keys: CurveKeys | None, socket: Socket, address: str, server: str = "") -> None:
    """Give the `keys` of this process to a socket that will connect to `address`, as `Gate.speak`;
    for a process that listens nowhere."""
    if keys is None:
        return
    socket.set(zmq.CURVE_PUBLICKEY, keys.public.encode())
    socket.set(zmq.CURVE_SECRETKEY, keys.secret.encode())
    # Without the key of the other end no handshake succeeds: no key is no connection.
    socket.set(zmq.CURVE_SERVERKEY, (server or keys.servers.get(address, keys.public)).encode())
