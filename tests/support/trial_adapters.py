"""Adapters for `trial_node.py`: a log that only its first node has, and all that can be wrong."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from floodmark import Adapter, LogSlice, Node, Promise, Record, Roles, Setting
from node.formats.errors import UsageError

ENOUGH = 20
LONGEST_LINE = 1 << 20
"""An answer of 500 records is longer than the 64 KiB that asyncio reads as one line."""
NODE = Path(__file__).with_name("trial_node.py")


class Trial(Adapter):
    """One node keeps the log; the others only run."""

    summary = "a log in a file of one node"
    settings = (
        Setting("broken", "", "what raises or misbehaves"),
        Setting("speed", "fast", "nothing at all", ("fast", "slow")),
    )
    listens = ("client",)
    failover_ms = 600
    unsynced = ("*.log",)
    clock_by_libc = True
    stop_codes = (0,)

    @property
    def broken(self) -> str:
        return self.setting["broken"]

    def may_fail(self, method: str) -> None:
        if self.broken == method:
            raise KeyError(f"{method} is broken")

    def version(self) -> str:
        self.may_fail("version")
        return "1.0"

    def command(self, me: Node, others: Sequence[Node]) -> list[str]:
        self.may_fail("command")
        if self.broken == "exits":
            return ["sh", "-c", "echo one; echo cannot open the moon >&2; exit 3"]
        python = "no-such-binary" if self.broken == "no binary" else sys.executable
        port = str(me.listens["client"])
        return [python, "-I", "-S", str(NODE), str(me.folder), me.host, port]

    async def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        self.may_fail("create")
        connection = await self.open(nodes)
        await self.ask(connection, {"from": 0, "of": partition})
        await self.close(connection)

    async def connect(self, client: str, nodes: Sequence[Node]) -> Any:
        self.may_fail("connect")
        return await self.open(nodes)

    async def open(self, nodes: Sequence[Node]) -> Any:
        first = min(nodes, key=lambda node: node.name)
        return await asyncio.open_connection(first.host, first.dialed["client"], limit=LONGEST_LINE)

    async def close(self, connection: Any) -> None:
        connection[1].close()

    async def send(self, connection: Any, record: Record) -> int:
        self.may_fail("send")
        if self.broken == "offset":
            return -7
        asked = {"append": record.payload.hex(), "to": record.partition}
        return int((await self.ask(connection, asked))["offset"])

    async def read(
        self, connection: Any, partition: str, offset: int, timeout_s: float
    ) -> LogSlice:
        self.may_fail("read")
        found = (await self.ask(connection, {"from": offset, "of": partition}))["records"]
        return LogSlice([(offset + n, bytes.fromhex(text)) for n, text in enumerate(found)])

    async def ask(self, connection: Any, asked: Mapping[str, Any]) -> Any:
        reader, writer = connection
        writer.write(json.dumps(asked).encode() + b"\n")
        return json.loads(await reader.readline())

    def probe(self, me: Node) -> Mapping[str, Roles]:
        self.may_fail("probe")
        if self.broken == "probe lies":
            return {"log-0": Roles(1, ("n9", 7), "nonsense"), "log-77": Roles()}  # type: ignore[arg-type]
        if self.broken == "probe hangs":
            threading.Event().wait(3600)
        if me.name != "n1":
            return {}
        # A new term when there are some records: faults can wait for that.
        log = me.folder / "log-0.log"
        records = log.read_bytes().count(b"\n") if log.exists() else 0
        return {"log-0": Roles(2 if records >= ENOUGH else 1, ("n1",), ("n1",))}

    def dump(self, me: Node, partition: str) -> Iterator[tuple[int, bytes]] | None:
        self.may_fail("dump")
        if self.broken == "dump hangs":
            threading.Event().wait(3600)
        file = me.folder / f"{partition}.log"
        if not file.exists() or self.broken == "dump denies":
            return None
        return ((n, bytes.fromhex(line)) for n, line in enumerate(file.read_text().splitlines()))

    def promise(self) -> Promise:
        self.may_fail("promise")
        return Promise(words="nothing is ever lost", source="a test")


class SurvivesDamage(Trial):
    """Its vendor promises that one disk may lose anything."""

    damaged_disks = 1


class WithVoter(Trial):
    """A node beside the brokers runs first and last, and what is kept open is closed."""

    voters = 1

    def command(self, me: Node, others: Sequence[Node]) -> list[str]:
        (me.folder / "others").write_text(" ".join(sorted(node.name for node in others)))
        return super().command(me, others)

    async def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        file = nodes[0].folder / "open"
        file.touch()
        self.resources.callback(file.unlink)
        await super().create(nodes, partition, copies)


class NeedsBinary(Trial):
    """Its server is nowhere."""

    binary = "no-such-logd"
    needs = "pip install 'no-such[log]'"

    def version(self) -> str:
        return Adapter.version(self)


class OldTrial(Trial):
    """Its server is too old."""

    def version(self) -> str:
        raise UsageError("trial 0.9 is too old: 1.0 or newer is needed")


class SafeTrial(Trial):
    """One that declares a setting with which nothing is lost."""

    settings = (
        *Trial.settings,
        Setting("sync", "never", "when the node syncs", ("never", "always"), "always"),
    )
