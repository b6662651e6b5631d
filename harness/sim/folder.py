"""What a simulated run leaves behind, as a run folder, and its judgement by the very checker."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from checker.inprocess import check_run
from checker.verdict import RunResult
from harness.appender import explain
from harness.brokers import Exit
from harness.history import LogRun, Op
from harness.rundir import RunDir, RunInfo
from nemesis.schedule import Schedule
from node.errors import StorageError
from node.trace import TraceEvent

_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True)
class Left:
    """Everything that a run leaves behind; `words` are the last words of nodes that ended."""

    info: RunInfo
    schedule: Schedule
    ops: list[Op]
    trace: list[TraceEvent]
    logs: dict[str, list[LogRun]]
    faults: list[dict[str, Any]]
    exits: list[Exit]
    words: dict[str, list[str]]
    messages: list[dict[str, Any]]


def check(left: Left, keep: Path | None) -> RunResult:
    """Judge what a run left behind; with `keep`, leave it there for others to judge again."""
    if keep is not None:
        write(left, keep)
        return check_run(keep, write=True)
    with tempfile.TemporaryDirectory(prefix="floodmark-") as path:
        write(left, Path(path))
        return check_run(Path(path))


def write(left: Left, path: Path) -> None:
    """Write a run folder (docs/file-formats.md). Raises StorageError when the disk refuses."""
    into = RunDir(path)
    try:
        for part in ("trace", "output", "logs"):
            (path / part).mkdir(parents=True, exist_ok=True)
        into.write_info(left.info)
        into.write_schedule(left.schedule)
        _lines(path / "history.jsonl", left.ops)
        _lines(path / "faults.jsonl", left.faults)
        _lines(path / "exits.jsonl", left.exits)
        _lines(path / "messages.jsonl", left.messages)
        by_node: dict[str, list[TraceEvent]] = {
            node: [] for node in (*left.info.brokers, *left.info.voters)
        }
        for event in left.trace:
            by_node[event["node"]].append(event)
        for node, events in by_node.items():
            _lines(path / "trace" / f"{node}.jsonl", events)
        for node, runs in left.logs.items():
            _lines(path / "logs" / f"{node}.jsonl", runs)
        for node, words in left.words.items():
            (path / "output" / f"{node}.txt").write_text("\n".join(words) + "\n")
    except OSError as error:
        raise StorageError(explain(path, error)) from None


def _lines(path: Path, lines: Iterable[object]) -> None:
    path.write_bytes(_encoder.encode_lines(lines))
