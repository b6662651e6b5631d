"""Trace events as rows of the message diagram: which message each event is the effect of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from node.formats import trace
from reports import wording
from reports.run_page.events import Event

Tone = Literal["data", "client", "control", "own", "bad", "fault", "lost"]


@dataclass(frozen=True)
class Row:
    """One row of the diagram, as it took effect at `t_us`.

    An arrow from `sender` to `receiver`; without a receiver a remark at `sender`; without both a
    fault, across all lifelines. `down` and `up` name a node whose lifeline ends or begins here.
    `raw` is the file and line it comes from.
    """

    t_us: int
    sender: str
    receiver: str
    text: str
    tone: Tone
    raw: str = ""
    breaks: bool = False
    down: str = ""
    up: str = ""


@dataclass
class Known:
    """What the events so far say of a partition; offsets low .. high-1 are what it is about."""

    low: int
    high: int
    leader: str = ""
    controller: str = ""
    follows: dict[str, str] = field(default_factory=dict)
    passed: dict[str, bool] = field(default_factory=dict)
    decided: int = -2
    refused: set[tuple[str, str, str]] = field(default_factory=set)

    def concerns(self, base: int, end: int) -> bool:
        """Whether offsets base .. end-1 meet what the diagram is about."""
        return base < self.high and end > self.low

    def source(self, node: str) -> str:
        """Whom a follower fetches from, as far as is known."""
        found = self.follows.get(node) or self.leader
        return "" if found == node else found


def rows(known: Known, e: Event, raw: str) -> Iterator[Row]:
    """The rows that an event is told with; none for what does not concern the place."""
    tell = _TELL.get(e.event)
    if tell is not None:
        yield from tell(known, e, raw)


def span(base: int, end: int) -> str:
    """Offsets base .. end-1, short."""
    return f"{base}" if end - base == 1 else f"{base}–{end - 1}"


def _append(known: Known, e: Event, raw: str) -> Iterator[Row]:
    if not known.concerns(e.base_offset, e.leo):
        return
    what = f"{span(e.base_offset, e.leo)} of epoch {e.leader_epoch}"
    if e.role == "leader":
        known.leader = e.node
        yield Row(e.t_us, e.node, "", f"appends {what}", "own", raw)
    else:
        yield Row(e.t_us, known.source(e.node), e.node, f"fetched: {what}", "data", raw)


def _ack(known: Known, e: Event, raw: str) -> Iterator[Row]:
    if known.concerns(e.base_offset, e.leo):
        text = f"produced: ok, offset {span(e.base_offset, e.leo)} (ISR {' '.join(e.isr)})"
        yield Row(e.t_us, e.node, e.client, text, "client", raw)


def _hw(known: Known, e: Event, raw: str) -> Iterator[Row]:
    passed = e.hw >= known.high > known.low
    if passed == known.passed.get(e.node, False):
        return
    known.passed[e.node] = passed
    if e.role == "leader":
        yield Row(e.t_us, e.node, "", f"high watermark {e.hw}", "own", raw)
    else:
        yield Row(
            e.t_us, known.source(e.node), e.node, f"fetched: high watermark {e.hw}", "data", raw
        )


def _role(known: Known, e: Event, raw: str) -> Iterator[Row]:
    known.passed[e.node] = e.hw >= known.high > known.low
    known.follows[e.node] = e.leader or ""
    if e.role == "leader":
        known.leader = e.node
        text = f"leads epoch {e.leader_epoch}: log end {e.leo}, HW {e.hw}"
    else:
        whom = f" of {e.leader}" if e.leader and e.leader != e.node else ""
        text = f"{e.role}{whom}, epoch {e.leader_epoch}: log end {e.leo}, HW {e.hw}"
    yield Row(e.t_us, e.node, "", text, "own", raw)


def _truncated(known: Known, e: Event, raw: str) -> Iterator[Row]:
    if e.leo >= e.from_leo:
        return
    if e.hw < known.high:
        known.passed[e.node] = False
    breaks = e.leo <= known.low < e.from_leo
    reason = e.reason.replace("-", " ").replace("_", " ")
    text = f"cuts its log, {e.from_leo} → {e.leo} ({reason})"
    yield Row(e.t_us, e.node, "", text, "bad" if breaks else "own", raw, breaks)


def _diverging(known: Known, e: Event, raw: str) -> Iterator[Row]:
    text = f"fetched: diverging, epoch {e.epoch} ends at {e.end_offset}"
    yield Row(e.t_us, e.node, e.follower, text, "data", raw)


def _partition(known: Known, e: Event, raw: str) -> Iterator[Row]:
    # Every voter reports a commit; the first to do so tells it.
    if e.partition_epoch <= known.decided:
        return
    known.decided = e.partition_epoch
    leader = e.leader or "nobody"
    text = f"commits: {leader} leads epoch {e.leader_epoch}, ISR {' '.join(e.isr) or 'empty'}"
    yield Row(e.t_us, e.node, "", text, "control", raw)


def _proposed(known: Known, e: Event, raw: str) -> Iterator[Row]:
    to = known.controller
    yield Row(e.t_us, e.node, to, f"alter: ISR {' '.join(e.isr)}", "control", raw)


def _reported(known: Known, e: Event, raw: str) -> Iterator[Row]:
    yield Row(
        e.t_us, e.node, known.controller, f"report-leader: {e.leader} is silent", "control", raw
    )


def _vote(known: Known, e: Event, raw: str) -> Iterator[Row]:
    if e.candidate == e.node:
        return
    what = "pre-vote" if e.pre else "vote"
    yield Row(e.t_us, e.node, e.candidate, f"voted: {what} for term {e.term}", "control", raw)


def _controller(known: Known, e: Event, raw: str) -> Iterator[Row]:
    if e.state == "active":
        known.controller = e.node
    yield from ()


def _refused(known: Known, e: Event, raw: str) -> Iterator[Row]:
    # A client asks again and again: once says it.
    said = (e.node, e.source, e.reason)
    if said in known.refused:
        return
    known.refused.add(said)
    text = f"{e.kind}: refused ({e.reason})"
    yield Row(e.t_us, e.source, e.node, text, "own", raw)


def _started(known: Known, e: Event, raw: str) -> Iterator[Row]:
    if e.incarnation > 1:
        text = f"starts again (process {e.incarnation})"
        yield Row(e.t_us, e.node, "", text, "own", raw, up=e.node)


def _exit(known: Known, e: Event, raw: str) -> Iterator[Row]:
    known.passed.pop(e.node, None)
    how = f" ({wording.clip(e.reason, 30)})" if e.reason else ""
    yield Row(e.t_us, e.node, "", f"ends{how}", "bad", raw, down=e.node)


def _break(known: Known, e: Event, raw: str) -> Iterator[Row]:
    yield Row(e.t_us, e.node, "", "stops at a breakpoint", "fault", raw)


EXIT: Final = "exit"
_TELL: Final[dict[str, Callable[[Known, Event, str], Iterator[Row]]]] = {
    trace.APPEND: _append,
    trace.ACK: _ack,
    trace.HW: _hw,
    trace.ROLE: _role,
    trace.TRUNCATED: _truncated,
    trace.DIVERGING: _diverging,
    trace.PARTITION: _partition,
    trace.PROPOSED: _proposed,
    trace.REPORTED: _reported,
    trace.VOTE: _vote,
    trace.CONTROLLER: _controller,
    trace.REFUSED: _refused,
    trace.STARTED: _started,
    trace.BREAK: _break,
    EXIT: _exit,
}
