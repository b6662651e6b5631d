"""`story.json`: the story of the worst finding of a run, written beside its results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from checker.formats.verdict import Anomaly, RunResult, Story, Verdict
from checker.output.timeline import read_of, tell
from node.formats.event_text import Event, parse

STORY: Final = "story.json"


def write_story(folder: Path, result: RunResult) -> Path | None:
    """Tell the story of a judged run; None when no finding has a place in a log, or there is
    nothing to tell. Raises OSError if it cannot be written."""
    finding = _worst(result)
    if finding is None:
        return None
    sentences = tell(
        _events(folder, finding.partition),
        _lines(folder / "faults.jsonl", ()),
        partition=finding.partition,
        offset=finding.offset,
        read_us=read_of(finding),
    )
    if not sentences:
        return None
    story = Story(
        about=finding.name,
        property=finding.property,
        partition=finding.partition,
        offset=finding.offset,
        sentences=tuple(sentences),
    )
    target = folder / STORY
    target.write_bytes(msgspec.json.format(msgspec.json.encode(story), indent=1) + b"\n")
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
        for line in _lines(file, needles):
            with contextlib.suppress(msgspec.ValidationError):
                yield parse(line)


def _lines(file: Path, needles: tuple[bytes, ...]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file's lines that hold one of `needles`, all when there are none."""
    try:
        with file.open("rb") as lines:
            for line in lines:
                if needles and not any(needle in line for needle in needles):
                    continue
                try:
                    found = msgspec.json.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue
                if isinstance(found, dict) and isinstance(found.get("t_us"), int):
                    yield found
    except OSError:
        return
