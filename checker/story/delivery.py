"""The story of a finding about a consumer group: who had the record when, how often it was
delivered, who settled it, and how far the group was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from checker.formats.anomalies import DELIVERY
from checker.formats.story import Span, StoryStep
from checker.formats.verdict import Anomaly
from checker.story import outside
from checker.story.evidence import ActiveFault, MemberOp, PartitionEvidence
from checker.story.fault_steps import BEGINS, ToldSteps, with_faults
from checker.story.outside import RecordSeen
from checker.story.spans import led
from harness.formats.history import DeliveredRun, show_value

RULE_OF: Final = {
    "acked-redelivered": "settled-again",
    "undelivered": "never-delivered",
    "not-redelivered": "never-delivered",
    "group-skip": "never-delivered",
    "position-ahead": "never-delivered",
    "delivery-order": "delivered-in-order",
    "over-delivered": "counted-on",
    "delivery-count": "counted-on",
    "commit-lost": "position-kept",
    "position-back": "position-kept",
    "position-phantom": "position-kept",
    "zombie-commit": "owner-commits",
    "double-ownership": "one-owner",
    "epoch-back": "epochs-rise",
}
"""The rule that each anomaly of a group breaks."""
ABSENT: Final = ("undelivered", "not-redelivered")
"""What never comes shows at the end of the drain."""
_SAID: Final = {"ok": "confirmed", "fail": "refused", "info": "not known to be confirmed"}


class Handling(NamedTuple):
    """An operation of a member on the record: the run that names it, and its place there."""

    op: MemberOp
    run: DeliveredRun
    place: int


def told(
    known: PartitionEvidence, finding: Anomaly
) -> tuple[ToldSteps, RecordSeen, tuple[Span, ...]]:
    """Return the steps of the story of a finding about a group, its record as clients saw it, and
    the spans of members and of the group's position."""
    seen = _record(known, finding)
    handled = list(_handled(known, seen))
    wrong_us = _shown_us(known, finding, handled)
    steps = [(_handling_step(h, seen), False) for h in handled]
    if (own := outside.own_send(known, finding)) is not None and seen.client:
        leads = outside.led_then(known, list(led(known, known.end_us)), own.t_us)
        steps.append((outside.sent_step(own, seen.offset, leads), False))
    holders = {h.op.said.member for h in handled}
    steps += [(s, False) for s in _departures(known, holders, wrong_us)]
    cited = {w.op for w in finding.witnesses}
    moves = list(_moves(known))
    if RULE_OF.get(finding.name) == "position-kept":
        cited |= _highest_commit(moves, known.partition, wrong_us)
    for op in moves:
        about = op.said.op in cited or op.said.f == "assign"
        steps.append((_position_step(op, known.partition), not about))
    told_of = {op.said.op for op in moves} | {h.op.said.op for h in handled}
    others = [op for op in known.of_group if op.said.op in cited - told_of]
    steps += [(_other_step(op, known.partition), False) for op in others]
    if finding.name in ABSENT:
        steps.append((_never(wrong_us, finding.name), False))
    steps = [(s, minor) for s, minor in steps if s.t_us <= wrong_us]
    steps.sort(key=lambda pair: pair[0].t_us)
    broken = _broken(steps, wrong_us, RULE_OF.get(finding.name, ""))
    fault = _fault(known, _right_us(known, finding, handled, wrong_us), wrong_us)
    since_us = min((s.t_us for s, _ in broken), default=0)
    faults = [f for f in known.faults if f.until_us >= since_us and f.from_us <= wrong_us]
    both = with_faults(broken, faults, wrong_us)
    loss = next((s for s, _ in both if s.rule), None)
    cause = next(
        (s for s, _ in both if fault and (s.fault, s.kind) == (fault.number, BEGINS)), loss
    )
    told = ToldSteps(both, cause, loss, None, tuple(f.number for f in faults))
    return told, seen, (*_held(known, handled, wrong_us), *_positions(known, wrong_us))


def _record(known: PartitionEvidence, finding: Anomaly) -> RecordSeen:
    """Return the record that a finding is about; one without offset is known by its value."""
    own = outside.own_send(known, finding)
    value = next((w.value for w in finding.witnesses if w.value >= 0), -1)
    if finding.property == DELIVERY or finding.name == "position-ahead":
        if own is None:
            return RecordSeen(finding.offset, value)
        if min(own.offset, finding.offset) >= 0:
            value = own.value + finding.offset - own.offset
        return RecordSeen(finding.offset, value, own.client, own.t_us, own.invoked_us)
    return RecordSeen()


