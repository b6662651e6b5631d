"""A client that is a program: what it is asked, and what its answers, and its end, mean.

A program is a few lines of Python that answer with `say`, `BODY` is the request's."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.systems.adapter import LogSlice, Node, Record, Refused
from harness.systems.external.client_program import ClientProgram, ProgramFailed
from node.formats.errors import UsageError
from tests.support.paths import ROOT
from tests.support.running_harness import ran
from tests.support.waiting import PATIENCE_S

FRAME = """
import base64, json, os, sys
def say(type, **more):
    body = {{"type": type, "in_reply_to": BODY["msg_id"], **more}}
    print(json.dumps({{"body": body}}), flush=True)
for line in sys.stdin:
    BODY = json.loads(line)["body"]
    if BODY["type"] == "init":
        say("init_ok")
        continue
    {answer}
"""
NODE = Node(name="n1", folder=Path("/"), listens={"client": 1}, dialed={"client": 7})
RECORD = Record("log-0", b"\0\xffx", 17, -1, 1.5)


class Scripted(ClientProgram):
    """The adapter whose client is the program with one way to answer."""

    needs = "install it"

    def __init__(self, answer: str) -> None:
        super().__init__({})
        self._answer = answer

    def client(self, name: str, nodes: Sequence[Node]) -> list[str]:
        program = FRAME.format(answer=self._answer)
        return [sys.executable, "-c", program, name, *(node.dial("client") for node in nodes)]


def asked(answer: str, what: str) -> Any:
    """Return what `send`, `read` or `create` returns where the program answers so."""

    async def ask() -> Any:
        adapter = Scripted(answer)
        if what == "create":
            return await adapter.create([NODE], "log-0", 3)
        connection = await adapter.connect("c1", [NODE])
        request: Coroutine[Any, Any, Any] = (
            adapter.send(connection, RECORD)
            if what == "send"
            else adapter.read(connection, "log-0", 5, 1.0)
        )
        try:
            return await request
        finally:
            await adapter.close(connection)
            assert connection._process.returncode is not None

    return asyncio.run(asyncio.wait_for(ask(), PATIENCE_S))


@pytest.mark.parametrize(
    ("answer", "what", "returned"),
    [
        ("say('send_ok', offset=5)", "send", 5),
        ("say('send_ok')", "send", None),
        ("say('send_ok', offset=len(base64.b64decode(BODY['msg'])))", "send", 3),
        ("say('send_ok', offset=BODY['id'] + BODY['acks'] + BODY['timeout_ms'])", "send", 1516),
        ("say('send_ok', offset=int(sys.argv[2].split(':')[1]))", "send", 7),
        (
            "BODY['msg_id'] -= 1; say('late'); BODY['msg_id'] += 1; say('send_ok', offset=1)",
            "send",
            1,
        ),
        ("say('poll_ok', msgs={})", "read", LogSlice([])),
        ("say('poll_ok', msgs={'log-0': [[5, 'eA==']]}, end=9)", "read", LogSlice([(5, b"x")], 9)),
        (
            "say('poll_ok', msgs={k: [[o, '']] for k, o in BODY['offsets'].items()}, node='n2')",
            "read",
            LogSlice([(5, b"")], -1, "n2"),
        ),
        ("say('create_ok', copies=BODY['copies'])", "create", None),
    ],
)
def test_an_answer_is_what_the_client_returns(answer: str, what: str, returned: Any) -> None:
    assert asked(answer, what) == returned


@pytest.mark.parametrize(
    ("answer", "what", "raised", "sentence"),
    [
        *(
            (f"say('error', code={code}, text='no')", "send", Refused, rf"^no \(code {code}\)$")
            for code in (1, 10, 11, 12, 14, 20, 21, 22, 30)
        ),
        *(
            (f"say('error', code={code})", what, ProgramFailed, rf"^error \(code {code}\)$")
            for code in (0, 13, 1000)
            for what in ("send", "read", "create")
        ),
        ("say('error', text='why')", "send", ProgramFailed, r"^why \(code 13\)$"),
        ("say('poll_ok')", "send", ProgramFailed, "answered send with 'poll_ok'"),
        ("print('hello', flush=True)", "send", ProgramFailed, "wrote b'hello.*no answer"),
        ("print('[]', flush=True)", "send", ProgramFailed, "which is no answer"),
        ("sys.exit(3)", "send", ProgramFailed, "ended, with code 3"),
        ("print('{', end=''); sys.exit(0)", "read", ProgramFailed, "ended, with code 0"),
        ("os.write(1, b'x' * (17 << 20))", "read", ProgramFailed, "line .* over 16777216 bytes"),
        ("say('poll_ok', msgs={'log-0': [[5, '?']]})", "read", ProgramFailed, "answered poll"),
        ("say('poll_ok', msgs={'log-0': [5]})", "read", ProgramFailed, "no answer"),
        ("say('send_ok', offset='5')", "send", ProgramFailed, "no answer"),
    ],
)
def test_an_error_of_the_program_says_whether_nothing_happened(
    answer: str, what: str, raised: type[Exception], sentence: str
) -> None:
    with pytest.raises(raised, match=sentence):
        asked(answer, what)


def test_a_program_that_does_not_end_is_killed() -> None:
    asked("say('send_ok')\n    sys.stdin = iter(int, 1)", "send")


def test_a_program_that_is_missing_is_named() -> None:
    class Missing(Scripted):
        def client(self, name: str, nodes: Sequence[Node]) -> list[str]:
            return ["no-such-program"]

    with pytest.raises(UsageError, match="there is no no-such-program on PATH: install it"):
        asyncio.run(Missing("").connect("c1", [NODE]))


@pytest.mark.integration
@pytest.mark.needs("node")
def test_a_client_in_javascript_finds_what_the_naive_log_loses(tmp_path: Path) -> None:
    log = ROOT / "examples" / "naive_log"
    schedule = json.loads((log / "kill-leader.json").read_text())
    schedule["workload"] |= {"clients": 2, "consumers": 1, "duration_ms": 100_000}
    before = {"what": "isolate", "on": "leader:log-0", "at_ms": 1000, "for_ms": 3000}
    schedule["faults"].insert(0, before)  # what n1 acknowledges in this second is on n1 alone
    (tmp_path / "patient.json").write_text(json.dumps(schedule))
    words = f"--played run --system {log}/any_language.py:NaiveLogByNode --schedule patient.json"
    _, result = ran(tmp_path, *words.split(), verdict="invalid")
    assert {anomaly["name"] for anomaly in result["anomalies"]} & {"lost", "vanished"}
