"""The encoding of messages as bytes; the frames are those of `node.formats.wire`."""

from __future__ import annotations

import msgspec

from node.core.messages import AnyMessage
from node.formats import wire
from node.formats.errors import WireError
from node.formats.wire import MAX_FRAME_BYTES, MAX_HEADER_BYTES, NOT_A_HEADER

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)


def encode(
    receiver: str, sender: str, message: AnyMessage, body: bytes | None = None
) -> list[bytes]:
    first = wire.envelope(receiver, sender, _encoder.encode(message))
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
    to, source, start = wire.names(first)
    try:
        receiver, sender = to.decode(), source.decode()
        message = _decoder.decode(first[start:])
    except NOT_A_HEADER as error:
        raise WireError(f"its header cannot be decoded: {error}") from None
    return receiver, sender, message, frames[1] if len(frames) == 2 else None