def _handled(known: PartitionEvidence, seen: RecordSeen) -> Iterator[Handling]:
    """Yield the operations of members that name a record."""
    for op in known.of_group:
        runs = (r for d in op.said.deliveries if d.partition == known.partition for r in d.records)
        for run in runs:
            by_offset = min(seen.offset, run.offset) >= 0
            at, first = (seen.offset, run.offset) if by_offset else (seen.value, run.value)
            if 0 <= first <= at < first + run.count:
                yield Handling(op, run, at - first)


def _handling_step(h: Handling, seen: RecordSeen) -> StoryStep:
    said, member = h.op.said, h.op.said.member
    value = show_value(h.run.value + h.place if h.run.value >= 0 else seen.value)
    if said.f == "poll":
        times = f", as delivery {h.run.times} of it" if h.run.times else ""
        text = f"{member} gets value {value}{times}."
    elif said.f == "ack":
        text = f"{member} acks value {value}: {_SAID.get(said.type, _SAID['info'])}."
    else:
        back = "gives value {} back" if said.requeue else "drops value {}"
        text = f"{member} {back.format(value)}: {_SAID.get(said.type, _SAID['info'])}."
    return StoryStep(t_us=said.t_us, text=text, kind=said.f, node=member)


def _departures(known: PartitionEvidence, holders: set[str], last_us: int) -> Iterator[StoryStep]:
    """Yield how members that had the record left the group."""
    for op in known.of_group:
        said = op.said
        if said.f in ("crash", "leave") and said.member in holders and said.t_us <= last_us:
            text = f"{said.member} {'crashes' if said.f == 'crash' else 'leaves the group'}."
            yield StoryStep(t_us=said.t_us, text=text, kind=said.f, node=said.member)


def _moves(known: PartitionEvidence) -> Iterator[MemberOp]:
    """Yield commits, fetches and assignments of the partition."""
    for op in known.of_group:
        named = known.partition in op.said.partitions
        stated = any(p.partition == known.partition for p in op.said.positions)
        if (op.said.f == "assign" and named) or (op.said.f in ("commit", "position") and stated):
            yield op


def _highest_commit(moves: Sequence[MemberOp], partition: str, before_us: int) -> set[int]:
    """Return the operation that had the highest position confirmed by a time; none if none had."""
    confirmed = [
        (at.offset, -op.said.t_us, op.said.op)
        for op in moves
        if (op.said.f, op.said.type) == ("commit", "ok") and op.said.t_us <= before_us
        for at in op.said.positions
        if at.partition == partition
    ]
    return {number for _, _, number in (max(confirmed),)} if confirmed else set()


def _position_step(op: MemberOp, partition: str) -> StoryStep:
    said = op.said
    at = next((p.offset for p in said.positions if p.partition == partition), -1)
    where = f"position {at}" if at >= 0 else "no position"
    epoch = f" in epoch {said.epoch}" if said.epoch >= 0 else ""
    match said.f:
        case "commit":
            text = f"{said.member} commits {where}{epoch}: {_SAID.get(said.type, _SAID['info'])}."
        case "assign":
            start = f", from position {at} on" if at >= 0 else ""
            text = f"{said.member} owns {partition}{epoch}{start}."
        case _:
            text = f"{said.member or said.client} is told that the group is at {where}{epoch}."
    return StoryStep(t_us=said.t_us, text=text, kind=said.f, node=said.member)


def _shown_us(known: PartitionEvidence, finding: Anomaly, handled: Iterable[Handling]) -> int:
    """Return when a finding shows: at its last witness, or at the end of the drain."""
    if finding.name in ABSENT:
        return max([known.end_us, *(op.said.t_us for op in known.of_group)])
    cited = {w.op for w in finding.witnesses}
    own = [h.op.said.t_us for h in handled if h.op.said.op in cited and h.op.said.f == "poll"]
    shown = [w.t_us for w in finding.witnesses if w.t_us >= 0]
    return max(own or shown, default=max(finding.t_us, 0)) or known.end_us


