"""A slow second reading of a run of a third-party system: who led first without a lost record, and
which fault made it lead.

It shares nothing with `checker/story`, and goes through the raw lines of the folder moment by
moment. `wrong_cause` compares a story with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from checker.formats.story import Story

PROBE_US: Final = 400_000
ELECTION_US: Final = 5_000_000
"""How long an election may go on although the leader that was killed is back."""


def lines(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of a run, none if it is not there."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@dataclass
class SlowReading:
    """The raw lines of a run folder, about the record `value` at `offset`."""

    folder: Path
    partition: str
    offset: int
    value: int

    def __post_init__(self) -> None:
        names = ("history", "faults", "exits", "probes")
        self.ops, self.faults, self.exits, self.probes = (
            lines(self.folder / f"{name}.jsonl") for name in names
        )
        self.dumps = {f.stem: lines(f) for f in sorted((self.folder / "logs").glob("*.jsonl"))}
        self.invoked = {o["op"]: o["t_us"] for o in self.ops if o["type"] == "invoke"}

    def acks(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (time, offset, value, time of the invocation) of each acknowledged record."""
        for o in self.ops:
            for s in o.get("sends", ()) if o["type"] == "ok" else ():
                if s["partition"] == self.partition and s.get("offset", -1) >= 0:
                    for k in range(s.get("count", 1)):
                        place = s["offset"] + k, s["value"] + k
                        yield o["t_us"], *place, self.invoked.get(o["op"], o["t_us"])

    def acked_us(self) -> int:
        """Return when the record was acknowledged."""
        return next(t for t, o, v, _ in self.acks() if (o, v) == (self.offset, self.value))

    def leaders(self, t_us: int) -> dict[str, int]:
        """Return the nodes that say at a moment that they lead, each with when it began to."""
        now: dict[str, int] = {}
        moments = [(e["t_us"], 0, e["node"], e.get("role")) for e in self.probes if "role" in e]
        moments += [(x["t_us"], 1, x["node"], "ended") for x in self.exits]
        for at, _, node, role in sorted(moments):
            if at > t_us:
                break
            if role == "leader":
                now.setdefault(node, at)
            else:
                now.pop(node, None)
        return now

    def taken_over(self, from_us: int) -> list[tuple[int, str]]:
        """Return each (time, node) from which a node led, after a moment."""
        moments = sorted({e["t_us"] for e in self.probes if e.get("role") == "leader"})
        return [
            (t, node)
            for t in moments
            if t > from_us
            for node, since in self.leaders(t).items()
            if since == t
        ]

    def lacks_in_the_end(self, node: str) -> bool:
        """Return whether the dump of a node has not got the record."""
        return not any(
            offset <= self.offset < offset + count and value + self.offset - offset == self.value
            for line in self.dumps.get(node, ())
            for offset, value, count, *_ in line.get("records", ())
        )

    def replaced_us(self) -> int | None:
        """Return when clients first got another record in its place, after its acknowledgement."""
        acked = self.acked_us()
        again = [
            t for t, o, v, _ in self.acks() if o == self.offset and v != self.value and t > acked
        ]
        for o in self.ops:
            for read in o.get("reads", ()) if o["type"] != "invoke" and o["t_us"] > acked else ():
                for offset, value, count, *_ in read.get("records", ()):
                    at = self.offset - offset
                    if read["partition"] == self.partition and 0 <= at < count:
                        again += [o["t_us"]] if value + at != self.value else []
        return min(again, default=None)

    def suspects(self) -> set[str]:
        """Return the nodes that may be the first that led without the record: those that led beside
        it, or came to lead until clients got another record, and whose logs lack it."""
        acked, replaced = self.acked_us(), self.replaced_us()
        until = replaced + PROBE_US if replaced is not None else 1 << 62
        later = [node for t, node in self.taken_over(acked) if t <= until]
        beside = self.leaders(acked)
        found = {node for node in later if self.lacks_in_the_end(node)}
        if len(beside) > 1 or not found:
            found |= {node for node in beside if self.lacks_in_the_end(node)}
        return found

    def said_late(self, suspects: set[str]) -> list[tuple[int, str]]:
        """Return when suspects said that they lead for the first time, where the record was
        already acknowledged beside another leader, or had been replaced within a probe before."""
        acked, replaced = self.acked_us(), self.replaced_us()
        beside = [(since, node) for node, since in self.leaders(acked).items()]
        later = [(t, n) for t, n in self.taken_over(acked) if replaced is None or t > replaced]
        return [(t, node) for t, node in (*beside, *later) if node in suspects]

    def ends(self, fault: dict[str, Any]) -> int:
        """Return when a fault was healed."""
        heals = [f for f in self.faults if f["action"] == "heal" and f["t_us"] >= fault["t_us"]]
        own = [f["t_us"] for f in heals if f["fault"] == fault["fault"]]
        return min(own or [f["t_us"] for f in heals] or [1 << 62])

    def faults_for(self, node: str, t_us: int) -> set[int]:
        """Return the faults that may have made a node lead at a moment: those in force on a node
        that led before, or during which its process ended, or that ended it so shortly before that
        an election may have been under way. If there are none, or if a node that led before had no
        fault, also the last that had ended on the node itself."""
        begun = [f for f in self.faults if f["action"] == "inject" and f["t_us"] <= t_us]
        out = set[int]()
        untouched = list[str]()
        for before, since in self.led_before(t_us).items():
            took = {
                f["fault"]
                for f in begun
                if before in f["nodes"]
                and (self.ends(f) >= max(t_us, since) or self.ended_in(f, before, since, t_us))
            }
            out |= took
            untouched += [] if took else [before]
        if not out or untouched:
            own = [f for f in begun if node in f["nodes"] and self.ends(f) <= t_us]
            out |= {f["fault"] for f in sorted(own, key=self.ends)[-1:]}
            shortly = t_us - ELECTION_US
            out |= {
                f["fault"]
                for f in begun
                for before in untouched
                if before in f["nodes"] and self.ended_in(f, before, shortly, t_us)
            }
        return out

    def ended_in(self, fault: dict[str, Any], node: str, from_us: int, until_us: int) -> bool:
        """Return whether the process of a node ended in a time, during a fault."""
        ended = [x["t_us"] for x in self.exits if x["node"] == node]
        until_us = min(until_us, self.ends(fault))
        return any(max(from_us, fault["t_us"]) <= t <= until_us for t in ended)

    def led_before(self, t_us: int) -> dict[str, int]:
        """Return the nodes that led just before a moment, each with when it said so last: the last
        one, and those that led beside it until then."""
        said = [e for e in self.probes if e.get("role") == "leader" and e["t_us"] < t_us]
        if not said:
            return {}
        last = max(said, key=lambda e: e["t_us"])
        return {**self.leaders(last["t_us"]), last["node"]: last["t_us"]}


def wrong_cause(folder: Path, told: Story) -> str:
    """Return why the cause of a story of a lost record is wrong, "" if it is right."""
    slow = SlowReading(folder, told.partition, told.offset, told.value)
    marked = [s for s in told.steps if s.breaks == "elected-without"]
    suspects = slow.suspects()
    named = told.steps[told.led_by].fault if 0 <= told.led_by < len(told.steps) else None
    if not marked:
        late = slow.said_late(suspects)
        if named is not None and any(named in slow.faults_for(node, t) for t, node in late):
            return ""
        return f"no leader without the record, though {sorted(suspects)} led" if suspects else ""
    (leader,) = marked
    if leader.node not in suspects:
        return f"{leader.node} is none of {sorted(suspects)}"
    if named is None:
        return "no fault is named"
    wanted = slow.faults_for(leader.node, leader.t_us)
    if named not in wanted:
        return f"{leader.node} led by fault {named}, not one of {sorted(wanted)}"
    cause, replaced = told.steps[told.cause], slow.replaced_us()
    if replaced is not None and cause.t_us > replaced:
        return f"the cause is {cause.t_us - replaced} us after another record was there"
    return ""
