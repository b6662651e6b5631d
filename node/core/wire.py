"""Messages to bytes and back, and a `peek` at a message for those who only carry it.

On the wire a message is ZeroMQ frames: receiver, sender, header (msgpack), and a body where there
is data. The module is a leaf for everyone outside `node`: `peek` tells the kind, the partition
and the header fields of a message without understanding the protocol.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from node.core.messages import AnyMessage
from node.formats.errors import WireError

WIRE_VERSION: Final = 1
FETCH_PREFIX: Final = struct.Struct(">qq")
MAX_FRAME_BYTES: Final = 64 << 20

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)
_generic = msgspec.msgpack.Decoder()
_VERSION_BYTE: Final = bytes([WIRE_VERSION])
# Garbage can be text that is no UTF-8, or nested so deeply that the decoder gives up.
_NOT_A_HEADER: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError)


def encode(
    receiver: str, sender: str, message: AnyMessage, body: bytes | None = None
) -> list[bytes]:
    """The frames of one message."""
    header = _VERSION_BYTE + _encoder.encode(message)
    frames = [receiver.encode(), sender.encode(), header]
    if body is not None:
        frames.append(body)
    return frames


def decode(frames: list[bytes]) -> tuple[str, str, AnyMessage, bytes | None]:
    """(receiver, sender, message, body). Raises WireError with the reason; never anything else."""
    if len(frames) not in (3, 4):
        raise WireError(f"a message has 3 or 4 frames, this one has {len(frames)}")
    if sum(map(len, frames)) > MAX_FRAME_BYTES:
        raise WireError(f"message above {MAX_FRAME_BYTES} bytes")
    header = frames[2]
    if header[:1] != _VERSION_BYTE:
        raise WireError(f"wire version {header[:1].hex() or 'missing'}, expected {WIRE_VERSION}")
    try:
        receiver, sender = frames[0].decode(), frames[1].decode()
        message = _decoder.decode(header[1:])
    except _NOT_A_HEADER as error:
        raise WireError(f"header not understood: {error}") from None
    return receiver, sender, message, frames[3] if len(frames) == 4 else None


def fetch_body(leader_epoch: int, hw: int, batches: list[bytes]) -> bytes:
    """The body of a fetch response: 8-byte leader epoch, 8-byte HW, whole batches."""
    return FETCH_PREFIX.pack(leader_epoch, hw) + b"".join(batches)


def split_fetch_body(body: bytes | None) -> tuple[int, int, bytes]:
    """(leader epoch, HW, bytes of the batches). Raises WireError when it is too short."""
    if body is None or len(body) < FETCH_PREFIX.size:
        raise WireError("a fetch response needs a body of at least 16 bytes")
    leader_epoch, hw = FETCH_PREFIX.unpack_from(body)
    return leader_epoch, hw, body[FETCH_PREFIX.size :]


def peek(frames: list[bytes]) -> dict[str, Any]:
    """Header fields of a message in flight: `kind`, usually `partition`, and whatever else the
    header carries; for fetch responses also `leader_epoch` and `hw` from the body, and
    `body_bytes`. Never raises: what cannot be read has kind "?".
    """
    try:
        fields = _generic.decode(frames[2][1:])
        assert isinstance(fields, dict)
    except (*_NOT_A_HEADER, IndexError, AssertionError):
        return {"kind": "?"}
    if len(frames) > 3:
        _add_body(fields, frames[3])
    return fields


def fields_of(message: AnyMessage, body: bytes | None = None) -> dict[str, Any]:
    """What `peek` says of this message: for worlds without a wire."""
    fields: dict[str, Any] = _generic.decode(_encoder.encode(message))
    if body is not None:
        _add_body(fields, body)
    return fields


def _add_body(fields: dict[str, Any], body: bytes) -> None:
    fields["body_bytes"] = len(body)
    if fields.get("kind") == "fetch-response" and len(body) >= FETCH_PREFIX.size:
        fields["leader_epoch"], fields["hw"] = FETCH_PREFIX.unpack_from(body)
