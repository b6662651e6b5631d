"""Trace events as rows of the message diagram, each with the message that caused it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from node.formats import event_text, trace
from node.formats.event_text import Event, action, message

Tone = Literal["data", "client", "control", "own", "bad", "fault", "lost"]


@dataclass(frozen=True)
class MessageRow:
    """One row of the diagram: an event that took effect at `t_us`.

    It is an arrow from `sender` to `receiver`; without a receiver a remark at `sender`; without
    both a fault, across all lifelines. `appends`: a leader appends records here. `down` and `up`
    name a node whose lifeline ends or begins here. `citation` is the file and line of the event."""

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
    """The state that the events so far show, about offsets low .. high-1 of a partition."""

    low: int
    high: int
    leader: str = ""
    controller: str = ""
    follows: dict[str, str] = field(default_factory=dict)
    passed: dict[str, bool] = field(default_factory=dict)
    partition_epoch: int = -2
    refused: set[tuple[str, str, str]] = field(default_factory=set)

    def row(self, e: Event, citation: str) -> MessageRow | None:
        """Return the row of the next event; None if it does not concern the offsets."""

        def remark(tone: Tone = "own", **more: Any) -> MessageRow:
            return MessageRow(e.t_us, e.node, "", action(e), tone, citation, **more)

        def arrow(sender: str, receiver: str, tone: Tone) -> MessageRow:
            return MessageRow(e.t_us, sender, receiver, message(e), tone, citation)

        match e.event:
            case trace.APPEND if self._overlaps(e):
                if e.role != "leader":
                    return arrow(self._source(e.node), e.node, "data")
                self.leader = e.node
                return remark(appends=True)
            case trace.ACK if self._overlaps(e):
                return arrow(e.node, e.client, "client")
            case trace.HW if self._passes(e) != self.passed.get(e.node, False):
                self.passed[e.node] = self._passes(e)
                if e.role != "leader":
                    return arrow(self._source(e.node), e.node, "data")
                return remark()
            case trace.ROLE:
                self.passed[e.node] = self._passes(e)
                self.follows[e.node] = e.leader or ""
                if e.role == "leader":
                    self.leader = e.node
                return remark()
            case trace.TRUNCATED if e.leo < e.from_leo:
                if e.hw < self.high:
                    self.passed[e.node] = False
                breaks = e.leo <= self.low < e.from_leo
                return remark("bad" if breaks else "own", breaks=breaks)
            case trace.DIVERGING:
                return arrow(e.node, e.follower, "data")
            # Every voter records a commit; the first record is drawn.
            case trace.PARTITION if e.partition_epoch > self.partition_epoch:
                self.partition_epoch = e.partition_epoch
                return remark("control")
            case trace.PROPOSED | trace.REPORTED:
                return arrow(e.node, self.controller, "control")
            case trace.VOTE if e.candidate != e.node:
                return arrow(e.node, e.candidate, "control")
            case trace.CONTROLLER if e.state == "active":
                self.controller = e.node
            # A client retries; the first refusal is drawn.
            case trace.REFUSED if (e.node, e.source, e.reason) not in self.refused:
                self.refused.add((e.node, e.source, e.reason))
                return arrow(e.source, e.node, "own")
            case trace.STARTED if e.incarnation > 1:
                return remark(up=e.node)
            case event_text.EXIT:
                self.passed.pop(e.node, None)
                return remark("bad", down=e.node)
            case trace.BREAK:
                return remark("fault")
        return None

    def _overlaps(self, e: Event) -> bool:
        return e.base_offset < self.high and e.leo > self.low

    def _passes(self, e: Event) -> bool:
        return e.hw >= self.high > self.low

    def _source(self, node: str) -> str:
        """Return the node that a follower fetches from, "" if it is not known."""
        found = self.follows.get(node) or self.leader
        return "" if found == node else found
