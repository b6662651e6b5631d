"""Evidence of a real run that lost its tail before it was sealed again: never a valid verdict."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checker.engine.local import check_run
from checker.formats.verdict import Verdict
from harness.formats.seal import seal_run
from tests.support.checker.story import NODES, Story
from tests.support.stage_folder import sound

Lines = list[dict[str, Any]]


def stopped() -> Story:
    """Return a real run whose nodes were stopped at its end; each says so in its trace."""
    s = sound()
    s.run |= {"world": "real", "capabilities": ["trace", "logs", "epochs", "hw"]}
    end_us = s.now_ms * 1000 + 5_000
    s.run["phases"] |= {"final_us": end_us - 9_000, "end_us": end_us}
    for node in (*NODES, "v1"):
        if node != "v1":
            s.hw(node, hw=12, ms=0)
            s.event(node, "stopped", None)
        s.exit(node, code=0, expected=True, incarnation=1, by="stop")
        s.exits[-1]["t_us"] = end_us - 1_000
    return s


def lines_of(file: Path) -> Lines:
    return [json.loads(line) for line in file.read_text().splitlines()]


def without(what: Callable[[dict[str, Any]], bool]) -> Callable[[Lines], Lines]:
    return lambda lines: [line for line in lines if not what(line)]


def higher(lines: Lines) -> Lines:
    """Let each answer state a high watermark that no trace has."""
    for line in lines:
        for read in line.get("reads", ()):
            read |= {"hw": 13, "node": "n1"}
    return lines


def judged(folder: Path) -> tuple[Verdict, str]:
    seal_run(folder)
    result = check_run(folder)
    return result.verdict, result.sentence


def test_a_run_that_was_stopped_is_valid(tmp_path: Path) -> None:
    verdict, sentence = judged(stopped().write(tmp_path))
    assert verdict is Verdict.VALID, sentence


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        (
            "trace/n2.jsonl",
            without(lambda line: line["event"] == "stopped"),
            "the trace of n2 ends before its process, which was stopped",
        ),
        (
            "exits.jsonl",
            without(lambda line: line["node"] == "n3"),
            "exits.jsonl does not say how incarnation 1 of n3 ended",
        ),
        (
            "history.jsonl",
            higher,
            "the trace of n1 has no high watermark of log-0 above 12, though an answer of it "
            "states 13",
        ),
    ],
)
def test_a_tail_that_is_missing_is_named(
    tmp_path: Path, file: str, change: Callable[[Lines], Lines], said: str
) -> None:
    folder = stopped().write(tmp_path)
    lines = change(lines_of(folder / file))
    (folder / file).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    verdict, sentence = judged(folder)
    assert verdict is Verdict.UNKNOWN, sentence
    assert said in sentence
