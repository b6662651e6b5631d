"""What a simulated run leaves behind, as a run folder, and its judgement by the very checker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from checker.engine.local import check_files, check_run
from checker.formats.verdict import RunResult
from harness.formats.exits import Exit
from harness.formats.history import LogRun, Op
from harness.formats.run_info import RunInfo
from harness.runs.run_folder import RunDir
from nemesis.formats.fault_log import FaultLine
from nemesis.formats.schedule import Schedule
from node.formats.errors import StorageError
from node.formats.files import cannot_write
from node.formats.trace import TraceEvent

_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True)
class Left:
    """Everything that a run leaves behind; `words` are the last words of nodes that ended."""

    info: RunInfo
    schedule: Schedule
    ops: list[Op]
    trace: list[TraceEvent]
    logs: dict[str, list[LogRun]]
    faults: list[FaultLine]
    exits: list[Exit]
    words: dict[str, list[str]]
    messages: list[dict[str, Any]]


def check(left: Left, keep: Path | None) -> RunResult:
    """Judge what a run left behind; with `keep`, leave it there for others to judge again.

    Without, the very same files are judged, but stay in memory.
    """
    made = files(left)
    if keep is None:
        return check_files(made)
    write(left, made, keep)
    return check_run(keep, write=True)


def files(left: Left) -> dict[str, bytes]:
    """The files of the run folder that are judged, by name (docs/file-formats.md)."""
    lines = _encoder.encode_lines
    by_node: dict[str, list[TraceEvent]] = {
        node: [] for node in (*left.info.brokers, *left.info.voters)
    }
    for event in left.trace:
        by_node[event["node"]].append(event)
    return {
        "run.json": _encoder.encode(left.info),
        "schedule.json": _encoder.encode(left.schedule),
        "history.jsonl": lines(left.ops),
        "faults.jsonl": lines(left.faults),
        "exits.jsonl": lines(left.exits),
        **{f"trace/{node}.jsonl": lines(events) for node, events in by_node.items()},
        **{f"logs/{node}.jsonl": lines(runs) for node, runs in left.logs.items()},
    }


def write(left: Left, made: Mapping[str, bytes], path: Path) -> None:
    """Write a run folder with these files. Raises StorageError when the disk refuses."""
    into = RunDir(path)
    try:
        for part in ("trace", "output", "logs"):
            (path / part).mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (path / name).write_bytes(text)
        into.write_info(left.info)
        into.write_schedule(left.schedule)
        (path / "messages.jsonl").write_bytes(_encoder.encode_lines(left.messages))
        for node, words in left.words.items():
            (path / "output" / f"{node}.txt").write_text("\n".join(words) + "\n")
    except OSError as error:
        raise StorageError(cannot_write(path, error)) from None
