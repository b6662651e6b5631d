"""How a finding happened: the history of one offset of a replicated log, in sentences. Pure.

From a run's trace events and faults: which replicas appended the record, who acknowledged it with
which ISR, who truncated it and why, who was elected with or without it, and what stands there now.
Real and simulated runs write the same events.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from checker.checks.findings import listing
from checker.formats.timeline import Sentence
from checker.formats.verdict import Anomaly
from nemesis.formats.fault_log import FaultLine
from node.formats import trace
from node.formats.event_text import Event, action

MAX_SENTENCES: Final = 60
AFTERWARDS: Final = 4
"""Sentences kept after the last step that broke something."""
CAME_BACK_WITHOUT: Final = "came-back-without"
"""A leader lost a record that was not on disk, and leads on in its epoch."""


def tell(
    events: Iterable[Event],
    faults: Iterable[FaultLine],
    *,
    partition: str,
    offset: int,
    read_us: int | None = None,
) -> list[Sentence]:
    """At most `MAX_SENTENCES` about `offset` in `partition`, oldest first.

    `events` are trace events of all nodes, `faults` lines of faults.jsonl; any order will do.
    A step breaks something once the record must be kept: it is acknowledged or, where a client has
    read it by `read_us`, committed. Of too many sentences the last ones stay, and those about
    steps that broke something.
    """
    builder = _TimelineBuilder(partition, offset, read_us)
    for event in sorted(events, key=lambda e: (e.t_us, e.node)):
        builder.observe(event)
    sentences = builder.sentences
    if not sentences:
        return []
    first_us = sentences[0].t_us
    sentences += [s for line in faults if (s := _fault(line)) is not None and s.t_us >= first_us]
    sentences.sort(key=lambda s: s.t_us)
    last = max((at for at, s in enumerate(sentences) if s.breaks), default=len(sentences))
    del sentences[last + 1 + AFTERWARDS :]
    if len(sentences) > MAX_SENTENCES:
        must = [s for s in sentences if s.breaks][-MAX_SENTENCES:]
        rest = [s for s in sentences if not s.breaks]
        kept = must + rest[len(rest) - (MAX_SENTENCES - len(must)) :]
        sentences = sorted(kept, key=lambda s: s.t_us)
    return sentences


class _TimelineBuilder:
    """Follows who holds what at the offset, event by event."""

    def __init__(self, partition: str, offset: int, read_us: int | None) -> None:
        self.sentences: list[Sentence] = []
        self._partition = partition
        self._offset = offset
        self._read_us = read_us
        self._holds: dict[str, int] = {}
        self._committed: set[str] = set()
        self._required_epochs: set[int] = set()  # of the records there that must stay
        self._promise = "read"  # what makes them so, while nobody has acknowledged one
        self._newest = (-1, "")  # the newest epoch that anyone took the lead in, and who
        self._decided: tuple[str | None, tuple[str, ...]] = ("", ())

    def observe(self, e: Event) -> None:
        """Take one event, in order of time."""
        if self._read_us is not None and e.t_us > self._read_us and not self._required_epochs:
            # Read before any leader called it committed.
            self._required_epochs.update(self._holds.values())
        if e.event == trace.STARTED and e.incarnation > 1 and self._holds:
            self._say(e)
        if e.partition != self._partition:
            return
        heard = {
            trace.APPEND: self._append,
            trace.ACK: self._ack,
            trace.HW: self._hw,
            trace.TRUNCATED: self._truncated,
            trace.ROLE: self._role,
            trace.PARTITION: self._elected,
        }.get(e.event)
        if heard is not None:
            heard(e)

    def _say(self, e: Event, more: str = "", *, by: str = "", breaks: str = "") -> None:
        """The event in a sentence; `by` names its subject where that is not the node."""
        text = f"{by or e.node} {action(e)}{more}."
        self.sentences.append(
            Sentence(t_us=e.t_us, text=text, kind=e.event, node=e.node, breaks=breaks)
        )

    def _append(self, e: Event) -> None:
        if not e.base_offset <= self._offset < e.leo:
            return
        others = {epoch for holder, epoch in self._holds.items() if holder != e.node}
        clashes = (
            bool(self._required_epochs) and e.leader_epoch not in self._required_epochs | others
        )
        self._holds[e.node] = e.leader_epoch
        self._committed.discard(e.node)
        if e.role != "leader":
            self._say(e)
            return
        more = f", where another record was {self._promise}" if clashes else ""
        newest, leader = self._newest
        if newest > e.leader_epoch:
            more += f", although {leader} already leads epoch {newest}"
        self._say(e, more, breaks="overwritten" if clashes else "")

    def _ack(self, e: Event) -> None:
        if e.base_offset <= self._offset < e.leo:
            self._required_epochs.add(self._holds.get(e.node, -1))
            self._promise = "acknowledged"
            self._say(e)

    def _hw(self, e: Event) -> None:
        passed = e.hw > self._offset
        if passed == (e.node in self._committed) or e.node not in self._holds:
            return
        (self._committed.add if passed else self._committed.discard)(e.node)
        more = ""
        if not passed:
            more = f": offset {self._offset} is above it again"
        elif e.role == "leader":
            if self._read_us is not None:
                self._required_epochs.add(self._holds[e.node])
            more = f": offset {self._offset} is committed"
        self._say(e, more)

    def _truncated(self, e: Event) -> None:
        if not e.leo <= self._offset < e.from_leo:
            return
        gone = self._holds.pop(e.node, -1)
        self._committed.discard(e.node)
        # Another record may have stood there, of an epoch that nobody was promised.
        required = bool(self._required_epochs) and (
            gone < 0 or bool({gone, -1} & self._required_epochs)
        )
        left = f"still on {listing(sorted(self._holds))}" if self._holds else "on no replica now"
        self._say(
            e,
            f". Offset {self._offset} is removed from {e.node} and is {left}",
            breaks=f"cut:{e.reason}" if required else "",
        )

    def _role(self, e: Event) -> None:
        # What was never on disk is gone after a power cut, and nobody truncated it.
        short = e.node in self._holds and e.leo <= self._offset
        if short:
            del self._holds[e.node]
        if e.role != "leader":
            if short:
                self._committed.discard(e.node)
                self._say(e, f": offset {self._offset} is no longer in its log")
            elif e.node in self._committed and e.hw <= self._offset:
                self._committed.discard(e.node)
                self._say(e, f": offset {self._offset} is above its high watermark")
            return
        again = self._newest == (e.leader_epoch, e.node)
        self._newest = max(self._newest, (e.leader_epoch, e.node))
        if not self._holds and not short:
            return
        lacks = e.node not in self._holds
        wrong = CAME_BACK_WITHOUT if short and again else "elected-without"
        self._say(
            e,
            f", {'without' if lacks else 'with'} offset {self._offset}",
            breaks=wrong if lacks and self._required_epochs else "",
        )

    def _elected(self, e: Event) -> None:
        before, self._decided = self._decided, (e.leader, e.isr)
        if self._holds and before != self._decided:
            self._say(e, by="The controller")


def read_of(finding: Anomaly) -> int | None:
    """When a client had read the record that vanished; None for other findings."""
    if finding.name != "vanished":
        return None
    times = [w.t_us for w in finding.witnesses if w.offset == finding.offset and w.t_us >= 0]
    return min(times, default=None)


def _fault(line: FaultLine) -> Sentence | None:
    """A fault that began or ended; None for what did not happen."""
    nodes = listing(line.nodes)
    if line.action not in ("inject", "heal") or not nodes:
        return None
    verb, what = "Fault" if line.action == "inject" else "End of fault", f"{line.what} {nodes}"
    if not line.what and line.action == "heal":
        verb, what = "End of all faults", nodes
    return Sentence(t_us=line.t_us, text=f"{verb}: {what}.", kind="fault", node=line.nodes[0])
