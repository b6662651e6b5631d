"""What keys cost is counted over sockets that really have them."""

from __future__ import annotations

import pytest
import zmq

from harness.systems.floodmark import curve_cost as curve
from harness.systems.ports import PortLease


def test_messages_with_a_batch_and_without_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve, "SERIES", 1)
    monkeypatch.setattr(curve, "ROUNDS", 2)
    monkeypatch.setattr(curve, "MESSAGES", 2)
    large, small = curve.cost_of_messages(5000)
    assert (large.body_bytes, small.body_bytes) == (5000, 0)
    assert large.plain_us > 0 < small.plain_us
    # A batch is sent once and fetched by each follower.
    large = curve.KeyCost(body_bytes=100, plain_us=40, added_us=20, from_us=18, to_us=22)
    small = curve.KeyCost(body_bytes=0, plain_us=20, added_us=5, from_us=4, to_us=6)
    assert curve.of_a_batch(large, small, 3) == 75


def test_only_one_of_the_two_pairs_has_keys() -> None:
    with PortLease(2) as lease:
        for port, keys in zip(lease.ports, (True, False), strict=True):
            pair = curve._Pair(port, keys)
            try:
                mechanism = pair._inbox._socket.get(zmq.MECHANISM)
                assert mechanism == (zmq.CURVE if keys else zmq.NULL)
            finally:
                pair.close()
