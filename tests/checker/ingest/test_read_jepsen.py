"""Jepsen's histories read many lines at once and form by form: equal tables, facts, problems."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checker.evidence.facts import HistoryParts, Polls, Resets, Sends
from checker.evidence.group import groups_of
from checker.evidence.run_meta import RunMeta
from checker.ingest import edn as edn_forms
from checker.ingest import read_history, read_jepsen
from checker.ingest.read_tables import HISTORY_TABLES
from checker.ingest.source import Ingested, Source
from harness.formats.history import OpKind
from node.formats.json_input import JsonReader, Unreadable
from tests.support.checker.agreed import budget
from tests.support.checker.history_forms import edn

KEYS = ["1", "2", "x-07", "k"]
ERRORS = [None, "timeout", ["after", 5], 1.5, {"1": 2}, "e" * 70, f"{'e' * 50} 123", True]


def polled(chance: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key in chance.sample(KEYS, chance.randint(0, 3)):
        at, value = chance.randint(0, 12), chance.randint(0, 5)
        rows = []
        for _ in range(chance.randint(0, 4)):
            rows.append([at, chance.choice([value, value, value, None])])
            at, value = at + chance.choice([1, 1, 2]), value + chance.choice([1, 1, 5])
        made[key] = rows
    return made


def answer(chance: random.Random, asked: Any) -> Any:
    """Return the value of an operation that was invoked with `asked` and ended ok."""
    return [
        [*step[:2], [chance.choice([None, chance.randint(0, 99)]), step[2]]]
        if step[0] == "send"
        else ["poll", polled(chance)]
        for step in asked
    ]


def body(chance: random.Random, f: str, kind: str) -> Any:
    """Return the body of an operation of this kind."""
    if f in ("crash", "debug-topic-partitions"):
        return chance.choice([None, KEYS])
    if f in ("assign", "subscribe"):
        return chance.sample(KEYS, chance.randint(0, 3))
    steps: list[Any] = []
    for _ in range(chance.randint(0, 2) if f == "txn" else 1):
        if f == "send" or (f == "txn" and chance.random() < 0.5):
            sent = chance.randint(0, 2_000)
            landed = [chance.choice([None, chance.randint(0, 99)]), sent]
            steps.append(["send", chance.choice(KEYS), landed if kind == "ok" else sent])
        else:
            steps.append(["poll", polled(chance)] if kind == "ok" else ["poll"])
    return steps


def lines(chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Return a history of three clients and a nemesis, in which nothing is wrong."""
    begun: dict[int, tuple[str, Any]] = {}
    odd = chance.random() < 0.3
    made = []
    kinds = ["poll", *get_args(OpKind)]
    for nth in range(count):
        process = chance.randint(0, 3)
        common = {"index": nth, "time": nth * 1_001, "process": process}
        if process == 3:
            made.append(common | {"process": "nemesis", "type": "info", "f": "cut", "value": [nth]})
            continue
        f, asked = begun.pop(process, ("", None))
        kind = chance.choice(["ok", "ok", "ok", "info", "fail"]) if f else "invoke"
        f = f or chance.choice(kinds)
        value = body(chance, f, kind)
        if kind == "invoke":
            begun[process] = f, value
        elif f in ("send", "poll", "txn") and not odd:
            value = answer(chance, asked) if kind == "ok" else asked
        op = common | {"type": kind, "f": f, "value": value}
        if kind in ("info", "fail"):
            op["error"] = chance.choice(ERRORS)
        if f in ("assign", "subscribe") and chance.random() < 0.7:
            op["seek-to-beginning?"] = True
        if f == "poll" and chance.random() < 0.2:
            op["rebalance-log"] = [{"keys": chance.sample(KEYS, 1)}]
        made.append(op)
    return made


def rows_by_table(into: Ingested) -> dict[str, list[Any]]:
    return {
        name: sorted(into.tables[name].to_pylist(), key=str)
        for name in HISTORY_TABLES
        if name in into.tables
    }


def facts(into: Ingested) -> list[Any]:
    """Return what the checks get, in one order however it was read."""
    return [
        (group.partition, kind, [list(map(str, getattr(group.of(kind), n))) for n in kind.columns])
        for group in groups_of(into.facts)
        for kind in (Sends, Polls, Resets, HistoryParts)
    ]


def both(file: Path, form: str, patch: pytest.MonkeyPatch, part: int) -> tuple[Any, Any]:
    """Return the results of reading a file as usual, in parts of so many operations, and of reading
    one line after another, form by form."""

    def refused(*_: Any) -> Any:
        raise Unreadable("not at once")

    found = []
    for alone in (False, True):
        with patch.context() as change:
            if alone:
                change.setattr(JsonReader, "decode_lines", refused)
                change.setattr(edn_forms, "_template", lambda _: None)
            else:
                change.setattr(read_history, "JOINED_AT_A_TIME", part)
            into = Ingested(RunMeta(source=form))
            read_jepsen.read_history(Source(0, file.parent, "history", file, form=form), into)
            found.append((rows_by_table(into), facts(into), into.problems.sentences()))
    return found[0], found[1]


