"""A simulated run as lines of text: faults, actions of nodes, failed operations.

A line has the seconds since the storm began, node, client or fault, and what it did. Successful
operations, high watermarks and appends of followers are too many, and left out."""

from __future__ import annotations

from collections.abc import Iterator

from harness.formats.history import Op, show_value
from harness.sim.run import SimResult
from nemesis.formats.fault_log import FaultLine
from node.formats import trace
from node.formats.event_text import action, parse
from node.formats.trace import METADATA_PARTITION, TraceEvent


def run_text(result: SimResult) -> Iterator[str]:
    """Yield the lines of a run in the order of their time."""
    origin_us = result.info.phases.storm_us or result.info.phases.start_us
    lines: list[tuple[int, str, str]] = []
    for event in result.trace:
        words = _event(event)
        if words:
            lines.append((event["t_us"], event["node"], words))
    lines += [(line.t_us, "fault", _fault(line)) for line in result.faults]
    for op in result.ops:
        words = _op(op)
        if words:
            lines.append((op.t_us, op.client, words))
    lines += [(b.t_us, "VIOLATION", f"{b.invariant}: {b.sentence}") for b in result.violations]
    for t_us, who, words in sorted(lines, key=lambda line: line[0]):
        yield f"{(t_us - origin_us) / 1e6:10.6f}  {who:<9}  {words}"


def _event(event: TraceEvent) -> str:
    partition = event.get("partition", "")
    repeats = event["event"] in (trace.APPEND, trace.HW) and event["role"] != "leader"
    if partition == METADATA_PARTITION or event["event"] == trace.VOTE or repeats:
        return ""
    words = action(parse(event))
    return f"{partition}: {words}" if partition and words else words


def _fault(line: FaultLine) -> str:
    number = "final heal" if line.fault < 0 else f"{line.action} {line.what}"
    nodes = f" {', '.join(line.nodes)}" if line.nodes else ""
    links = f" on {', '.join('->'.join(link) for link in line.links)}" if line.links else ""
    return f"{number}{nodes}{links}" + (f" ({line.detail})" if line.detail else "")


def _op(op: Op) -> str:
    if op.type == "invoke" or op.f not in ("send", "poll"):
        return ""
    if op.f == "send":
        send = op.sends[0]
        what = f"sent {show_value(send.value)}"
        what += f" and {send.count - 1} more" if send.count > 1 else ""
        what += f" to {send.partition}"
        return (
            f"{what}: {op.type} at {send.offset}"
            if op.type == "ok"
            else (f"{what}: {op.type}, {op.error}")
        )
    return f"read of {op.reads[0].partition}: {op.type}, {op.error}" if op.type != "ok" else ""
