"""Reading of the parts of a run folder that this judge uses: the trace and the promise."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from node.formats import json_input
from node.formats.reading import open_file
from tests.lab.outside_judge.judge import Event, OutsideJudge, judge_trace

PROTOCOL: Final = "kafka"
"""The one protocol that the model describes."""


class OutsideVerdict(NamedTuple):
    """The verdict of the outside judge on a run; `why_not` is "", or says why it did not judge."""

    why_not: str
    judge: OutsideJudge


def judge_folder(folder: Path) -> OutsideVerdict:
    """Judge the run in `folder`. Half a line at the end of a trace, which a killed process leaves,
    is ignored; with any other line that cannot be read, the run is not judged. Raises OSError or
    Unreadable if `folder` holds no run."""
    run = json_input.decode(json_input.read_bytes(folder / "run.json"), dict[str, Any])
    schedule = json_input.decode(json_input.read_bytes(folder / "schedule.json"), dict[str, Any])
    why_not = why_not_judged(schedule["cluster"]["protocol"], run["promise"])
    files = sorted((folder / "trace").glob("*.jsonl"))
    events = heapq.merge(*map(_lines, files), key=lambda event: int(event["t_us"]))
    try:
        judge = judge_trace(() if why_not else events)
    except _Damaged as error:
        why_not, judge = str(error), judge_trace(())
    if not why_not and not judge.events:
        why_not = "its trace has no event that can be read"
    return OutsideVerdict(why_not, judge)


def why_not_judged(protocol: str, promise: Mapping[str, Any]) -> str:
    """Return why the model says nothing about runs with this protocol and promise, or ""."""
    if protocol != PROTOCOL:
        return f"the model is of the protocol {PROTOCOL}, not of {protocol}"
    if promise.get("unclean_election", False):
        return "the model has no unclean election"
    if not (promise.get("committed_kept", True) and promise.get("disks_kept", True)):
        return "more brokers may lose data than MinISR allows, so the model promises nothing"
    return ""


class _Damaged(Exception):
    """An error: a line of a trace cannot be read; the message says which."""


def _lines(file: Path) -> Iterator[Event]:
    with open_file(file) as lines:
        for number, line in enumerate(lines, 1):
            if line.isspace():
                continue
            try:
                yield json_input.decode(line, dict[str, Any])
            except json_input.Unreadable as error:
                if line.endswith(b"\n"):
                    reason = str(error).rstrip(".")
                    raise _Damaged(
                        f"line {number} of its trace {file.name} cannot be read ({reason})"
                    ) from None
