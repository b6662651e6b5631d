"""The replicated log of `harness.bench.sketch_node` as a system that `bench peers` can load."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

import zmq
import zmq.asyncio

from harness.bench import sketch_node
from harness.systems.adapter import Adapter, LogSlice, Node, Promise, Record

_PATIENCE_S: Final = 5.0


class Sketch(Adapter):
    """Of three nodes the first leads; no fault is possible."""

    summary = "a few lines on ZeroMQ and LMDB, to measure beside"
    faults = ()
    contiguous = False

    def command(self, me: Node, others: Sequence[Node]) -> list[str]:
        leads = me.name < min(other.name for other in others)
        followers = [other.dial("peer") for other in others] if leads else []
        own = [str(me.folder), me.listen("client"), me.listen("peer")]
        return [sys.executable, sketch_node.__file__, *own, *followers]

    async def connect(self, client: str, nodes: Sequence[Node]) -> zmq.asyncio.Socket:
        socket = zmq.asyncio.Context.instance().socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(f"tcp://{min(nodes, key=lambda node: node.name).dial('client')}")
        return socket

    async def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        socket = await self.connect("", nodes)
        try:
            await self._ask(socket, sketch_node.READ, bytes(8))
        finally:
            socket.close()

    async def send(self, connection: zmq.asyncio.Socket, record: Record) -> int:
        body = record.partition.encode() + b"\0" + record.payload
        (offset,) = await self._ask(connection, sketch_node.APPEND, body)
        return int.from_bytes(offset, "big")

    async def read(
        self, connection: zmq.asyncio.Socket, partition: str, offset: int, timeout_s: float
    ) -> LogSlice:
        _, *found = await self._ask(connection, sketch_node.READ, offset.to_bytes(8, "big"))
        pairs = enumerate((record.split(b"\0", 1) for record in found), offset)
        return LogSlice([(at, body) for at, (name, body) in pairs if name.decode() == partition])

    def promise(self) -> Promise:
        return Promise(
            contiguous_offsets=False,
            words="Nothing survives the end of a process.",
            source="harness/bench/sketch_node.py",
        )

    async def _ask(self, socket: zmq.asyncio.Socket, what: bytes, body: bytes) -> list[bytes]:
        await socket.send_multipart([what, body])
        answer: list[bytes] = await asyncio.wait_for(socket.recv_multipart(), _PATIENCE_S)
        return answer
