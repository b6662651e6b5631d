"""Messages to bytes and back; the frames are those of `node.formats.wire`."""

from __future__ import annotations

from typing import Final

import msgspec

from node.core.messages import AnyMessage
from node.formats.errors import WireError
from node.formats.wire import (
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    MAX_NAME_BYTES,
    NOT_A_HEADER,
    WIRE_VERSION,
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)
_VERSION_BYTE: Final = bytes([WIRE_VERSION])


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
    if len(header) > MAX_HEADER_BYTES:
        raise WireError(f"header above {MAX_HEADER_BYTES} bytes")
    if max(len(frames[0]), len(frames[1])) > MAX_NAME_BYTES:
        raise WireError(f"a node's name above {MAX_NAME_BYTES} bytes")
    if header[:1] != _VERSION_BYTE:
        raise WireError(f"wire version {header[:1].hex() or 'missing'}, expected {WIRE_VERSION}")
    try:
        receiver, sender = frames[0].decode(), frames[1].decode()
        message = _decoder.decode(header[1:])
    except NOT_A_HEADER as error:
        raise WireError(f"header not understood: {error}") from None
    return receiver, sender, message, frames[3] if len(frames) == 4 else None
