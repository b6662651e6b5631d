"""Damage to the bytes of a stored batch or value: the same in the real and the simulated world.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from node.core.batch import HEADER
from node.formats.trace import METADATA_PARTITION

Part = Literal["payload", "header", "chain", "value"]


class BitPlace(NamedTuple):
    """A place on a disk, as shares from 0 to 1: a batch (or value) of all, and a bit of it. A `key`
    names one value."""

    part: Part
    which: float
    bit: float
    key: str = ""


def pick(stored: Sequence[tuple[str, int]], which: float) -> tuple[str, int] | None:
    """Return one of the batches (partition, base offset), in order; one of the metadata only if
    there are no others."""
    data = [one for one in stored if one[0] != METADATA_PARTITION] or list(stored)
    return data[min(len(data) - 1, int(which * len(data)))] if data else None


def pick_last(stored: Sequence[tuple[str, int]], which: float) -> tuple[str, int] | None:
    """Return the last batch of one of the logs."""
    found = pick(stored, which)
    return None if found is None else max(one for one in stored if one[0] == found[0])


def flipped(chain: bytes, data: bytes, place: BitPlace) -> tuple[bytes, bytes]:
    """Return prefix hash and batch with one bit of a part flipped."""
    if place.part == "chain":
        return flip(chain, place.bit), data
    head, payload = data[: HEADER.size], data[HEADER.size :]
    if place.part == "payload" and payload:
        return chain, head + flip(payload, place.bit)
    return chain, flip(head, place.bit) + payload


def flip(data: bytes, bit: float) -> bytes:
    """Return the bytes with one bit flipped."""
    changed = bytearray(data)
    at = min(8 * len(data) - 1, int(bit * 8 * len(data)))
    changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def torn(data: bytes, kept: float) -> bytes:
    """Return the first part of the bytes; the rest was never written."""
    keep = min(len(data) - 1, int(kept * len(data)))
    found = data[:keep] + bytes(len(data) - keep)
    return found if found != data else bytes(len(data))
