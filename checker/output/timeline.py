"""How it came to that: the life of one place in a replicated log, told in sentences. Pure.

From a run's trace events and faults: who appended the record, who copied it, who acknowledged it
with which ISR, who cut it away and for what reason, who was elected with or without it, and what
stands there now. Both worlds write the same events, so simulated and real runs are told alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from checker.checks.findings import listing
from checker.formats.verdict import Anomaly, Sentence
from node.formats import trace

MAX_SENTENCES: Final = 60
AFTERWARDS: Final = 4
"""Sentences told after the last step that broke something."""
CAME_BACK_WITHOUT: Final = "came-back-without"
"""A leader lost a record that was not on disk, and leads on in its epoch."""
_CUT_BECAUSE: Final = {
    "own-high-watermark": "to its own high watermark",
    "leader-high-watermark": "to the leader's high watermark",
    "offset-for-leader-epoch": "to where the leader says its last epoch ends",
    "diverging-epoch": "to where the leader says the logs part",
    "out-of-range": "to the leader's log end",
}


def tell(
    events: Iterable[Mapping[str, Any]],
    faults: Iterable[Mapping[str, Any]],
    *,
    partition: str,
    offset: int,
    until_us: int | None = None,
    read_us: int | None = None,
) -> list[Sentence]:
    """The story of `offset` in `partition` up to `until_us`, oldest first, at most `MAX_SENTENCES`.

    `events` are trace events of all nodes, `faults` lines of faults.jsonl; any order will do.
    A step breaks something once the record is owed: acknowledged or, where a client has read it by
    `read_us`, committed. When there is too much to tell, what happened last and what broke
    something is kept.
    """
    told = _Teller(partition, offset, read_us)
    for event in sorted(events, key=lambda e: (e["t_us"], e["node"])):
        told.hear(event)
    sentences = told.sentences
    if not sentences:
        return []
    first_us = sentences[0].t_us
    sentences += [s for line in faults if (s := _fault(line)) is not None and s.t_us >= first_us]
    sentences.sort(key=lambda s: s.t_us)
    if until_us is not None:
        sentences = [s for s in sentences if s.t_us <= until_us]
    last = max((at for at, s in enumerate(sentences) if s.breaks), default=len(sentences))
    del sentences[last + 1 + AFTERWARDS :]
    if len(sentences) > MAX_SENTENCES:
        must = [s for s in sentences if s.breaks][-MAX_SENTENCES:]
        rest = [s for s in sentences if not s.breaks]
        kept = must + rest[len(rest) - (MAX_SENTENCES - len(must)) :]
        sentences = sorted(kept, key=lambda s: s.t_us)
    return sentences


class _Teller:
    """Follows who holds what at the offset, event by event."""

    def __init__(self, partition: str, offset: int, read_us: int | None) -> None:
        self.sentences: list[Sentence] = []
        self._partition = partition
        self._offset = offset
        self._read_us = read_us
        self._holds: dict[str, int] = {}
        self._committed: set[str] = set()
        self._owed_epochs: set[int] = set()  # of the records there that must stay
        self._promise = "read"  # what makes them so, while nobody has acknowledged one
        self._newest = (-1, "")  # the newest epoch that anyone took the lead in, and who
        self._decided: tuple[str, Sequence[str]] = ("", ())

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take one event, in order of time."""
        name = event["event"]
        if self._read_us is not None and event["t_us"] > self._read_us and not self._owed_epochs:
            # Read before any leader called it committed.
            self._owed_epochs.update(self._holds.values())
        if name == trace.STARTED and event["incarnation"] > 1 and self._holds:
            self._say(event, f"{event['node']} starts again (process {event['incarnation']}).")
        if event.get("partition") != self._partition:
            return
        heard = {
            trace.APPEND: self._append,
            trace.ACK: self._ack,
            trace.HW: self._hw,
            trace.TRUNCATED: self._truncated,
            trace.ROLE: self._role,
            trace.PARTITION: self._elected,
        }.get(name)
        if heard is not None:
            heard(event)

    def _say(self, event: Mapping[str, Any], text: str, *, breaks: str = "") -> None:
        self.sentences.append(
            Sentence(
                t_us=event["t_us"],
                text=text,
                kind=event["event"],
                node=event["node"],
                breaks=breaks,
            )
        )

    def _append(self, event: Mapping[str, Any]) -> None:
        node, epoch = event["node"], event["leader_epoch"]
        if not event["base_offset"] <= self._offset < event["leo"]:
            return
        others = {e for holder, e in self._holds.items() if holder != node}
        clashes = bool(self._owed_epochs) and epoch not in self._owed_epochs | others
        self._holds[node] = epoch
        self._committed.discard(node)
        span = _span(event["base_offset"], event["leo"])
        if event["role"] == "leader":
            also = f" where another record was {self._promise}" if clashes else ""
            newest, ruler = self._newest
            if newest > epoch:
                also += f", although {ruler} leads epoch {newest} already"
            self._say(
                event,
                f"{node} leads epoch {epoch} and appends {span}{also}.",
                breaks="overwritten" if clashes else "",
            )
        else:
            self._say(event, f"{node} copies {span} of epoch {epoch} from its leader.")

    def _ack(self, event: Mapping[str, Any]) -> None:
        if not event["base_offset"] <= self._offset < event["leo"]:
            return
        self._owed_epochs.add(self._holds.get(event["node"], -1))
        self._promise = "acknowledged"
        span, isr = _span(event["base_offset"], event["leo"]), listing(event["isr"]) or "nobody"
        how = {-1: "all", 0: "0", 1: "1"}[event["acks"]]
        self._say(
            event,
            f"{event['node']} acknowledges {span} to {event['client']} (acks={how}), "
            f"in sync: {isr}; its high watermark is {event['hw']}.",
        )

    def _hw(self, event: Mapping[str, Any]) -> None:
        node, hw = event["node"], event["hw"]
        passed = hw > self._offset
        if passed == (node in self._committed) or node not in self._holds:
            return
        (self._committed.add if passed else self._committed.discard)(node)
        if not passed:
            text = f"{node}'s high watermark falls back to {hw}: offset {self._offset} is above it."
        elif event["role"] == "leader":
            if self._read_us is not None:
                self._owed_epochs.add(self._holds[node])
            text = f"{node} raises its high watermark to {hw}: offset {self._offset} is committed."
        else:
            text = f"{node} learns the high watermark {hw}."
        self._say(event, text)

    def _truncated(self, event: Mapping[str, Any]) -> None:
        node = event["node"]
        if not event["leo"] <= self._offset < event["from_leo"]:
            return
        gone = self._holds.pop(node, -1)
        self._committed.discard(node)
        # Another record may have stood there, of an epoch that nobody was promised.
        owed = bool(self._owed_epochs) and (gone < 0 or bool({gone, -1} & self._owed_epochs))
        reason = _CUT_BECAUSE.get(event["reason"], f"({event['reason']})")
        left = sorted(self._holds)
        where = f"it is still on {listing(left)}" if left else "it is on no replica now"
        self._say(
            event,
            f"{node} cuts its log from {event['from_leo']} to {event['leo']}, {reason}: "
            f"offset {self._offset} is gone there, {where}.",
            breaks=f"cut:{event['reason']}" if owed else "",
        )

    def _role(self, event: Mapping[str, Any]) -> None:
        node = event["node"]
        # What was never on disk is gone after a power cut, and nobody cut it away.
        short = node in self._holds and event["leo"] <= self._offset
        if short:
            del self._holds[node]
        if event["role"] != "leader":
            if short:
                self._committed.discard(node)
                self._say(
                    event,
                    f"{node} comes back with log end {event['leo']}: offset "
                    f"{self._offset} is gone there.",
                )
            elif node in self._committed and event["hw"] <= self._offset:
                self._committed.discard(node)
                leader = event["leader"] or "nobody"
                self._say(
                    event,
                    f"{node} follows {leader}; the high watermark it had saved is {event['hw']}.",
                )
            return
        again = self._newest == (event["leader_epoch"], node)
        self._newest = max(self._newest, (event["leader_epoch"], node))
        if not self._holds and not short:
            return
        lacks = node not in self._holds
        with_it = "without" if lacks else "with"
        wrong = CAME_BACK_WITHOUT if short and again else "elected-without"
        self._say(
            event,
            f"{node} becomes leader of epoch {event['leader_epoch']}, {with_it} offset "
            f"{self._offset} (log end {event['leo']}, high watermark {event['hw']}).",
            breaks=wrong if lacks and self._owed_epochs else "",
        )

    def _elected(self, event: Mapping[str, Any]) -> None:
        leader, isr = event["leader"], tuple(event["isr"])
        before, self._decided = self._decided, (leader, isr)
        if not self._holds or before == (leader, isr):
            return
        unclean = " uncleanly" if event["unclean"] and leader != before[0] else ""
        who = f"{leader or 'nobody'} leads{unclean} in epoch {event['leader_epoch']}"
        elr = f", eligible: {listing(event['elr'])}" if event["elr"] else ""
        in_sync = listing(isr) or "nobody"
        self._say(event, f"The controller decides: {who}, in sync: {in_sync}{elr}.")


def read_of(finding: Anomaly) -> int | None:
    """When a client had read the record that vanished; None for other findings."""
    if finding.name != "vanished":
        return None
    times = [w.t_us for w in finding.witnesses if w.offset == finding.offset and w.t_us >= 0]
    return min(times, default=None)


def _fault(line: Mapping[str, Any]) -> Sentence | None:
    """A fault that began or ended; None for what did not happen."""
    action, nodes = line.get("action"), listing(line.get("nodes") or ())
    if action not in ("inject", "heal") or not nodes:
        return None
    verb = "Fault" if action == "inject" else "End of fault"
    what = f"{line.get('what', '?')} {nodes}".strip()
    if not line.get("what") and action == "heal":
        verb, what = "End of all faults", nodes
    node = (line.get("nodes") or [""])[0]
    return Sentence(t_us=line["t_us"], text=f"{verb}: {what}.", kind="fault", node=node)


def _span(base: int, end: int) -> str:
    """Offsets base .. end-1 in words."""
    return f"offset {base}" if end - base == 1 else f"offsets {base}-{end - 1}"
