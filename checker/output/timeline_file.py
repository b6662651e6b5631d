"""`timeline.json`: the story of the worst finding of a run, written beside its results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from checker.formats.timeline import FILE, Timeline
from checker.formats.verdict import Anomaly, RunResult, Verdict
from checker.output.timeline import read_of, tell
from nemesis.formats.fault_log import FaultLine
from node.formats.event_text import Event, parse

_Form = TypeVar("_Form")


def write_timeline(folder: Path, result: RunResult) -> Path | None:
    """Tell the story of a judged run; None when no finding has a place in a log, or there is
    nothing to tell. Raises OSError if it cannot be written."""
    finding = _worst(result)
    if finding is None:
        return None
    sentences = tell(
        _events(folder, finding.partition),
        _lines(folder / "faults.jsonl", (), FaultLine),
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
    """Trace events of a partition and starts of processes; a damaged line is passed over."""
    needles = (partition.encode(), b'"started"')
    for file in sorted((folder / "trace").glob("*.jsonl")):
        for line in _lines(file, needles, dict[str, Any]):
            with contextlib.suppress(msgspec.ValidationError):
                yield parse(line)


def _lines(file: Path, needles: tuple[bytes, ...], form: type[_Form]) -> Iterator[_Form]:
    """Those lines of a file that hold one of `needles`, or all when there are none, as `form`."""
    decoder = msgspec.json.Decoder(form)
    try:
        with file.open("rb") as lines:
            for line in lines:
                if needles and not any(needle in line for needle in needles):
                    continue
                try:
                    yield decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue
    except OSError:
        return