@budget(25)
@given(
    st.randoms(use_true_random=False),
    st.integers(1, 60),
    st.sampled_from(["edn", "jepsen"]),
    st.sampled_from([1, 7, 1 << 20]),
    st.booleans(),
)
def test_any_history(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chance: random.Random,
    count: int,
    form: str,
    part: int,
    damaged: bool,
) -> None:
    write = edn if form == "edn" else json.dumps
    told = [json.loads(json.dumps(line)) for line in lines(chance, count)]
    text = bytearray("".join(f"{write(line)}\n" for line in told).encode())
    for _ in range(chance.randint(1, 2) if damaged else 0):
        at = chance.randrange(len(text))
        piece = chance.choice([b"0", b"-", b"5", b".", b"", b"\n", b"{", b"]", b"\xff", b";"])
        text[at : at + chance.choice([0, 1, 1, 30])] = piece
    file = tmp_path / "history"
    file.write_bytes(text)
    at_once, alone = both(file, form, monkeypatch, part)
    assert at_once == alone


@pytest.mark.parametrize(
    ("value", "records"),
    [
        ([["poll", {"1": [[0, 0], [1, 1], [2, 2]], "2": [[4, 4]]}], ["poll", {}]], [3, 1]),
        ([["poll", {"1": [[0, 0], [1, 9]], "2": []}], ["poll", {"3": [[7, 0]]}]], [2, 0, 1]),
        ([["poll", {"1": [[0, None], [1, 0], [2, 1]]}]], [3]),
    ],
)
def test_every_record_of_a_poll_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: Any, records: list[int]
) -> None:
    common = {"process": 1, "f": "txn"}
    asked = common | {"type": "invoke", "time": 5, "value": [["poll"]]}
    file = tmp_path / "history"
    answered = common | {"type": "ok", "time": 9, "value": value}
    file.write_text(f"{json.dumps(asked)}\n{json.dumps(answered)}\n")
    at_once, alone = both(file, "jepsen", monkeypatch, 1 << 20)
    assert at_once == alone
    read = at_once[0]["reads"]
    counts = [sum(r["count"] for r in read if r["seq"] == seq) for seq in range(len(records))]
    assert counts == records


def test_what_is_wrong_with_an_operation_that_never_ends_is_said_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [("invoke", 1), ("invoke", 2), ("ok", 1)]
    joins = [{"type": kind, "f": "join", "process": process, "time": 5} for kind, process in lines]
    file = tmp_path / "history"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in joins))
    at_once, alone = both(file, "jepsen", monkeypatch, 1)
    assert at_once == alone
    assert len(alone[2]) == 2


ODD_LINES = Path(__file__).with_name("odd_jepsen_lines.txt").read_text().splitlines()


@pytest.mark.parametrize("wrong", ODD_LINES)
def test_a_line_that_is_not_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    begin = '{"type":"invoke","f":"poll","process":1,"time":5,"value":[["poll"]]}'
    others = [
        begin,
        '{"type":"ok","f":"poll","process":1,"time":9,"index":0,"value":[["poll",{"3":[],"4":[]}]]}',
        begin,
        wrong,
        begin,
    ]
    file = tmp_path / "history"
    file.write_text("".join(f"{line}\n" for line in others))
    at_once, alone = both(file, "jepsen", monkeypatch, 1 << 20)
    assert at_once == alone


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("{:process 1, :value [[:poll {1 [[0 1]], 2 [[3 nil]]}]]}", True),
        ("{:process 1, :value [[:poll {1 [[0 1]], 1 [[3 nil]]}]]}", True),
        ("{:process 1, :value [[:poll {01 [[0 1]]}]]}", False),
        ('{:process 1, :value [[:poll {"x1" [], "x2" []}]]}', True),
        ("{:process 1, :value [[:poll {1 [], :x []}]]}", True),
        ("{:process 1, :process 1}", False),
        ("{:process 1 :value}", False),
        ("{:process [1 2}]", False),
        ("{:process 1} {:process 2}", False),
        ("{:process 1234567890123456789}", False),
    ],
)
def test_a_line_is_plain_only_if_its_shape_says_all(line: str, plain: bool) -> None:
    """That a map has a key twice is seen when the JSON is read."""
    text = line.encode()
    assert (edn_forms._templates(text, [text]) != [None]) == plain
