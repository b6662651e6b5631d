"""The files of a simulated run, and the verdict of the same checker that judges real runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from checker.engine.local import check_files, check_run
from checker.formats.verdict import RunResult
from harness.formats.history import LogRun, Op
from harness.formats.process_exits import Exit
from harness.formats.run_info import RunInfo
from harness.runs.run_folder import RunDir
from nemesis.formats import message_log
from nemesis.formats.fault_log import FaultLine
from nemesis.formats.message_log import MessageLine
from nemesis.formats.schedule import Schedule
from node.formats.errors import StorageError
from node.formats.files import cannot_write
from node.formats.trace import TraceEvent

_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True)
class RunFiles:
    """Everything that a run records. `output` has what each node printed when it ended."""

    info: RunInfo
    schedule: Schedule
    ops: list[Op]
    trace: list[TraceEvent]
    logs: dict[str, list[LogRun]]
    faults: list[FaultLine]
    exits: list[Exit]
    output: dict[str, list[str]]
    messages: list[MessageLine]


def check(run: RunFiles, keep: Path | None) -> RunResult:
    """Judge a run. With `keep` its files are written to that folder, else they stay in memory."""
    made = files(run)
    if keep is None:
        return check_files(made)
    write(run, made, keep)
    return check_run(keep, write=True)


def files(run: RunFiles) -> dict[str, bytes]:
    """The files of the run folder that are judged, by name (docs/file-formats.md)."""
    lines = _encoder.encode_lines
    by_node: dict[str, list[TraceEvent]] = {
        node: [] for node in (*run.info.brokers, *run.info.voters)
    }
    for event in run.trace:
        by_node[event["node"]].append(event)
    return {
        "run.json": _encoder.encode(run.info),
        "schedule.json": _encoder.encode(run.schedule),
        "history.jsonl": lines(run.ops),
        "faults.jsonl": lines(run.faults),
        "exits.jsonl": lines(run.exits),
        **{f"trace/{node}.jsonl": lines(events) for node, events in by_node.items()},
        **{f"logs/{node}.jsonl": lines(runs) for node, runs in run.logs.items()},
    }


def write(run: RunFiles, made: Mapping[str, bytes], path: Path) -> None:
    """Write a run folder with these files. Raises StorageError when that fails."""
    into = RunDir(path)
    try:
        for part in ("trace", "output", "logs"):
            (path / part).mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (path / name).write_bytes(text)
        into.write_info(run.info)
        into.write_schedule(run.schedule)
        (path / message_log.FILE).write_bytes(_encoder.encode_lines(run.messages))
        for node, output in run.output.items():
            (path / "output" / f"{node}.txt").write_text("\n".join(output) + "\n")
    except OSError as error:
        raise StorageError(cannot_write(path, error)) from None
