"""Clients of a system whose library is not for Python: a program in any language is the client.

`ClientProgram` is an `Adapter` whose `client` says which program that is. Each connection is one
process of it. The harness writes a request to its standard input and reads the answer from its
standard output, one JSON object a line, in the envelope, types and error codes of Maelstrom's
documents `protocol.md` and `workloads.md` (`send` and `poll` of its Kafka workload):

    {"src": "floodmark", "dest": "c1", "body": {"type": "send", "msg_id": 2, "key": "log-0",
     "msg": "BASE64", "id": 17, "acks": -1, "timeout_ms": 1000}}
    {"src": "c1", "dest": "floodmark", "body": {"type": "send_ok", "in_reply_to": 2, "offset": 5}}

docs/your-own-system.md has all requests. What the program prints on standard error goes to
`output/clients.txt`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.systems.adapter import UNKNOWN_END, Adapter, LogSlice, Node, Record, Refused
from harness.systems.external import launcher
from node.formats import host_tools
from node.formats.errors import UsageError
from node.formats.json_input import MOST_LINE_BYTES, JsonReader, Unreadable

DEFINITE: Final = frozenset({1, 10, 11, 12, 14, 20, 21, 22, 30})
"""The error codes that say: nothing happened, and nothing will. After any other one nobody knows
(Maelstrom, `protocol.md`, *Errors*)."""
END_S: Final = 0.5
_QUOTED: Final = 100


class ProgramFailed(Exception):
    """Raised for a program that ended, or whose answer is none."""


class _AnswerBody(msgspec.Struct, frozen=True):
    """The part of an answer that counts."""

    type: str = ""
    in_reply_to: int = -1
    offset: int | None = None
    msgs: dict[str, list[tuple[int, str]]] = {}
    end: int = UNKNOWN_END
    node: str = ""
    code: int = 13
    text: str = ""


class _AnswerLine(msgspec.Struct, frozen=True):
    """One line of the program."""

    body: _AnswerBody


_ANSWERS: Final = JsonReader(_AnswerLine)


class Conversation:
    """One process of the program, which answers one request at a time."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        """Speak to a process that has just been started, for the client `name`."""
        self._name = name
        self._process = process
        self._last = 0

    async def ask(self, type_: str, **fields: Any) -> _AnswerBody:
        """Return the answer to one request. Raises Refused for an error that is definite, and
        ProgramFailed for any other one, for a program that has ended, and for a line that is no
        answer."""
        assert self._process.stdin is not None, "it was started with a pipe"
        self._last += 1
        body = {"type": type_, "msg_id": self._last, **fields}
        request = {"src": "floodmark", "dest": self._name, "body": body}
        with contextlib.suppress(ConnectionError):
            # A program that has ended is named when its answer is read.
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")
            await self._process.stdin.drain()
        while (answer := await self._line()).in_reply_to != self._last:
            pass
        if answer.type == "error":
            error = Refused if answer.code in DEFINITE else ProgramFailed
            raise error(f"{answer.text or 'error'} (code {answer.code})")
        if answer.type != f"{type_}_ok":
            raise ProgramFailed(f"the client program answered {type_} with '{answer.type}'")
        return answer

    async def _line(self) -> _AnswerBody:
        assert self._process.stdout is not None, "it was started with a pipe"
        try:
            line = await self._process.stdout.readline()
        except ValueError:
            raise ProgramFailed(
                f"a line of the client program has over {MOST_LINE_BYTES} bytes"
            ) from None
        if not line.endswith(b"\n"):
            code = await self._process.wait()
            raise ProgramFailed(f"the client program ended, with code {code}")
        try:
            return _ANSWERS.decode(line).body
        except Unreadable as reason:
            raise ProgramFailed(
                f"the client program wrote {line[:_QUOTED]!r}, which is no answer: {reason}"
            ) from None

    async def aclose(self) -> None:
        """Let the program end: its standard input is closed, and soon after it is killed."""
        assert self._process.stdin is not None, "it was started with a pipe"
        try:
            self._process.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), END_S)
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()


class ClientProgram(Adapter):
    """A replicated log whose client is a program: `command` and `client` must be written."""

    connect_s = 15.0
    """A virtual machine has to start."""

    def client(self, name: str, nodes: Sequence[Node]) -> Sequence[str]:
        """Return the command line of a program that is the client `name`, to any of `nodes`,
        preferably the first."""
        raise NotImplementedError

    async def connect(self, client: str, nodes: Sequence[Node]) -> Conversation:
        """Start the program. Raises UsageError if there is none of that name."""
        words = [str(word) for word in self.client(client, nodes)]
        found = words[0] if Path(words[0]).is_absolute() else host_tools.program(words[0])
        if found is None:
            raise UsageError(f"there is no {words[0]} on PATH: {self.needs}")
        process = await asyncio.create_subprocess_exec(
            *(*launcher.starter(), found, *words[1:]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MOST_LINE_BYTES,
        )
        made = Conversation(client, process)
        try:
            await made.ask("init", node_id=client, node_ids=[client])
        except BaseException:
            await made.aclose()
            raise
        return made

    async def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        connection = await self.connect("creator", nodes)
        try:
            await connection.ask("create", key=partition, copies=copies)
        finally:
            await connection.aclose()

    async def send(self, connection: Conversation, record: Record) -> int | None:
        answer = await connection.ask(
            "send",
            key=record.partition,
            msg=base64.b64encode(record.payload).decode(),
            id=record.id,
            acks=record.acks,
            timeout_ms=round(record.timeout_s * 1000),
        )
        return answer.offset

    async def read(
        self, connection: Conversation, partition: str, offset: int, timeout_s: float
    ) -> LogSlice:
        """Return the records of one answer."""
        answer = await connection.ask(
            "poll", offsets={partition: offset}, timeout_ms=round(timeout_s * 1000)
        )
        records = answer.msgs.get(partition, [])
        try:
            found = [(at, base64.b64decode(text, validate=True)) for at, text in records]
        except ValueError as reason:
            raise ProgramFailed(f"the client program answered poll: {reason}") from None
        return LogSlice(found, answer.end, answer.node)
