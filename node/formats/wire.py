"""Messages as bytes on the wire.

A message is one ZeroMQ frame, its envelope, and a second one, its body, if it has data. The
envelope is a version byte, the lengths of two names in a byte each, the receiver, the sender, and
the header (msgpack). A frame costs more than its bytes, above all if each is encrypted by itself,
so a message has no more of them."""

from __future__ import annotations

import contextlib
import struct
from typing import Any, Final

import msgspec

from node.formats.errors import WireError
from node.formats.messages import AnyMessage
from node.formats.wire_bounds import MAX_EPOCH, MAX_OFFSET

WIRE_VERSION: Final = 2
MAX_FRAME_BYTES: Final = 24 << 20
"""Of one frame, and of all frames of a message together."""
MAX_HEADER_BYTES: Final = 4 << 20
"""Of the envelope."""
MAX_NAME_BYTES: Final = 64
"""Of the receiver's and of the sender's name."""
ADMIN: Final = "admin"
"""The sender of commands to the controller."""
_FETCH_PREFIX: Final = struct.Struct(">qq")

# Garbage can be text that is no UTF-8, or nested so deeply that the decoder gives up.
NOT_A_HEADER: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError)

_FIRST_NAME: Final = 3

_encoder = msgspec.msgpack.Encoder()
_headers = msgspec.msgpack.Decoder()
_messages = msgspec.msgpack.Decoder(AnyMessage)


def encode(
    receiver: str, sender: str, message: AnyMessage, body: bytes | None = None
) -> list[bytes]:
    first = envelope(receiver, sender, _encoder.encode(message))
    return [first] if body is None else [first, body]


def decode(frames: list[bytes]) -> tuple[str, str, AnyMessage, bytes | None]:
    """Return receiver, sender, message and body (None if there is none). Raises only WireError,
    with the reason."""
    if len(frames) not in (1, 2):
        raise WireError(f"a message has 1 or 2 frames, this one has {len(frames)}")
    if sum(map(len, frames)) > MAX_FRAME_BYTES:
        raise WireError(f"the message has more than {MAX_FRAME_BYTES} bytes")
    first = frames[0]
    if len(first) > MAX_HEADER_BYTES:
        raise WireError(f"its header has more than {MAX_HEADER_BYTES} bytes")
    to, source, start = names(first)
    try:
        receiver, sender = to.decode(), source.decode()
        message = _messages.decode(first[start:])
    except NOT_A_HEADER as error:
        raise WireError(f"its header cannot be decoded: {error}") from None
    return receiver, sender, message, frames[1] if len(frames) == 2 else None


def envelope(receiver: str, sender: str, header: bytes) -> bytes:
    """Return the first frame of a message: its names and its header."""
    to, source = receiver.encode(), sender.encode()
    return bytes((WIRE_VERSION, len(to), len(source))) + to + source + header


def names(frame: bytes) -> tuple[bytes, bytes, int]:
    """Return receiver, sender, and the position of the header in an envelope. Raises WireError for
    bytes that are no envelope."""
    if len(frame) < _FIRST_NAME or frame[0] != WIRE_VERSION:
        raise WireError(f"wire version {frame[:1].hex() or 'missing'}, expected {WIRE_VERSION:02x}")
    middle = _FIRST_NAME + frame[1]
    end = middle + frame[2]
    if len(frame) < end or frame[1] > MAX_NAME_BYTES or frame[2] > MAX_NAME_BYTES:
        raise WireError(f"a node's name is cut short, or above {MAX_NAME_BYTES} bytes")
    return frame[_FIRST_NAME:middle], frame[middle:end], end


def sender(frame: bytes) -> bytes:
    """Return the sender that an envelope names, b"" for bytes that are no envelope."""
    try:
        return names(frame)[1]
    except WireError:
        return b""


def peek(frames: list[bytes]) -> dict[str, Any]:
    """Return the header fields of a message in flight: `kind`, usually `partition`, and the others
    of its kind; if it has a body also `body_bytes`, and for fetch responses `leader_epoch` and
    `hw`. Never raises: a message that cannot be read has kind "?"."""
    fields: Any = None
    if frames and len(frames[0]) <= MAX_HEADER_BYTES:
        with contextlib.suppress(*NOT_A_HEADER, WireError):
            fields = _headers.decode(frames[0][names(frames[0])[2] :])
    if not isinstance(fields, dict):
        return {"kind": "?"}
    if len(frames) > 1:
        _add_body(fields, frames[1])
    return fields


def fields_of(message: msgspec.Struct, body: bytes | None = None) -> dict[str, Any]:
    """Return the header fields that `peek` would return for this message, for worlds without a
    wire."""
    fields: dict[str, Any] = _headers.decode(_encoder.encode(message))
    if body is not None:
        _add_body(fields, body)
    return fields


def fetch_body(leader_epoch: int, hw: int, batches: list[bytes]) -> bytes:
    """Return the body of a fetch response: 8-byte leader epoch, 8-byte HW, whole batches."""
    return _FETCH_PREFIX.pack(leader_epoch, hw) + b"".join(batches)


def split_fetch_body(body: bytes | None) -> tuple[int, int, bytes]:
    """Return leader epoch, HW and the bytes of the batches in the body of a fetch response. Raises
    WireError if it is too short, or if epoch or HW is out of bounds."""
    if body is None or len(body) < _FETCH_PREFIX.size:
        raise WireError("a fetch response needs a body of at least 16 bytes")
    leader_epoch, hw = _FETCH_PREFIX.unpack_from(body)
    if not -1 <= leader_epoch <= MAX_EPOCH or not 0 <= hw <= MAX_OFFSET:
        raise WireError(f"fetch response out of bounds: leader epoch {leader_epoch}, HW {hw}")
    return leader_epoch, hw, body[_FETCH_PREFIX.size :]


def _add_body(fields: dict[str, Any], body: bytes) -> None:
    fields["body_bytes"] = len(body)
    if fields.get("kind") == "fetch-response" and len(body) >= _FETCH_PREFIX.size:
        fields["leader_epoch"], fields["hw"] = _FETCH_PREFIX.unpack_from(body)