def _right_us(
    known: PartitionEvidence, finding: Anomaly, handled: Iterable[Handling], wrong_us: int
) -> int:
    """Return when the group last knew better: at the last confirmed ack or commit before the
    finding shows, or at the last delivery of what never comes again."""
    kinds = ("poll",) if finding.name in ABSENT else ("ack", "nack", "poll")
    right = [h.op.said.t_us for h in handled if h.op.said.f in kinds and h.op.said.type == "ok"]
    right += [op.said.t_us for op in _moves(known) if (op.said.f, op.said.type) == ("commit", "ok")]
    return max((t for t in right if t < wrong_us), default=0)


def _other_step(op: MemberOp, partition: str) -> StoryStep:
    """Return the step of an operation that a finding names, and that names other records."""
    said = op.said
    runs = [r for d in said.deliveries if d.partition == partition for r in d.records]
    text = f"{said.member}: {said.f}."
    if runs:
        does = "gets" if said.f == "poll" else f"{said.f}s"
        text = f"{said.member} {does} {', '.join(map(_places, runs[:4]))}."
    return StoryStep(t_us=said.t_us, text=text, kind=said.f, node=said.member)


def _places(run: DeliveredRun) -> str:
    what, first = ("value", run.value) if run.offset < 0 else ("offset", run.offset)
    return f"{what} {first}" if run.count == 1 else f"{what}s {first} to {first + run.count - 1}"


def _never(at_us: int, name: str) -> StoryStep:
    again = " again" if name == "not-redelivered" else ""
    text = f"The drain is over, and no member got the record{again}."
    return StoryStep(t_us=at_us, text=text, kind="log")


def _broken(
    steps: list[tuple[StoryStep, bool]], wrong_us: int, rule: str
) -> list[tuple[StoryStep, bool]]:
    """Return the steps with the one that breaks a rule marked: the last at that time."""
    last = max((i for i, (s, _) in enumerate(steps) if s.t_us == wrong_us), default=-1)
    marked = list(steps)
    if last >= 0:
        step = steps[last][0]
        as_ = {f: getattr(step, f) for f in ("t_us", "text", "kind", "node")}
        marked[last] = StoryStep(**as_, rule=rule, breaks=rule), False
    return marked


def _fault(known: PartitionEvidence, right_us: int, wrong_us: int) -> ActiveFault | None:
    """Return the first fault that began between the two times, else the last one in force; if any
    were on a leader of the group, of these, else of those on a leader of the partition."""
    near = [f for f in known.faults if f.from_us <= wrong_us and f.until_us >= right_us]
    for events in (known.group_events, known.events):
        leads = list(led(replace(known, events=events), known.end_us))
        near = [f for f in near if outside.hits_leader(f, leads)] or near
    since = [f for f in near if f.from_us >= right_us]
    return next(iter(since or near[::-1]), None)


def _held(known: PartitionEvidence, handled: list[Handling], last_us: int) -> Iterator[Span]:
    gone = [op.said for op in known.of_group if op.said.f in ("crash", "leave")]
    for h in handled:
        said = h.op.said
        if said.t_us > last_us:
            continue
        if said.f != "poll":
            what = f"{said.f} {said.type}"
            yield Span(
                lane="settled", who=said.member, from_us=said.t_us, until_us=said.t_us, what=what
            )
            continue
        ends = [x.op.said.t_us for x in handled if x.op.said.member == said.member]
        ends += [each.t_us for each in gone if each.member == said.member]
        until = min((t for t in ends if t > said.t_us), default=last_us)
        what = f"delivery {h.run.times}" if h.run.times else "delivered"
        yield Span(lane="delivered", who=said.member, from_us=said.t_us, until_us=until, what=what)


def _positions(known: PartitionEvidence, last_us: int) -> Iterator[Span]:
    stated = [
        (op.said.t_us, p.offset)
        for op in _moves(known)
        for p in op.said.positions
        if p.partition == known.partition and op.said.type == "ok" and op.said.t_us <= last_us
    ]
    ends = [t for t, _ in stated[1:]] + [max(last_us, stated[-1][0])] if stated else []
    for (from_us, offset), until in zip(stated, ends, strict=True):
        yield Span(lane="position", who="group", from_us=from_us, until_us=until, what=str(offset))
