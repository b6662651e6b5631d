"""The first later leader without a record, and the fault that made it lead, for systems without
traces: from what nodes answer to probes, clients, faults, exits and the logs at the end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from checker.formats.story import Span
from checker.story.evidence import ActiveFault, PartitionEvidence, RecordsRead, Sent

LAG_US: Final = 400_000
"""The most by which a probe sees a new leader late. Until then it answers clients unseen."""
CLOSE: Final = 50
"""How many offsets a leader is ahead at most of what clients have got from it."""


class MadeToLead(NamedTuple):
    """The fault that made a node lead, by its begin or, `at_end`, by its end."""

    fault: ActiveFault
    at_end: bool


class LaterLeader(NamedTuple):
    """A time in which a node led without a record. `known`: clients saw that it lacked the record
    while it led; if not, its log lacks it in the end."""

    span: Span
    known: bool


@dataclass
class _Led:
    """Answers to clients while one node led: the highest offset that it had given by each of the
    `times`, and, after the acknowledgement of a record, the lowest offset, and whether clients got
    the record (`own`) or another one in its place (`other`)."""

    span: Span
    times: list[int] = field(default_factory=list)
    highest: list[int] = field(default_factory=list)
    lowest: int = -1
    own: bool = False
    other: bool = False

    def give(self, s: Sent) -> None:
        """Note that this leader acknowledged a send."""
        self.times.append(s.t_us)
        self.highest.append(max(s.offset + s.count - 1, *self.highest[-1:], -1))

    def fits(self, s: Sent) -> bool:
        """Return whether this leader may have acknowledged a send: it gives rising offsets, and
        sends that go on at the same time may be answered in any order."""
        before = bisect_left(self.times, s.invoked_us)
        return not before or self.highest[before - 1] < s.offset

    def doubt(self, at: int) -> int:
        """Return how doubtful it is that the leader lacked the record at `at`: 0 if clients saw
        that, 1 if they saw nothing, 2 if its log seemed longer, -1 if it had the record."""
        if self.own:
            return -1
        if self.other or 0 <= self.lowest <= at:
            return 0
        return 1 if self.lowest < 0 else 2


def later_leader(
    known: PartitionEvidence, led_by: Sequence[Span], own: Sent, at: int
) -> LaterLeader | None:
    """Return the first leader after the acknowledgement `own` that lacked the record at `at`, or
    that led beside the one that acknowledged it; None if none is known."""
    led = [_Led(span) for span in sorted(led_by, key=lambda s: s.from_us)]
    value = own.value + at - own.offset
    for t_us, answer in _answers(known, at):
        here = _leader_at(led, t_us, answer)
        if here is None:
            continue
        if isinstance(answer, Sent):
            here.give(answer)
        if t_us < own.t_us:
            continue
        if isinstance(answer, Sent) and answer is not own:
            here.lowest = min(here.lowest, answer.offset) if here.lowest >= 0 else answer.offset
        if answer.offset <= at < answer.offset + answer.count:
            is_own = answer.value + at - answer.offset == value
            here.own, here.other = here.own or is_own, here.other or not is_own
    holders = _holders(known, at, value)
    later = [x for x in led if x.span.until_us > own.t_us and x.span.who not in holders]
    for most in range(3):
        for x in later:
            # An earlier leader beside the one that acknowledged may have had a longer log before.
            beside = x.span.from_us <= own.t_us and not x.other
            if x.doubt(at) == most and not (beside and most != 1):
                return LaterLeader(x.span, most == 0)
    return None


def _answers(known: PartitionEvidence, at: int) -> Iterator[tuple[int, Sent | RecordsRead]]:
    """Yield the acknowledgements, and the reads of an offset, by time."""
    reads = (r for r in known.seen if r.offset <= at < r.offset + r.count)
    both: list[Sent | RecordsRead] = [*known.sent, *reads]
    for answer in sorted(both, key=lambda each: each.t_us):
        yield answer.t_us, answer


def _leader_at(led: Sequence[_Led], t_us: int, answer: Sent | RecordsRead) -> _Led | None:
    """Return the leader that gave an answer; None if that is not clear."""
    now = [x for x in led if x.span.from_us <= t_us < x.span.until_us]
    soon = [x for x in led if t_us < x.span.from_us <= t_us + LAG_US][:1]
    if isinstance(answer, RecordsRead):
        if answer.node:
            now = [x for x in now if x.span.who == answer.node]
        return now[0] if len(now) == 1 and not soon else None
    # An offset that fits none of them is from the next leader, which no probe saw yet.
    fitting = [x for x in now if x.fits(answer)]
    close = [x for x in fitting if x.highest and answer.offset - x.highest[-1] <= CLOSE]
    clear = next((one for one in (fitting, close) if len(one) == 1), [] if fitting else soon)
    return next(iter(clear), None)


def _holders(known: PartitionEvidence, at: int, value: int) -> set[str]:
    """Return the nodes whose logs have the record in the end."""
    return {
        node
        for node, runs in known.logs.items()
        for run in runs
        for r in run.records
        if r.offset <= at < r.offset + r.count and r.value + at - r.offset == value
    }


def made_to_lead(
    faults: Sequence[ActiveFault], led_by: Sequence[Span], span: Span, by_us: int
) -> MadeToLead | None:
    """Return which fault made a node lead from the begin of `span` on: the last that began on the
    leader before it and was in force then, or ended its time; else the last that ended on the node
    itself, or on all nodes. None if there is none up to `by_us`."""
    earlier = [s for s in led_by if s.from_us < span.from_us]
    before = max(earlier, key=lambda s: (min(s.until_us, span.from_us), s.from_us), default=None)
    begun = [f for f in faults if f.from_us <= min(span.from_us, by_us)]
    if before is not None:
        took = [f for f in begun if before.who in f.nodes and _took_away(f, before, span.from_us)]
        if took:
            return MadeToLead(max(took, key=lambda f: f.from_us), at_end=False)
    ended = [f for f in begun if f.ended and f.until_us <= min(span.from_us, by_us)]
    back = [f for f in ended if span.who in f.nodes]
    if back:
        return MadeToLead(max(back, key=lambda f: f.until_us), at_end=True)
    if begun:
        last = max(begun, key=lambda f: f.from_us)
        return MadeToLead(last, at_end=False)
    return None


def _took_away(f: ActiveFault, before: Span, t_us: int) -> bool:
    """Return whether a fault on the leader `before` was in force at `t_us`, or ended its time."""
    if f.until_us < before.from_us:
        return False
    return f.until_us >= t_us or f.from_us <= before.until_us <= f.until_us + LAG_US
