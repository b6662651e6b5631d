"""Takes units of evidence out of stories.

A unit is a log of a partition, a dump, its last line, the records or hashes of its batches, a
trace, its HW events, the final reads, the last or a middle operation, the partitions that run.json
names. Nothing is contradicted by taking it away, so nothing new may count against the system; and a
verdict may not get better."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from harness.formats.history import LogRun, Op
from tests.support.checker.story import Story

_FEW_OPERATIONS = 6


class Taken(NamedTuple):
    """One unit taken out of a story. `damage`: what is left shows that it is gone, or contradicts
    itself."""

    what: str
    take: Callable[[Story], object]
    damage: bool = False


def tampered(s: Story) -> Iterator[tuple[Taken, Story]]:
    """Yield a copy of the story for each unit of evidence in it, without that unit."""
    for taken in units(s):
        made = copy.deepcopy(s)
        taken.take(made)
        yield taken, made


def units(s: Story) -> Iterator[Taken]:
    for node, lines in s.logs.items():
        if not lines:
            continue
        for partition in sorted({line.partition for line in lines}):
            yield Taken(f"log of {partition} on {node}", _log(node, partition))
            yield Taken(f"records of {partition} on {node}", _records(node, partition))
        yield Taken(f"dump of {node}", lambda t, n=node: t.logs[n].clear())  # type: ignore[misc]
        yield Taken(f"end of the dump of {node}", lambda t, n=node: t.unfinished.add(n))  # type: ignore[misc]
        yield Taken(f"hashes of {node}", _changed(node, hash="", stored_hash=""))
        if any(line.produced for line in lines):
            yield Taken(f"producers of {node}", _changed(node, produced=None))
        yield Taken(f"dump of {node} under another name", _renamed(node), damage=True)
    for node, events in s.traces.items():
        if events:
            yield Taken(f"trace of {node}", lambda t, n=node: t.traces.pop(n), damage=True)  # type: ignore[misc]
        if any(event["event"] == "hw" for event in events):
            yield Taken(f"HW events of {node}", _watermarks(node))
    if any(line.final for line in s.history):
        yield Taken("final reads", _history(lambda line: not line.final))
    few = s.ops <= _FEW_OPERATIONS
    for number in range(s.ops - 1) if few else (s.ops // 2,):
        gone = _history(lambda line, n=number: line.op != n)  # type: ignore[misc]
        yield Taken(f"operation {number}", gone, damage=True)
    due = "logs" in s.run["capabilities"]
    yield Taken("partitions of run.json", lambda t: t.run["partitions"].clear(), damage=due)


def _log(node: str, partition: str) -> Callable[[Story], object]:
    def take(s: Story) -> None:
        s.logs[node] = [line for line in s.logs[node] if line.partition != partition]

    return take


def _records(node: str, partition: str) -> Callable[[Story], object]:
    def emptied(line: LogRun) -> LogRun:
        return replace(line, records=()) if line.partition == partition else line

    def take(s: Story) -> None:
        s.logs[node] = [emptied(line) for line in s.logs[node]]

    return take


def _changed(node: str, **fields: object) -> Callable[[Story], object]:
    def take(s: Story) -> None:
        s.logs[node] = [replace(line, **fields) for line in s.logs[node]]

    return take


def _renamed(node: str) -> Callable[[Story], object]:
    def take(s: Story) -> None:
        other = next(n for n in s.logs if n != node)
        s.logs[node] = list(s.logs[other])

    return take


def _watermarks(node: str) -> Callable[[Story], object]:
    def take(s: Story) -> None:
        s.traces[node] = [event for event in s.traces[node] if event["event"] != "hw"]

    return take


def _history(keep: Callable[[Op], bool]) -> Callable[[Story], object]:
    def take(s: Story) -> None:
        s.history = [line for line in s.history if keep(line)]

    return take
