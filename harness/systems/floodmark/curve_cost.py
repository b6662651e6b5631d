"""What keys (CURVE) cost in processor time, message by message, over the sockets of a broker.

Rates of a cluster say little about it on a busy machine: what a turn has to do depends on what has
come meanwhile. Here one process sends messages to itself, with keys and without by turns, and
counts the processor time of all its threads.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from typing import Final

import msgspec
import zmq

from harness.systems.floodmark.keyring import Keyring
from harness.systems.ports import PortLease
from node.core.api import Outgoing
from node.core.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from node.formats.errors import FloodmarkError
from node.formats.wire import fetch_body
from node.runtime.curve import CurveKeys
from node.runtime.mailbox import Inbox, Outbox

SERIES: Final = 5
ROUNDS: Final = 12
MESSAGES: Final = 50
TIMEOUT_S: Final = 30.0
_SENDER: Final = "n1"
_RECEIVER: Final = "n2"
_CONNECT_MS: Final = 5000
_WAIT_MS: Final = 100


class KeyCost(msgspec.Struct, frozen=True, kw_only=True):
    """Microseconds of processor time to send and receive one message without keys, and what keys
    add: the median of series, with the lowest and the highest. Of a series the cheapest round
    counts, since whatever else the machine does only makes a round dearer. `body_bytes` are the
    data of a message."""

    body_bytes: int
    plain_us: float
    added_us: float
    from_us: float
    to_us: float


def cost_of_messages(batch_bytes: int) -> tuple[KeyCost, KeyCost]:
    """Of a message with a batch, and of one without. Raises FloodmarkError when nothing arrives."""
    small = Outgoing(_RECEIVER, FetchRequest(partition="log-0", replica=_SENDER))
    answer = Outgoing(_RECEIVER, ProduceResponse(partition="log-0", base_offset=5))
    batch = bytes(batch_bytes)
    large = Outgoing(_RECEIVER, ProduceRequest(partition="log-0"), batch)
    response = FetchResponse(partition="log-0")
    fetched = Outgoing(_RECEIVER, response, fetch_body(1, 1, [batch]))
    with PortLease(2) as lease:
        pairs = {
            keys: _Pair(port, keys) for port, keys in zip(lease.ports, (True, False), strict=True)
        }
        try:
            return (
                _cost(pairs, (large, fetched, fetched), batch_bytes),
                _cost(pairs, (small, small, answer), 0),
            )
        finally:
            for pair in pairs.values():
                pair.close()


def of_a_batch(with_batch: KeyCost, without: KeyCost, copies: int) -> float:
    """What keys add for a batch that `copies` replicas get, in microseconds: it is sent once and
    fetched by each follower; that they asked, and that it is acknowledged, are small messages."""
    return with_batch.added_us * copies + without.added_us * copies


def _cost(pairs: dict[bool, _Pair], messages: tuple[Outgoing, ...], body_bytes: int) -> KeyCost:
    for pair in pairs.values():
        pair.exchange(messages)  # The first round connects.
    plain, added = [], []
    for _ in range(SERIES):
        least = {True: math.inf, False: math.inf}
        for number in range(ROUNDS):
            for keys in (True, False) if number % 2 else (False, True):
                least[keys] = min(least[keys], pairs[keys].exchange(messages))
        plain.append(least[False])
        added.append(least[True] - least[False])
    return KeyCost(
        body_bytes=body_bytes,
        plain_us=round(statistics.median(plain), 1),
        added_us=round(statistics.median(added), 1),
        from_us=round(min(added), 1),
        to_us=round(max(added), 1),
    )


class _Pair:
    """An outbox and the inbox that it sends to."""

    def __init__(self, port: int, with_keys: bool) -> None:
        addresses = {_RECEIVER: f"tcp://127.0.0.1:{port}"}
        keyring = Keyring((_SENDER, _RECEIVER), (), with_hub=False) if with_keys else None
        keys: dict[str, CurveKeys | None] = {
            name: None if keyring is None else keyring.of(name, addresses)
            for name in (_SENDER, _RECEIVER)
        }
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._wake = os.pipe()
        self._inbox = Inbox(
            self._context, addresses[_RECEIVER], self._wake[0], keys=keys[_RECEIVER]
        )
        # A context has one gate, which the receiver's is.
        self._far: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._outbox = Outbox(self._far, _SENDER, addresses, keys=keys[_SENDER])
        self._outbox.wait_connected(_CONNECT_MS, self._inbox)

    def exchange(self, messages: tuple[Outgoing, ...]) -> float:
        """Send and receive them; the processor time of one message, in microseconds."""
        began_s, deadline_s = time.process_time(), time.monotonic() + TIMEOUT_S
        for _ in range(MESSAGES):
            self._outbox.send(list(messages))
            left = len(messages)
            while left > 0:
                self._inbox.wait(_WAIT_MS)
                left -= len(self._inbox.drain()[0])
                if time.monotonic() > deadline_s:
                    raise FloodmarkError("messages to oneself do not arrive")
        return (time.process_time() - began_s) / MESSAGES / len(messages) * 1e6

    def close(self) -> None:
        self._outbox.close(0)
        self._inbox.close()
        self._context.destroy(linger=0)
        self._far.destroy(linger=0)
        for end in self._wake:
            os.close(end)
