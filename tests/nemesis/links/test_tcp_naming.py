"""The name of the process that dials the TCP proxy, which comes while it is looked for."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import multiprocess
import pytest

from nemesis.links.dialers import Ends
from nemesis.links.tcp_control import ProxyConfig
from nemesis.links.tcp_proxy import TcpProxy
from tests.support.waiting import PATIENCE_S


def test_a_name_that_comes_right_after_it_was_looked_for_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def named() -> str:
        ours, theirs = multiprocess.Pipe()
        proxy = TcpProxy(ProxyConfig(doors=(), naming_s=PATIENCE_S, parent_pid=os.getpid()), theirs)
        names: list[str] = []

        def name_of(_: Ends) -> str | None:
            if not names:
                loop.call_soon(names.append, "n4")
                loop.call_soon(proxy._tell)
                return None
            return names[0]

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(proxy._dialers, "name_of", name_of)
        monkeypatch.setattr(proxy._dialers, "is_open", lambda _: True)
        ends = Ends(("127.0.0.1", 1), ("127.0.0.1", 2))
        connection: Any = SimpleNamespace(near=SimpleNamespace(ends=ends))
        try:
            return await asyncio.wait_for(proxy._name(connection), 10)
        finally:
            ours.close()
            theirs.close()

    assert asyncio.run(named()) == "n4"
