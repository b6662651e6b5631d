"""A simulated run as a list of steps in words: faults, what brokers did, how operations ended.

Every line is one moment: seconds since the storm began, who, what. High watermarks of followers,
appends of followers and operations that went well are left out, for they only repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from harness.formats.history import Op, show_value
from harness.sim.run import SimResult
from node.formats import trace
from node.formats.trace import METADATA_PARTITION, TraceEvent


def steps(result: SimResult) -> Iterator[str]:
    """The lines, in the order of their time."""
    origin_us = result.info.phases.storm_us or result.info.phases.start_us
    told: list[tuple[int, str, str]] = []
    for event in result.trace:
        words = _event(event)
        if words:
            told.append((event["t_us"], event["node"], words))
    told += [(line["t_us"], "fault", _fault(line)) for line in result.faults]
    for op in result.ops:
        words = _op(op)
        if words:
            told.append((op.t_us, op.client, words))
    told += [(b.t_us, "BREACH", f"{b.invariant}: {b.sentence}") for b in result.breaches]
    for t_us, who, words in sorted(told, key=lambda step: step[0]):
        yield f"{(t_us - origin_us) / 1e6:10.6f}  {who:<6}  {words}"


def _event(event: TraceEvent) -> str:
    if event.get("partition") == METADATA_PARTITION:
        return ""
    tell = _WORDS.get(event["event"])
    return "" if tell is None else tell(event)


def _role(e: TraceEvent) -> str:
    took = "leads" if e["role"] == "leader" else f"{e['role']} of"
    after = f" after {e['leader']}" if e["role"] == "follower" and e["leader"] else ""
    where = f"{took} {e['partition']}{after} in epoch {e['leader_epoch']}"
    return f"{where}: log to {e['leo']}, HW {e['hw']}"


def _appended(e: TraceEvent) -> str:
    if e["role"] != "leader":
        return ""
    return f"appends {e['partition']} [{e['base_offset']}, {e['leo']}) in epoch {e['leader_epoch']}"


def _hw(e: TraceEvent) -> str:
    return f"HW of {e['partition']} is {e['hw']}" if e["role"] == "leader" else ""


def _partition(e: TraceEvent) -> str:
    leader = f"{e['leader']} leads" if e["leader"] else "nobody leads"
    elr = f", ELR [{' '.join(e['elr'])}]" if e["elr"] else ""
    return (
        f"commits: {leader} {e['partition']} in epoch {e['leader_epoch']}, "
        f"ISR [{' '.join(e['isr'])}]{elr}{', unclean' if e['unclean'] else ''}"
    )


_WORDS: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    trace.STARTED: lambda e: (
        f"starts, process {e['incarnation']}"
        + ("" if e["clean"] else ", something may be missing on its disk")
    ),
    trace.STOPPED: lambda e: "stops",
    trace.REGISTERED: lambda e: f"is registered with broker epoch {e['broker_epoch']}",
    trace.ROLE: _role,
    trace.ISR: lambda e: (
        f"ISR of {e['partition']} is [{' '.join(e['isr'])}]"
        f", waits for [{' '.join(e['maximal_isr'])}]"
    ),
    trace.PROPOSED: lambda e: f"proposes ISR [{' '.join(e['isr'])}] of {e['partition']}",
    trace.BREAK: lambda e: f"stops at a breakpoint, before the {e['before']} of '{e['at']}'",
    trace.APPEND: _appended,
    trace.TRUNCATED: lambda e: (
        f"truncates {e['partition']} from {e['from_leo']} to {e['leo']} ({e['reason']})"
    ),
    trace.DIVERGING: lambda e: (
        f"tells {e['follower']} that {e['partition']} diverges: epoch "
        f"{e['epoch']} ends at {e['end_offset']}"
    ),
    trace.HW: _hw,
    trace.ACK: lambda e: (
        f"acknowledges {e['partition']} [{e['base_offset']}, {e['leo']}) to "
        f"{e['client']}, ISR [{' '.join(e['isr'])}]"
    ),
    trace.REFUSED: lambda e: f"refuses {e['kind']} of {e['source']}: {e['reason']}",
    trace.CONTROLLER: lambda e: f"controller {e['state']} in term {e['term']}",
    trace.BROKER: lambda e: f"commits: {e['broker']} is {e['state']}",
    trace.PARTITION: _partition,
}


def _fault(line: dict[str, Any]) -> str:
    number = "final heal" if line["fault"] < 0 else f"{line['action']} {line['what']}"
    whom = f" {', '.join(line['nodes'])}" if line["nodes"] else ""
    links = f" on {', '.join('->'.join(link) for link in line['links'])}" if line["links"] else ""
    return f"{number}{whom}{links}" + (f" ({line['detail']})" if line["detail"] else "")


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
