"""Readers and members of Redis get only what as many replicas have as `wait` says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harness.systems.redis import PAYLOAD, Redis


class Server:
    """A server with a log; `copies` of its replicas have all of it."""

    def __init__(self, *log: bytes, copies: int = 2) -> None:
        self.log = [(b"0-%d" % n, {PAYLOAD: each}) for n, each in enumerate(log, 1)]
        self.copies = copies

    async def xrange(self, *_: Any, **__: Any) -> Any:
        return self.log

    async def xautoclaim(self, *_: Any) -> Any:
        return b"0-0", []

    async def xreadgroup(self, *_: Any, count: int) -> Any:  # WAIT forgets a blocked client.
        return [[b"log-0", self.log]]

    async def wait(self, *_: Any) -> int:
        return self.copies


def adapter(wait: int) -> Redis:
    return Redis({"wait": str(wait), "fsync": "everysec", "members": "1"})


@pytest.mark.parametrize(("wait", "seen"), [(0, 3), (1, 2), (2, 1)])
def test_an_entry_with_the_id_of_another_is_no_copy_of_it(wait: int, seen: int) -> None:
    logs: Any = [Server(b"a", b"b", b"c"), Server(b"a", b"b", b"x"), Server(b"a", b"y", b"c")]
    logs[2].log.pop()
    got = asyncio.run(adapter(wait).read(logs, "log-0", 0, 1.0))
    assert list(got.records) == [*enumerate([b"a", b"b", b"c"])][:seen]


def test_a_member_gets_what_the_replicas_have() -> None:
    for copies, wait in ((2, 2), (0, 0)):
        session = Server(b"a", copies=copies), "m1", {"log-0": "0-0"}
        polled = asyncio.run(adapter(wait).poll(session, 10, 1.0))
        assert [each.payload for each in polled.deliveries] == [b"a"]
    session = Server(b"a", copies=1), "m1", {"log-0": "0-0"}
    with pytest.raises(RuntimeError, match="1 of 2 replicas have it"):
        asyncio.run(adapter(2).poll(session, 10, 1.0))
