"""Damage to the bytes of a stored batch or value, as the real and the simulated world inject it.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from node.core.batch import HEADER
from node.formats.trace import METADATA_PARTITION


class DiskDamage(NamedTuple):
    """Damage to stored data: a bit of a batch or value is flipped, the last batch of a log is torn,
    or everything is removed.

    The place is given as shares from 0 to 1: `which` of all batches (or values), and which `bit` of
    it (torn: how much of it remains). A `key` names one value. With `files`, a pattern for file
    names, it is a bit of one of these files instead, `within` two offsets if given."""

    what: Literal["flip", "tear", "empty"]
    part: Literal["payload", "header", "chain", "value"] = "payload"
    which: float = 0.0
    bit: float = 0.0
    key: str = ""
    files: str = ""
    within: tuple[int, int] | None = None


def pick(stored: Sequence[tuple[str, int]], which: float) -> tuple[str, int] | None:
    """Return the batch at the share `which` (0 to 1) of `stored`, which has (partition, base
    offset) in order; None if there is none. Metadata batches count only if there are no others."""
    data = [one for one in stored if one[0] != METADATA_PARTITION] or list(stored)
    return data[min(len(data) - 1, int(which * len(data)))] if data else None


def pick_last(stored: Sequence[tuple[str, int]], which: float) -> tuple[str, int] | None:
    """Return the last batch of the log that `pick` chooses, None if there is none."""
    found = pick(stored, which)
    return None if found is None else max(one for one in stored if one[0] == found[0])


def flipped(chain: bytes, data: bytes, place: DiskDamage) -> tuple[bytes, bytes]:
    """Return prefix hash and bytes of a batch with one bit flipped, at `place`."""
    if place.part == "chain":
        return flip(chain, place.bit), data
    head, payload = data[: HEADER.size], data[HEADER.size :]
    if place.part == "payload" and payload:
        return chain, head + flip(payload, place.bit)
    return chain, flip(head, place.bit) + payload


def flip(data: bytes, bit: float) -> bytes:
    """Return `data` with the bit at the share `bit` (0 to 1) flipped."""
    changed = bytearray(data)
    at = min(8 * len(data) - 1, int(bit * 8 * len(data)))
    changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def torn(data: bytes, kept: float) -> bytes:
    """Return `data` with only its first share `kept` (0 to 1); the rest is zeros, as if it was
    never written."""
    keep = min(len(data) - 1, int(kept * len(data)))
    found = data[:keep] + bytes(len(data) - keep)
    return found if found != data else bytes(len(data))
