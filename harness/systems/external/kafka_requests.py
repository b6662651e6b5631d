"""Requests of Kafka's protocol that no client library has: what one broker knows of the cluster,
the move of a partition's replicas, and the controllers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from harness.systems.external.kafka_log import unsigned

TIMEOUT_S: Final = 2.0
MOST_BYTES: Final = 1 << 20
_METADATA, _REASSIGN, _QUORUM, _REMOVE_VOTER = (3, 7), (45, 0), (55, 2), (81, 0)


class Partition(NamedTuple):
    """The only partition of a topic. `leader` is -1 if it has none."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Metadata(NamedTuple):
    """The brokers that one broker takes as alive, with their racks, and the topics."""

    brokers: dict[int, str]
    topics: dict[str, Partition]


def metadata(address: str) -> Metadata:
    """Return what a broker (from 2.1 on) knows. Raises OSError, ValueError."""
    answer = _ask(address, _METADATA, b"", struct.pack(">i?", -1, False))
    answer.take("i")
    brokers = {}
    for _ in range(answer.take("i")):
        broker, _, _, rack = answer.take("i"), answer.text(), answer.take("i"), answer.text()
        brokers[broker] = rack
    answer.text()
    answer.take("i")
    topics = {}
    for _ in range(answer.take("i")):
        _, name, _ = answer.take("h"), answer.text(), answer.take("?")
        for _ in range(answer.take("i")):
            _, _, leader, epoch = (answer.take(form) for form in "hiii")
            replicas, isr, _ = answer.numbers(), answer.numbers(), answer.numbers()
            topics[name] = Partition(leader, epoch, replicas, isr)
    return Metadata(brokers, topics)


def reassign(address: str, topic: str, replicas: Sequence[int]) -> None:
    """Ask for a move of the replicas of a topic's only partition, unless it has them. Raises
    RuntimeError if the controller does not begin with it."""
    if set(metadata(address).topics[topic].replicas) == set(replicas):
        return
    ids = _size(len(replicas) + 1) + struct.pack(f">{len(replicas)}i", *replicas)
    body = struct.pack(">i", 10_000) + b"\2" + _compact(topic) + b"\2" + struct.pack(">i", 0) + ids
    answer = _ask(address, _REASSIGN, b"\0", body + bytes(3))
    answer.skip_tags()
    answer.take("i")
    answer.of_partition_succeeds(f"the reassignment of {topic}")


def voters(address: str) -> dict[int, bytes]:
    """Return the controllers that vote, each with the id of its directory, as a broker hears it
    from the active one. Raises RuntimeError if there is none."""
    body = b"\2" + _compact("__cluster_metadata") + b"\2" + struct.pack(">i", 0) + bytes(3)
    answer = _ask(address, _QUORUM, b"\0", body)
    answer.skip_tags()
    answer.of_partition_succeeds("the question for controllers")
    answer.take("16s")  # leader, its epoch, high watermark
    found = {}
    for _ in range(answer.size() - 1):
        voter = answer.take("i")
        found[voter] = answer.take("16s")
        answer.take("24s")  # end of the log, two times
        answer.skip_tags()
    return found


def remove_voter(address: str, cluster: str, voter: int, directory: bytes) -> None:
    """Let a controller vote no more. Raises RuntimeError if that is refused."""
    body = _compact(cluster) + struct.pack(">i16sB", voter, directory, 0)
    answer = _ask(address, _REMOVE_VOTER, b"\0", body)
    answer.skip_tags()
    answer.take("i")
    answer.succeeds(f"the removal of controller {voter}")


class _Answer:
    """The fields of an answer, read one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, form: str) -> Any:
        (value,) = struct.unpack_from(f">{form}", self._data, self._at)
        self._at += struct.calcsize(f">{form}")
        return value

    def size(self) -> int:
        """Return a length or count, which has as many bytes as it needs."""
        value, self._at = unsigned(self._data, self._at)
        return value

    def compact(self) -> bytes:
        """Return a string with its size, plus one, before it; 0: none."""
        return bytes(self.take(f"{max(0, self.size() - 1)}s"))

    def text(self) -> str:
        size = max(0, self.take("h"))
        start, self._at = self._at, self._at + size
        return self._data[start : self._at].decode()

    def skip_tags(self) -> None:
        for _ in range(self.size()):
            self.size()
            self.take(f"{self.size()}s")

    def succeeds(self, what: str) -> None:
        """Read an error code and its message. Raises RuntimeError."""
        code, message = self.take("h"), self.compact().decode()
        if code:
            raise RuntimeError(f"{what} was answered with error {code} {message}".strip())

    def of_partition_succeeds(self, what: str) -> None:
        """Read an error, then the only partition of the only topic as far as its error."""
        self.succeeds(what)
        self.size()
        self.compact()
        self.size()
        self.take("i")
        self.succeeds(what)

    def numbers(self) -> tuple[int, ...]:
        return tuple(self.take("i") for _ in range(self.take("i")))


def _size(number: int) -> bytes:
    more, low = divmod(number, 128)
    return bytes([128 | low]) + _size(more) if more else bytes([low])


def _compact(text: str) -> bytes:
    return _size(len(text.encode()) + 1) + text.encode()


def _ask(address: str, call: tuple[int, int], tags: bytes, body: bytes) -> _Answer:
    """Send a request on a connection of its own; return the answer after its number."""
    host, _, port = address.rpartition(":")
    request = struct.pack(">hhih", *call, 0, 0) + tags + body
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            size, _ = struct.unpack(">ii", stream.read(8))
            if not 0 <= size - 4 <= MOST_BYTES or len(data := stream.read(size - 4)) < size - 4:
                raise ValueError(f"{address} sent a wrong answer")
    return _Answer(data)
