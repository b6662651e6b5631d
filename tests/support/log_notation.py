"""A short notation for logs, as in the cases of the truncate-on-fetch protocol.

`0e1 1e1 2e2` is three batches of one record, in epochs 1, 1 and 2; `0-10e1` is one batch of eleven.
A record's payload is its own name, so two logs with the same name at an offset hold the same bytes
there."""

from __future__ import annotations

import re

from harness.sim.disk import SimDisk
from node.core import batch as batches
from node.core.log import Log
from node.formats.wire import split_fetch_body

PARTITION = "log-0"
TEN = "0e1 1e1 2-3e1 4e1 5e2 6e2 7-8e2 9e2"
_TOKEN = re.compile(r"(\d+)(?:-(\d+))?e(-?\d+)")


def parse(text: str) -> list[tuple[int, int, int]]:
    """(first offset, offset after the last, epoch) of each batch of a log in our notation."""
    found = []
    for token in text.split():
        match = _TOKEN.fullmatch(token)
        assert match, token
        first, last, epoch = match.groups()
        found.append((int(first), int(last or first) + 1, int(epoch)))
    return found


def one_batch(first: int, end: int, epoch: int) -> bytes:
    """Return the stamped batch that `first..end` of `epoch` stands for."""
    # A record takes a byte at least.
    payload = name_of(first, end, epoch).encode().ljust(end - first)
    return batches.stamp(batches.build(end - first, payload), first, epoch)


def name_of(first: int, end: int, epoch: int) -> str:
    """Return a batch in our notation."""
    return f"{first}e{epoch}" if end == first + 1 else f"{first}-{end - 1}e{epoch}"


def fill(log: Log, text: str) -> None:
    """Append what `text` says."""
    log.append_as_follower([batches.view(one_batch(*one)) for one in parse(text)])


def show(log: Log) -> str:
    """Return a log in our notation, taken from its payloads and checked against its headers."""
    found, _ = log.read(log.start, max_bytes=1 << 30, below=log.leo)
    names = []
    for data in found:
        one = batches.view(data)
        assert one.payload.decode().rstrip() == name_of(one.base_offset, one.end, one.epoch)
        names.append(one.payload.decode().rstrip())
    return " ".join(names)


def bare_log(text: str = "") -> Log:
    log = Log(PARTITION, SimDisk(), durable=True)
    fill(log, text)
    return log


def records(body: bytes | None) -> str:
    """Return the batches of a fetch response in our notation."""
    _, _, data = split_fetch_body(body)
    return " ".join(one.payload.decode().rstrip() for one in batches.split(data))
