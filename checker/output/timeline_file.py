"""`timeline.json`: the story of the worst finding of a run, written beside its results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from checker.formats.timeline import FILE, Timeline
from checker.formats.verdict import Anomaly, RunResult, Verdict
from checker.ingest.lines import Problems, readable_lines
from checker.ingest.read_head import read_meta
from checker.output.timeline import read_of, tell
from nemesis.formats.fault_log import FaultLine
from node.formats.event_text import Event, parse


def write_timeline(folder: Path, result: RunResult) -> Path | None:
    """Tell the story of a judged run; None when no finding has a place in a log, or there is
    nothing to tell. Raises OSError if it cannot be written."""
    finding = _worst(result)
    if finding is None:
        return None
    sentences = tell(
        _events(folder, finding.partition),
        readable_lines(folder / "faults.jsonl", FaultLine),
        partition=finding.partition,
        offset=finding.offset,
        read_us=read_of(finding),
    )
    if not sentences:
        return None
    made = Timeline(
        about=finding.name,
        property=finding.property,
        partition=finding.partition,
        offset=finding.offset,
        sentences=tuple(sentences),
    )
    target = folder / FILE
    target.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
    return target


def _worst(result: RunResult) -> Anomaly | None:
    """The first finding that broke the run and names an offset; they come in order of weight."""
    for found in result.anomalies:
        if found.verdict is Verdict.INVALID and found.partition and found.offset >= 0:
            return found
    return None


def _events(folder: Path, partition: str) -> Iterator[Event]:
    """Trace events of a partition and starts of processes; a damaged line is passed over, and so
    are traces for which the system does not vouch."""
    if read_meta(folder, Problems()).is_undeclared("trace"):
        return
    needles = (partition.encode(), b'"started"')
    for file in sorted((folder / "trace").glob("*.jsonl")):
        for line in readable_lines(file, dict[str, Any], needles):
            with contextlib.suppress(msgspec.ValidationError):
                yield parse(line)
