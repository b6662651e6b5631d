"""Slow definitions of the evidence that each property needs, word by word after docs/checks.md.

The facts are those of a `Story`. Missing evidence is reported by need and by property."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.formats.history import LogRun
from tests.support.checker.done import joined
from tests.support.checker.story import Story

LOST = "no-lost-acknowledged-write"
AGREEMENT = "committed-prefix-agreement"
OFFSETS = "offsets-and-order"
READS = "reads-below-hw"
LOG = "log-and-metadata"
LIVENESS = "liveness"

NEEDED_BY = {
    "logs": (LOST, AGREEMENT, OFFSETS, LOG, LIVENESS),
    "records": (LOST, OFFSETS),
    "contents": (AGREEMENT,),
    "producers": (LOG,),
    "traces": (LOG,),
    "watermarks": (AGREEMENT, READS),
    "deletions": (LOG,),
}


def unknown_properties(s: Story) -> set[str]:
    """Return the properties that lack what they need, in any partition."""
    return {
        name
        for partition in s.run["partitions"]
        for need in missing(s, partition)
        for name in NEEDED_BY[need]
    }


def missing(s: Story, partition: str) -> set[str]:
    """Return the needs of a partition of which something was promised and is not there."""
    found = set()
    if logs_missing(s, partition):
        found.add("logs")
    batches = [b for b in lines_of(s, partition) if b.count > 0]
    short = any(not listed(s, partition, batch) for batch in batches)
    if short:
        found.add("records")
    bare = [not batch.hash for batch in batches]
    if any(bare) and (short or not all(bare)):
        found.add("contents")
    named = any(b.produced for b in batches) and s.run["promise"].get("idempotent")
    if named and any(b.records and not b.produced for b in batches):
        found.add("producers")
    if traces_missing(s, partition):
        found.add("traces")
    if watermarks_missing(s, partition):
        found.add("watermarks")
        if s.run["promise"].get("retention_records"):
            found.add("deletions")
    return found


def lines_of(s: Story, partition: str) -> list[LogRun]:
    return [line for lines in s.logs.values() for line in lines if line.partition == partition]


def finished(s: Story, partition: str) -> set[str]:
    """Return the nodes with a finished log of a partition."""
    heads = {line.node for line in lines_of(s, partition) if line.count == 0}
    return heads - s.unfinished


def logs_missing(s: Story, partition: str) -> bool:
    have = finished(s, partition)
    expected = "logs" in s.run["capabilities"] or bool(have)
    return expected and not set(s.run["partitions"][partition]) <= have


def listed(s: Story, partition: str, batch: LogRun) -> bool:
    """Return whether a batch lists its records; an empty list does if none of them is known."""
    count = sum(run.count for run in batch.records)
    inside = range(batch.offset, batch.offset + batch.count)
    return count == batch.count or (count == 0 and not known_offsets(s, partition) & {*inside})


def known_offsets(s: Story, partition: str) -> set[int]:
    """Return the offsets at which an acknowledgement, a read or a log has a record."""
    ops = joined(s.history)
    found = {offset for op in ops for offset, _ in op.polled(partition)}
    polled = {v for op in ops if op.outcome == "ok" for p in s.partitions for _, v in op.polled(p)}
    for op in ops:
        sent = {v for p in s.partitions for v in op.values(p)}
        if op.outcome == "ok" or (op.outcome == "info" and sent & polled):
            for send in op.sent(partition):
                if send.offset >= 0:
                    found |= {*range(send.offset, send.offset + send.count)}
    for line in lines_of(s, partition):
        found |= {run.offset + k for run in line.records for k in range(run.count)}
    return found


def traces_missing(s: Story, partition: str) -> bool:
    due = {*s.run["partitions"][partition], *s.run["voters"]}
    return "trace" in s.run["capabilities"] and not due <= s.traces.keys()


def watermarks_missing(s: Story, partition: str) -> bool:
    """Return whether a replica stated a HW, or records were read, and no HW was traced, or none as
    high as an answer of the replica, or of any if the answer names none."""
    if "hw" not in s.run["capabilities"]:
        return False
    highest = {
        node: max(hws)
        for node, events in s.traces.items()
        if (hws := [e["hw"] for e in events if is_of(e, "hw", partition)])
    }
    reads = [
        (op, read) for op in joined(s.history) for read in op.reads if read.partition == partition
    ]
    answers = [(read.node, read.hw) for op, read in reads if op.outcome == "ok" and read.hw > 0]
    replicas = {*s.run["partitions"][partition]}
    stated = {line.node for line in lines_of(s, partition) if line.count == 0 and line.hw > 0}
    stated |= {node for node, _ in answers}
    silent = (stated - highest.keys()) & replicas
    below = any(hw > highest[node] for node, hw in answers if node in highest.keys() & replicas)
    if highest:
        below |= any(hw > max(highest.values()) for node, hw in answers if not node)
    unheard = not highest and any(read.records for _, read in reads)
    return traces_missing(s, partition) or bool(silent) or below or unheard


def is_of(event: Mapping[str, Any], name: str, partition: str) -> bool:
    return event["event"] == name and event.get("partition") == partition
