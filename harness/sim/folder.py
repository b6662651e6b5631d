"""The files of a simulated run, and its verdict by the checker that judges real runs too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from checker.engine.local import check_files, check_run
from checker.formats.verdict import RunResult
from harness.formats.group_state import GROUP_STATES, GroupState
from harness.formats.history import LogRun, Op, encode_numbered
from harness.formats.process_exits import Exit
from harness.formats.run_info import RunInfo
from harness.runs.run_folder import RunDir
from nemesis.formats import message_log
from nemesis.formats.fault_log import FaultLine
from nemesis.formats.message_log import MessageLine
from nemesis.formats.schedule import Schedule
from node.formats.errors import StorageError
from node.formats.files import cannot_write, make_folder, write_whole
from node.formats.removal import remove
from node.formats.run_folder_entries import RUN_FILES, RUN_FOLDERS
from node.formats.trace import TraceEvent

_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True)
class RunFiles:
    """The contents of the files of a run. `output` has what each node printed when it ended."""

    info: RunInfo
    schedule: Schedule
    ops: list[Op]
    trace: list[TraceEvent]
    logs: dict[str, list[LogRun]]
    faults: list[FaultLine]
    exits: list[Exit]
    output: dict[str, list[str]]
    messages: list[MessageLine]
    states: list[GroupState] = field(default_factory=list)


def check(run: RunFiles, keep: Path | None) -> RunResult:
    """Judge a run. The run folder is written to `keep`; if None, files stay in memory."""
    if keep is None:
        return check_files(lines_of(run))
    write(run, keep)
    return check_run(keep, write=True)


def files(run: RunFiles) -> dict[str, bytes]:
    """Return the files that the checker reads, by name, as unnumbered lines in memory."""
    lines = _encoder.encode_lines
    return {
        name: found if isinstance(found, bytes) else lines(found)
        for name, found in lines_of(run).items()
    }


def lines_of(run: RunFiles) -> dict[str, bytes | list[Any]]:
    """Return the files of the checker as decoded lines, because decoding takes long."""
    by_node: dict[str, list[TraceEvent]] = {node: [] for node in (*run.logs, *run.info.voters)}
    for event in run.trace:
        by_node[event["node"]].append(event)
    return {
        "run.json": _encoder.encode(run.info),
        "schedule.json": run.schedule.to_json(),
        "history.jsonl": run.ops,
        "faults.jsonl": run.faults,
        "exits.jsonl": run.exits,
        **{f"trace/{node}.jsonl": events for node, events in by_node.items()},
        **{f"logs/{node}.jsonl": runs for node, runs in run.logs.items()},
        **({GROUP_STATES: run.states} if run.states else {}),
    }


def _numbered(events: Iterable[TraceEvent]) -> Iterator[TraceEvent]:
    """Yield the events of a node with their numbers in its process, as a real node writes them."""
    numbers: Counter[int] = Counter()
    for event in events:
        stamp = {name: event[name] for name in ("t_us", "node", "incarnation")}
        yield {**stamp, "seq": numbers[event["incarnation"]], **event}
        numbers[event["incarnation"]] += 1


def clear(path: Path) -> None:
    """Remove what an earlier run left in a run folder. Raises StorageError when that fails."""
    try:
        for name in sorted(RUN_FILES | RUN_FOLDERS):
            remove(path / name, path)
    except OSError as error:
        raise StorageError(cannot_write(path, error)) from None


def write(run: RunFiles, path: Path) -> None:
    """Write a run folder with its seal. Raises StorageError when that fails."""
    into = RunDir(path)
    clear(path)
    made = files(run)
    made["history.jsonl"] = encode_numbered(run.ops, 0)
    for name in (*run.info.brokers, *run.info.voters):
        own = (event for event in run.trace if event["node"] == name)
        made[f"trace/{name}.jsonl"] = _encoder.encode_lines(list(_numbered(own)))
    made[message_log.FILE] = _encoder.encode_lines(run.messages)
    for node, output in run.output.items():
        made[f"output/{node}.txt"] = ("\n".join(output) + "\n").encode()
    try:
        for part in ("trace", "output", "logs"):
            make_folder(path / part, path.parent)
        for name, text in made.items():
            write_whole(path / name, text, path.parent)
        into.write_info(run.info)
        into.write_schedule(run.schedule)
        into.seal()
    except OSError as error:
        raise StorageError(cannot_write(path, error)) from None
