"""A node of a replicated log of a few lines, to measure beside our brokers: what a log on ZeroMQ
and LMDB costs in Python that elects, checks and survives nothing.

    python sketch_node.py FOLDER CLIENT_ADDRESS PEER_ADDRESS FOLLOWER_ADDRESS ...

A node that is given followers leads. In a turn it takes what clients have sent, sends it to the
followers, commits it to LMDB with a sync, and answers what all nodes have committed.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator
from typing import Final

import lmdb
import zmq

_MAP_BYTES: Final = 1 << 32
_MOST_A_TURN: Final = 1_000
_LOOK_MS: Final = 1_000
APPEND, READ = b"a", b"r"
RECORDS_A_READ: Final = 500


class RecordLog:
    """Records by offset."""

    def __init__(self, folder: str) -> None:
        self._tables = lmdb.open(folder, map_size=_MAP_BYTES)
        self.end = int(self._tables.stat()["entries"])

    def append(self, records: list[bytes]) -> None:
        """Commit some records, with a sync."""
        with self._tables.begin(write=True) as changes:
            for offset, record in enumerate(records, self.end):
                changes.put(offset.to_bytes(8, "big"), record, append=True)
        self.end += len(records)

    def read(self, offset: int) -> list[bytes]:
        """Some records from an offset on."""
        until = min(offset + RECORDS_A_READ, self.end)
        with self._tables.begin() as view:
            return [view.get(place.to_bytes(8, "big"), b"") for place in range(offset, until)]


def waiting(socket: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    """The messages that are there, a bounded number of them."""
    for _ in range(_MOST_A_TURN):
        try:
            yield socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return


def lead(log: RecordLog, clients: zmq.Socket[bytes], followers: list[zmq.Socket[bytes]]) -> None:
    """One turn after another, until the process that started this one is gone."""
    poller, parent = zmq.Poller(), os.getppid()
    for socket in (clients, *followers):
        poller.register(socket, zmq.POLLIN)
    have = dict.fromkeys(followers, log.end)
    unanswered: deque[tuple[int, bytes]] = deque()
    while os.getppid() == parent:
        poller.poll(_LOOK_MS)
        records: list[bytes] = []
        for client, what, body in waiting(clients):
            if what == READ:
                found = log.read(int.from_bytes(body, "big"))
                clients.send_multipart([client, log.end.to_bytes(8, "big"), *found])
                continue
            unanswered.append((log.end + len(records), client))
            records.append(body)
        if records:
            for follower in followers:
                follower.send_multipart(records)
            log.append(records)
        for follower in followers:
            for (end,) in waiting(follower):
                have[follower] = int.from_bytes(end, "big")
        committed = min(log.end, *have.values())
        while unanswered and unanswered[0][0] < committed:
            offset, client = unanswered.popleft()
            clients.send_multipart([client, offset.to_bytes(8, "big")])


def follow(log: RecordLog, leader: zmq.Socket[bytes]) -> None:
    """Commit what the leader sends, and say how much is there."""
    parent = os.getppid()
    while os.getppid() == parent:
        if not leader.poll(_LOOK_MS):
            continue
        sent = list(waiting(leader))
        log.append([record for _, *records in sent for record in records])
        if sent:
            leader.send_multipart([sent[-1][0], log.end.to_bytes(8, "big")])


def main(folder: str, client_address: str, peer_address: str, *followers: str) -> None:
    """A node, until its parent ends."""
    context, log = zmq.Context(), RecordLog(folder)
    if not followers:
        leader = context.socket(zmq.ROUTER)
        leader.bind(f"tcp://{peer_address}")
        follow(log, leader)
        return
    clients = context.socket(zmq.ROUTER)
    clients.bind(f"tcp://{client_address}")
    connected = [context.socket(zmq.DEALER) for _ in followers]
    for socket, address in zip(connected, followers, strict=True):
        socket.connect(f"tcp://{address}")
    lead(log, clients, connected)


if __name__ == "__main__":
    main(*sys.argv[1:])
