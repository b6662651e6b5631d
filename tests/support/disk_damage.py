"""Damage to what a simulated disk has stored."""

from __future__ import annotations

from typing import Final

from harness.sim.damaged_value import DamagedValue
from harness.sim.disk import SimDisk
from node.core import batch as batches
from node.formats.errors import WireError

PLACES: Final = {
    "payload": -1,
    "count": batches.HEADER.size - 1,
    "epoch": 11,
    "base": 7,
    "version": 12,
}


def flip(disk: SimDisk, base: int, place: str, partition: str = "log-0") -> None:
    """Change one bit of a stored batch, or remove the batch."""
    for image in (disk._synced, disk._now):
        log = image.logs.get(partition, {})
        if base not in log:
            continue
        chain, data = log[base]
        if place == "chain":
            log[base] = (_flipped(chain, 3), data)
        elif place == "missing":
            del log[base]
        else:
            log[base] = (chain, _flipped(data, PLACES[place]))


def spoil(disk: SimDisk, key: str) -> None:
    """Damage a small value."""
    disk.flush()
    for image in (disk._synced, disk._now):
        image.values[key] = DamagedValue(image.values.get(key, b""))


def text_of(data: bytes) -> str:
    """Return the payload of a stored batch."""
    try:
        return batches.view(data).payload.decode(errors="replace")
    except WireError:
        return "damaged"


def _flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 4
    return bytes(changed)
