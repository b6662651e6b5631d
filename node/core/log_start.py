"""The start of a log, and the facts about the deleted part before it. Pure.

A log whose head was deleted still has to be compared with others: by the epoch of its last record
(truncate-on-fetch, votes) and by its prefix hash. So the start carries both for the record before
it, like the last included index and term of a snapshot in Raft."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec

from node.core.batch import EMPTY_CHAIN
from node.formats.errors import DamagedStore
from node.formats.wire_bounds import Position, StoredEpoch

START_KEY: Final = "start/"
"""Before a partition's name: its log start, a msgpack list of offset, epoch before it, hash there.
A log that begins at offset 0 has none, or one that says so."""
_Chain = Annotated[bytes, msgspec.Meta(min_length=len(EMPTY_CHAIN), max_length=len(EMPTY_CHAIN))]


class LogStart(NamedTuple):
    """The first offset of a log, the leader epoch of the record before it (-1: there never was
    one), and the prefix hash of all records below."""

    offset: int = 0
    epoch: int = -1
    chain: bytes = EMPTY_CHAIN


ORIGIN: Final = LogStart()
"""Nothing was deleted."""
_decoder = msgspec.msgpack.Decoder(tuple[Position, StoredEpoch, _Chain])


def encoded(start: LogStart) -> bytes:
    """Return the stored form of a log start."""
    return msgspec.msgpack.encode(start)


def decoded(key: str, saved: bytes | None) -> LogStart:
    """Return the log start from its stored form, ORIGIN (offset 0) if `saved` is None or empty.
    Raises DamagedStore, naming `key`, if it cannot be decoded."""
    if not saved:
        return ORIGIN
    try:
        return LogStart(*_decoder.decode(saved))
    except msgspec.MsgspecError as error:
        raise DamagedStore(f"it is no log start: {error}", key=key) from None
