"""The lines of a history as any tool may write them: its fields in any order, with what need not be
said or without, and lines between them that are no client's."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from harness.formats.history import Op, Read, Send
from tests.support.checker.history_forms import as_jepsen, edn


def text_of(form: str, ops: Iterable[Op], seeks: Collection[int], rng: random.Random) -> str:
    """Return a history as a text in one of the forms "own", "json" and "edn"."""
    if form == "own":
        return "".join(f"{_own_line(op, rng)}\n" for op in ops)
    lines = [_jepsen_line(op, seeks, rng) for op in ops]
    return _edn_text(lines, rng) if form == "edn" else _json_text(lines, rng)


def _own_line(op: Op, rng: random.Random) -> str:
    """Return a line of our own form as any JSON library may write it."""
    line = msgspec.to_builtins(op)
    for kind, of in ((Send, "sends"), (Read, "reads")):
        line[of] = [_stated(kind, each, rng) for each in line.get(of, [])]
        if not line[of] and rng.random() < 0.5:
            del line[of]
    for read in line.get("reads", []):
        if "records" in read:
            read["records"] = [_run(run, rng) for run in read["records"]]
    line = _shuffled(line, rng)
    return json.dumps(
        line, separators=rng.choice([(",", ":"), (", ", ": ")]), ensure_ascii=rng.random() < 0.5
    )


def _stated(kind: type[Send | Read], fields: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a send or a read in which some fields state what they are without being stated."""
    for field in msgspec.structs.fields(kind):
        if field.name not in fields and rng.random() < 0.3:
            default = field.default
            fields[field.name] = list(default) if isinstance(default, tuple) else default
    return _shuffled(fields, rng)


def _run(run: list[int], rng: random.Random) -> list[int]:
    """Return a run of records without what it need not say."""
    if run[3] == -1 and rng.random() < 0.5:
        return run[:2] if run[2] == 1 else run[:3]
    return run


def _shuffled(fields: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    return dict(rng.sample([*fields.items()], len(fields)))


JUNK: Final = (
    "{:type :info, :process :nemesis, :f :kill, :time TIME, :value {[1 2] :ok}}",
    "{:process :nemesis, :type :info, :f :start-partition, :value #{n1 n2}, :time TIME}",
    "{:type :info :process :nemesis :f :clock :value {{:a 1} ##Inf, #{{}} ##NaN} :time TIME}",
    '{:time TIME, :f :stop, :type :info, :process :nemesis, :error [:x "a\\"b" #inst "2020"]}',
    "; a comment, at TIME",
    "#jepsen.history.Op{:process :nemesis, :type :info, :f :heal, :value nil, :time TIME}",
    "",
)
"""Lines of an EDN history that are no client's."""


def _edn_text(lines: Iterable[Mapping[str, Any]], rng: random.Random) -> str:
    """Return the text of an EDN history as Jepsen's tools may write it."""
    made, whole, tagged = [], rng.random() < 0.2, rng.random() < 0.3
    for number, line in enumerate(lines):
        if rng.random() < 0.2:
            made.append(rng.choice(JUNK).replace("TIME", str(line["time"])))
        fields = _shuffled({**line, **({"index": number} if rng.random() < 0.8 else {})}, rng)
        if line["type"] == "info" and rng.random() < 0.5:
            fields["error"] = ["timeout", {"after": 5000}]
        text = edn(fields)
        made.append(f"#jepsen.history.Op{text}" if tagged else text)
    return "\n".join(["[", *made, "]"] if whole else made) + "\n"


def _jepsen_line(op: Op, seeks: Collection[int], rng: random.Random) -> dict[str, Any]:
    """Return an operation of Jepsen with the isolation of its reads in one of its spellings."""
    (made,) = as_jepsen([op], seeks)
    if made.pop("isolation", ""):
        word = rng.choice([op.isolation, op.isolation.replace("_", "-")])
        made[rng.choice(["isolation", "isolation-level"])] = word
    return _shuffled(made, rng)


def _json_text(lines: Iterable[Mapping[str, Any]], rng: random.Random) -> str:
    """Return the text of a history of Jepsen as JSON lines, with lines that are no client's."""
    made: list[str] = []
    for number, line in enumerate(lines):
        if rng.random() < 0.1:
            nemesis = {"process": "nemesis", "type": "info", "f": "kill", "time": line["time"]}
            made.append(json.dumps(nemesis | {"value": {"[1 2]": ["n1"]}, "clock-offsets": {}}))
        made.append(json.dumps({**line, "index": number} if rng.random() < 0.5 else line))
    return "\n".join(made) + "\n"
