"""Trace events as rows of the message diagram: which message each event is the effect of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from node.formats import trace
from node.formats.event_text import EXIT, Event, action, message

Tone = Literal["data", "client", "control", "own", "bad", "fault", "lost"]


@dataclass(frozen=True)
class Row:
    """One row of the diagram, as it took effect at `t_us`.

    An arrow from `sender` to `receiver`; without a receiver a remark at `sender`; without both a
    fault, across all lifelines. `appends`: a leader appends here. `down` and `up` name a node whose
    lifeline ends or begins here. `citation` is the file and line it comes from.
    """

    t_us: int
    sender: str
    receiver: str
    text: str
    tone: Tone
    citation: str = ""
    breaks: bool = False
    appends: bool = False
    down: str = ""
    up: str = ""


@dataclass
class Known:
    """What the events so far say about offsets low .. high-1 of a partition."""

    low: int
    high: int
    leader: str = ""
    controller: str = ""
    follows: dict[str, str] = field(default_factory=dict)
    passed: dict[str, bool] = field(default_factory=dict)
    decided: int = -2
    refused: set[tuple[str, str, str]] = field(default_factory=set)

    def concerns(self, base: int, end: int) -> bool:
        """Whether offsets base .. end-1 overlap those of the diagram."""
        return base < self.high and end > self.low

    def source(self, node: str) -> str:
        """The node that a follower fetches from, "" where it is not known."""
        found = self.follows.get(node) or self.leader
        return "" if found == node else found


def rows(known: Known, e: Event, citation: str) -> Iterator[Row]:
    """The rows of an event; none where it does not concern the place."""
    draw = _DRAW.get(e.event)
    if draw is not None:
        yield from draw(known, e, citation)


def _remark(e: Event, citation: str, tone: Tone = "own", **more: Any) -> Row:
    return Row(e.t_us, e.node, "", action(e), tone, citation, **more)


def _arrow(e: Event, citation: str, sender: str, receiver: str, tone: Tone) -> Row:
    return Row(e.t_us, sender, receiver, message(e), tone, citation)


def _append(known: Known, e: Event, citation: str) -> Iterator[Row]:
    if not known.concerns(e.base_offset, e.leo):
        return
    if e.role == "leader":
        known.leader = e.node
        yield _remark(e, citation, appends=True)
    else:
        yield _arrow(e, citation, known.source(e.node), e.node, "data")


def _ack(known: Known, e: Event, citation: str) -> Iterator[Row]:
    if known.concerns(e.base_offset, e.leo):
        yield _arrow(e, citation, e.node, e.client, "client")


def _hw(known: Known, e: Event, citation: str) -> Iterator[Row]:
    passed = e.hw >= known.high > known.low
    if passed == known.passed.get(e.node, False):
        return
    known.passed[e.node] = passed
    if e.role == "leader":
        yield _remark(e, citation)
    else:
        yield _arrow(e, citation, known.source(e.node), e.node, "data")


def _role(known: Known, e: Event, citation: str) -> Iterator[Row]:
    known.passed[e.node] = e.hw >= known.high > known.low
    known.follows[e.node] = e.leader or ""
    if e.role == "leader":
        known.leader = e.node
    yield _remark(e, citation)


def _truncated(known: Known, e: Event, citation: str) -> Iterator[Row]:
    if e.leo >= e.from_leo:
        return
    if e.hw < known.high:
        known.passed[e.node] = False
    breaks = e.leo <= known.low < e.from_leo
    yield _remark(e, citation, "bad" if breaks else "own", breaks=breaks)


def _diverging(known: Known, e: Event, citation: str) -> Iterator[Row]:
    yield _arrow(e, citation, e.node, e.follower, "data")


def _partition(known: Known, e: Event, citation: str) -> Iterator[Row]:
    # Every voter records a commit; the first record is drawn.
    if e.partition_epoch > known.decided:
        known.decided = e.partition_epoch
        yield _remark(e, citation, "control")


def _to_controller(known: Known, e: Event, citation: str) -> Iterator[Row]:
    yield _arrow(e, citation, e.node, known.controller, "control")


def _vote(known: Known, e: Event, citation: str) -> Iterator[Row]:
    if e.candidate != e.node:
        yield _arrow(e, citation, e.node, e.candidate, "control")


def _controller(known: Known, e: Event, citation: str) -> Iterator[Row]:
    if e.state == "active":
        known.controller = e.node
    yield from ()


def _refused(known: Known, e: Event, citation: str) -> Iterator[Row]:
    # A client retries: the first refusal is drawn.
    refusal = (e.node, e.source, e.reason)
    if refusal not in known.refused:
        known.refused.add(refusal)
        yield _arrow(e, citation, e.source, e.node, "own")


def _started(known: Known, e: Event, citation: str) -> Iterator[Row]:
    if e.incarnation > 1:
        yield _remark(e, citation, up=e.node)


def _exit(known: Known, e: Event, citation: str) -> Iterator[Row]:
    known.passed.pop(e.node, None)
    yield _remark(e, citation, "bad", down=e.node)


def _break(known: Known, e: Event, citation: str) -> Iterator[Row]:
    yield _remark(e, citation, "fault")


_DRAW: Final[dict[str, Callable[[Known, Event, str], Iterator[Row]]]] = {
    trace.APPEND: _append,
    trace.ACK: _ack,
    trace.HW: _hw,
    trace.ROLE: _role,
    trace.TRUNCATED: _truncated,
    trace.DIVERGING: _diverging,
    trace.PARTITION: _partition,
    trace.PROPOSED: _to_controller,
    trace.REPORTED: _to_controller,
    trace.VOTE: _vote,
    trace.CONTROLLER: _controller,
    trace.REFUSED: _refused,
    trace.STARTED: _started,
    trace.BREAK: _break,
    EXIT: _exit,
}
