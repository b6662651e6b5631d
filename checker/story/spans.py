"""The spans of the strip of causes: faults, leaders, processes down, and holders of the record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from checker.checks.findings import listing
from checker.formats.story import Span
from checker.story.evidence import PartitionEvidence
from checker.story.record import RecordLife
from node.formats import trace

MOST_SPANS: Final = 200


def spans(known: PartitionEvidence, life: RecordLife | None, window: tuple[int, int]) -> list[Span]:
    """Return the spans in the `window` of time, with a small margin around it, cut at its ends."""
    low, high = window
    margin = max(1_000, (high - low) // 20)
    low, high = max(0, low - margin), high + margin
    found = [*_faults(known), *led(known, high), *down(known, high)]
    if life is not None:
        found += [
            Span(
                lane="holds" if h.own else "other",
                who=h.node,
                from_us=h.from_us,
                # The last state is kept until the end of the strip.
                until_us=h.until_us if h.until_us < known.events[-1].t_us else high,
            )
            for h in life.held
        ]
    cut = []
    for span in found:
        start, end = max(low, span.from_us), min(high, span.until_us)
        if start <= end:
            cut.append(replace(span, from_us=start, until_us=end))
    return cut[:MOST_SPANS]


def _faults(known: PartitionEvidence) -> Iterator[Span]:
    for f in known.faults:
        who = listing(list(f.nodes)) or f.on
        yield Span(lane="fault", who=who, from_us=f.from_us, until_us=f.until_us, what=f.what)


def led(known: PartitionEvidence, last_us: int) -> Iterator[Span]:
    """Yield a span for each time in which a node believed it led; `last_us` ends the last."""
    open_: dict[str, tuple[int, int]] = {}
    # A process ends after all its events of the same moment.
    moments = [(x.t_us, 1, x.node, -1, False) for x in known.exits]
    moments += [
        (e.t_us, 0, e.node, e.leader_epoch, e.role == "leader")
        for e in known.events
        if e.event == trace.ROLE
    ]
    for t_us, _, node, epoch, leads in sorted(moments, key=lambda m: m[:2]):
        if node in open_ and (not leads or open_[node][1] != epoch):
            start, was = open_.pop(node)
            yield Span(lane="led", who=node, from_us=start, until_us=t_us, epoch=was)
        if leads:
            open_.setdefault(node, (t_us, epoch))
    for node, (start, epoch) in sorted(open_.items()):
        yield Span(lane="led", who=node, from_us=start, until_us=last_us, epoch=epoch)


def down(known: PartitionEvidence, last_us: int) -> Iterator[Span]:
    """Yield a span for each time in which a node had no process; `last_us` ends the last."""
    starts: dict[str, list[int]] = {}
    for e in known.events:
        if e.event == trace.STARTED:
            starts.setdefault(e.node, []).append(e.t_us)
    for x in known.exits:
        undone = (f.until_us for f in known.faults if x.node in f.nodes and f.until_us > x.t_us)
        again = next((t for t in starts.get(x.node, ()) if t > x.t_us), None)
        if again is None:
            again = last_us if starts else min(undone, default=last_us)
        if starts or x.by != "stop":
            yield Span(lane="down", who=x.node, from_us=x.t_us, until_us=max(again, x.t_us))
