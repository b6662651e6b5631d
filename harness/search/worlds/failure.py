"""The failure that a simulated run shows, and how it came about."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from msgspec.structs import replace

from checker.formats.anomalies import AGREEMENT
from checker.formats.story import Story, StoryStep
from checker.formats.verdict import Anomaly, Verdict
from checker.story import evidence, story
from harness.search.worlds import cause
from harness.sim.run import SimResult
from node.formats.event_text import parse

UNKNOWN_CAUSE: Final = "?"
"""The cause in a bucket's name if none is known."""


def visibly_broken(result: SimResult) -> tuple[str, ...]:
    """Return the properties that the checker or an invariant visible from outside finds broken."""
    checked = [p.property for p in result.checked.properties if p.verdict is Verdict.INVALID]
    seen = [b.property for b in result.violations if b.visible]
    return tuple(dict.fromkeys([*checked, *seen]))


def failure_of(result: SimResult, about: str = "") -> Failure | None:
    """Return the first failure of a run that clients, traces or logs show, None if there is none:
    a violated invariant, else an anomaly that the checker found. With `about`, only that property
    counts."""
    seen = [violation.anomaly() for violation in result.violations if violation.visible]
    seen += [anomaly for anomaly in result.checked.anomalies if anomaly.verdict is Verdict.INVALID]
    seen += [Anomaly(property=broken, name="") for broken in visibly_broken(result)]
    first = next((anomaly for anomaly in seen if about in ("", anomaly.property)), None)
    return None if first is None else Failure(result, first, about)


class Failure:
    """A failure of a run. `first` is the violation or anomaly that shows it. `partition` and
    `offset` are those of the first lost or wrong record, or of the first difference between two
    logs; the offset is -1 if the failure is about no record."""

    def __init__(self, result: SimResult, first: Anomaly, about: str) -> None:
        self._result = result
        self._about = about
        self.first = first
        self.property = first.property
        self.partition = first.partition
        self.offset = first.offset if first.partition else -1
        if first.partition and first.offset < 0:
            self.offset = _first_difference(result, first.partition)

    @property
    def sentence(self) -> str:
        """A sentence on the failure."""
        if self._about and self.first.message:
            return f"invalid: {self.first.message}"
        return self._result.sentence

    @cached_property
    def bucket(self) -> str:
        """The class of the failure, `property: cause`. The cause is the first wrong step in the
        history of the lost or wrong record. If there is no such step, it is the name of the
        invariant or anomaly, and for logs that differ also the rule of the last truncation."""
        first, trace = self.first, self._result.trace
        how = ""
        if first.partition and first.offset >= 0:
            how = cause.of_record(self._history(), trace, first.partition)
        if not how and first.property == AGREEMENT and first.partition:
            node, until_us = "", None
            if first not in self._result.checked.anomalies:
                # An invariant is violated at one node, at a known time.
                node = next((w.node for w in first.witnesses if w.node), "")
                until_us = first.t_us if first.t_us >= 0 else None
            how = f"{first.name} {cause.of_divergence(trace, first.partition, node, until_us)}"
        return f"{first.property}: {how or first.name or UNKNOWN_CAUSE}"

    def _history(self) -> list[StoryStep]:
        """Return the history of the lost or wrong record."""
        result, here = self._result, (self.partition, self.offset)
        known = [a for a in result.checked.anomalies if (a.partition, a.offset) == here]
        read_us = next((t_us for a in known if (t_us := story.read_of(a)) is not None), None)
        events = [parse(e) for e in result.trace if e.get("partition", here[0]) == here[0]]
        life = story.life_of(events, self.offset, read_us, result.info.promise.acks)
        return [] if life is None else [story.step_of(moment) for moment in life.moments]

    def story(self) -> Story:
        """Return the story of the failure. The checker names the record; the offset of an
        invariant is often that of a log end."""
        result = self._result
        found = story.subject(result.checked)
        if self._about:
            of_it = (a for a in result.checked.anomalies if a.verdict is Verdict.INVALID)
            found = next((a for a in of_it if a.property == self._about), None)
        if found is None:
            found = replace(self.first, offset=self.offset)
        known = evidence.of(
            found.partition,
            result.info,
            events=result.trace,
            faults=result.faults,
            exits=result.exits,
            ops=result.ops,
            logs=result.logs,
        )
        return story.build(known, found)


def _first_difference(result: SimResult, partition: str) -> int:
    """Return the first offset at which two replicas have different batches; -1 if none."""
    seen: dict[int, str] = {}
    apart: list[int] = []
    for lines in result.logs.values():
        for line in lines:
            if line.partition != partition or not line.count:
                continue
            if seen.setdefault(line.offset, line.hash) != line.hash:
                apart.append(line.offset)
    return min(apart, default=-1)
