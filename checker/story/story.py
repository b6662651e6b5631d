"""The story of a finding: what happened to its record, why, and which faults were active.

One builder serves every system. If brokers leave traces, the story follows the record through the
logs of the replicas, and the first event that breaks a rule of replication is the cause. Without
traces it rests on clients, faults, exits and the logs at the end, and the cause is a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from checker.formats.anomalies import AGREEMENT, LIVENESS, LOST_WRITES, OF_GROUPS
from checker.formats.story import FILE, Span, Story, StoryStep
from checker.formats.verdict import Anomaly, RunResult, Verdict
from checker.story import delivery, outside
from checker.story import evidence as evidences
from checker.story.evidence import LostDisk, PartitionEvidence, Sent
from checker.story.fault_steps import BEGINS, ENDS, ToldSteps, in_force, with_faults
from checker.story.record import RecordLife, RecordMoment, is_answered, record_at
from checker.story.rules import BrokenRule, RuleReader
from checker.story.spans import spans
from node.formats import trace
from node.formats.event_text import Event, action
from node.formats.files import write_whole

MOST_STEPS: Final = 26
AFTERWARDS: Final = 3
"""The number of steps kept after the last one that broke something."""
LOSING: Final = ("elected-without", "came-back-without", "overwritten")


def write_story(folder: Path, result: RunResult) -> Path | None:
    """Write `story.json` of a judged run and return its path; None if the run is not invalid, or no
    step is known. Raises StorageError."""
    finding = subject(result)
    target = folder / FILE
    if finding is None:
        return None
    made = build(evidences.read(folder, finding.partition), finding)
    if not made.steps:
        return None
    write_whole(target, msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
    return target


def subject(result: RunResult) -> Anomaly | None:
    """Return the finding that a story is about: of those that make the run invalid, the first with
    an offset, else the first about a partition, else the first. None if there is none."""
    broke = [found for found in result.anomalies if found.verdict is Verdict.INVALID]
    with_offset = (found for found in broke if found.partition and found.offset >= 0)
    in_partition = (found for found in broke if found.partition)
    return next(with_offset, None) or next(in_partition, None) or next(iter(broke), None)


def build(known: PartitionEvidence, finding: Anomaly) -> Story:
    """Return the story of a finding, from the evidence about its partition."""
    life, seen, members = None, outside.RecordSeen(), tuple[Span, ...]()
    if finding.property in OF_GROUPS and finding.partition != trace.GROUPS_PARTITION:
        told, seen, members = delivery.told(known, finding)
    elif known.traced:
        life = _life(known, finding)
        if life is not None and 0 <= shown_us(known, finding) < life.first_us:
            life = None  # The offset of the finding is that of a log end.
        seen = _seen(known, finding, life) if life is not None else seen
        told = _told(known, finding, life, seen)
    else:
        told, seen = outside.told(known, finding)
    kept, left_out = _shortened(told)
    cause = next((i for i, s in enumerate(kept) if s is told.cause), -1)
    loss = next((i for i, s in enumerate(kept) if s is told.loss), -1)
    led_by = next((i for i, s in enumerate(kept) if s is told.led_by), -1)
    window = (kept[0].t_us, kept[-1].t_us) if kept else (0, 0)
    clients = () if known.traced or members else outside.spans_of_clients(seen, told.loss, window)
    return Story(
        about=finding.name,
        property=finding.property,
        partition=finding.partition,
        offset=seen.offset,
        value=seen.value,
        epoch=life.record.epoch if life is not None else -1,
        client=seen.client,
        acknowledged_us=seen.acknowledged_us,
        cause=cause,
        loss=loss,
        led_by=led_by,
        active=told.active,
        loss_us=kept[loss].t_us if loss >= 0 else shown_us(known, finding),
        traced=known.traced,
        steps=tuple(kept),
        spans=(*members, *clients, *spans(known, life, window)),
        left_out=left_out,
    )


def life_of(
    events: Sequence[Event],
    offset: int,
    read_us: int | None = None,
    acks: int = -1,
    *,
    sent: Sent | None = None,
    lost_disks: Sequence[LostDisk] = (),
) -> RecordLife | None:
    """Return the life of the record at `offset`, of the one that was acknowledged to a client as
    `sent` if that is given; None if the events show no record there. `lost_disks` are
    the disks that lost it."""
    record = record_at(events, offset, acks, sent, read_us) if offset >= 0 else None
    if record is None:
        return None
    life = RecordLife(offset, record, read_us, acks, lost_disks)
    life.follow(events)
    return life


def _life(known: PartitionEvidence, finding: Anomaly) -> RecordLife | None:
    return life_of(
        known.events,
        finding.offset,
        read_of(finding),
        known.promise.acks,
        sent=outside.named_send(known, finding),
        lost_disks=known.lost_disks(finding.offset),
    )


def shown_us(known: PartitionEvidence, finding: Anomaly) -> int:
    """Return when a failure showed: when it began, if it is that something does not go on; else
    when its last witness saw it, or in the end if none did."""
    if finding.property == LIVENESS:
        return finding.t_us
    last_us = max([finding.t_us, *(w.t_us for w in finding.witnesses)])
    # A record that is lost, or that a client had read, was there at the first witness.
    seen_only = finding.property == LOST_WRITES and last_us == finding.t_us
    in_the_end = seen_only or finding.name == "vanished" or finding.property == AGREEMENT
    return max(last_us, known.end_us) if in_the_end else last_us


def read_of(finding: Anomaly) -> int | None:
    """Return when a client first read the record that vanished; None for other findings."""
    if finding.name != "vanished":
        return None
    times = [w.t_us for w in finding.witnesses if w.offset == finding.offset and w.t_us >= 0]
    return min(times, default=None)


RULES_OF: Final = {
    "hw-beyond-log": ("hw-beyond-log",),
    "early-deletion": ("deleted-early",),
    "log-hole": ("cut-inside-batch",),
    "fenced-in-isr": ("fenced-in-isr",),
    "leader-outside-isr": ("clean-election",),
    "two-leaders": ("one-vote-per-term", "one-leader-per-epoch"),
    "two-controllers": ("one-vote-per-term", "one-leader-per-epoch"),
    "read-beyond-hw": ("read-above-hw",),
    "duplicate": ("appended-twice",),
    "unexplained-exit": ("process-lives",),
    # Invariants of the simulated world, whose checker names them before the files are judged.
    "high-watermark-within-log": ("hw-beyond-log",),
    "deletes-committed": ("deleted-early",),
    "clean-election": ("clean-election",),
    "one-vote-per-term": ("one-vote-per-term",),
    "one-leader-per-epoch": ("one-vote-per-term", "one-leader-per-epoch"),
    "read-below-hw": ("read-above-hw",),
    "process-lives": ("process-lives",),
    "cluster-starts": ("cluster-starts",),
}
"""The rules that an anomaly is about: a step that breaks one of them is the cause."""


def _told(
    known: PartitionEvidence, finding: Anomaly, life: RecordLife | None, seen: outside.RecordSeen
) -> ToldSteps:
    moments = life.moments if life is not None else []
    of_record = finding.property in (LOST_WRITES, AGREEMENT)
    # What a client had read was not lost before that.
    kept_us = read_of(finding) or 0
    breaking = [m.event.t_us for m in moments if m.breaks in LOSING and m.event.t_us >= kept_us]
    lost_us = next(iter(breaking), -1)
    is_loss = finding.property == LOST_WRITES and lost_us >= 0
    until_us = lost_us if is_loss else shown_us(known, finding)
    broken = list(RuleReader(known.promise, known.damaged).read(known.events))
    cause = _cause(broken, finding, life, until_us)
    by_clients = sorted(outside.broken_by_clients(known), key=lambda b: b.event.t_us)
    by_client = _cause(by_clients, finding, life, until_us)
    if cause is None or (by_client is not None and not of_record):
        cause = by_client or cause
    if finding.name == "not-converged":
        cause = None
    of_event = {id(m.event): m for m in moments}
    if cause is not None and id(cause.event) not in of_event:
        moments = sorted([*moments, RecordMoment(cause.event)], key=lambda m: m.event.t_us)
    steps: list[tuple[StoryStep, bool]] = []
    by_cause: StoryStep | None = None
    for m in moments:
        rule = cause if cause is not None and cause.event is m.event else None
        step = step_of(m, rule)
        by_cause = step if rule is not None else by_cause
        steps.append((step, m.minor and rule is None))
    losing = next((s for s, _ in steps if s.breaks in LOSING and s.t_us >= kept_us), None)
    losing = losing or next((s for s, _ in reversed(steps) if s.breaks), None)
    steps = _ended(steps)
    if seen.acknowledged_us >= 0 and seen.value >= 0:
        since_us = seen.invoked_us
        reads = outside.reads_at(known, seen.offset, seen.value, since_us)
        steps += [(s, False) for s, _ in reads]
    if not moments or finding.property == LIVENESS:
        steps += outside.without_record(known, finding)
        by_cause = by_cause or next((s for s, _ in steps if s.rule), None)
    times = [s.t_us for s, _ in steps] or [0]
    faults = in_force(known.faults, min(times), max(times)) if steps else []
    told = with_faults(steps, faults, max(times))
    if losing is not None and by_cause is not None:
        order = [step for step, _ in told if step is losing or step is by_cause]
        losing = losing if order[-1] is losing else None
    active = _active(known, finding, seen, losing, by_cause)
    return ToldSteps(told, by_cause, losing, active=active)


def _active(
    known: PartitionEvidence,
    finding: Anomaly,
    seen: outside.RecordSeen,
    losing: StoryStep | None,
    cause: StoryStep | None,
) -> tuple[int, ...]:
    """Return the numbers of the faults in force from the sending of the record to its loss, or when
    a failure without a record began."""
    until_us = losing.t_us if losing is not None else shown_us(known, finding)
    since_us = cause.t_us if cause is not None else until_us
    if seen.invoked_us >= 0:
        since_us = seen.invoked_us
    since_us = until_us if finding.property == LIVENESS else min(since_us, until_us)
    return tuple(f.number for f in in_force(known.faults, since_us, until_us))


def _cause(
    broken: Iterable[BrokenRule], finding: Anomaly, life: RecordLife | None, until_us: int
) -> BrokenRule | None:
    """Return the first step until the failure that breaks a rule and that the record, if there is
    one, depends on."""
    found = [b for b in broken if until_us < 0 or b.event.t_us <= until_us]
    named = [b for b in found if b.rule in RULES_OF.get(finding.name, ())]
    if named or life is None:
        return next(iter(named or found), None)
    at = life.offset
    return next((b for b in found if b.low <= at < b.high), None)


def step_of(m: RecordMoment, rule: BrokenRule | None = None) -> StoryStep:
    """Return the step of a story for an event that affected the record, or that breaks a rule."""
    e = m.event
    by = "The controller" if e.event == trace.PARTITION else e.node
    why = rule.why if rule is not None else ""
    more = "" if why.startswith(": ") else m.more
    text = why[2:] if not action(e) else f"{by} {action(e)}{why}{more}"
    return StoryStep(
        t_us=e.t_us,
        text=f"{text}.",
        kind=e.event,
        node=e.node,
        breaks=m.breaks,
        rule=rule.rule if rule is not None else "",
    )


def _ended(steps: list[tuple[StoryStep, bool]]) -> list[tuple[StoryStep, bool]]:
    """Return the steps up to a few after the last that broke something."""
    last = max((i for i, (s, _) in enumerate(steps) if s.breaks or s.rule), default=len(steps))
    return steps[: last + 1 + AFTERWARDS]


def _shortened(told: ToldSteps) -> tuple[list[StoryStep], int]:
    """Return at most MOST_STEPS, and how many are left out: first minor ones, then the farthest."""
    steps, marked = told.steps, (told.cause, told.loss, told.led_by)
    kept = [step for step, minor in steps if not minor or step.kind == ENDS]
    if len(kept) <= MOST_STEPS:
        return kept, len(steps) - len(kept)
    broke = [i for i, s in enumerate(kept) if s.breaks or s.rule] or [len(kept) - 1]

    first = next((s for s in kept if s.kind in (trace.APPEND, "send")), kept[0])

    def weight(i: int) -> tuple[bool, bool, int]:
        step = kept[i]
        plain = not (step.breaks or step.rule or step is first or step in marked)
        return (plain, step.kind == ENDS, min(abs(i - b) for b in broke))

    chosen = sorted(sorted(range(len(kept)), key=weight)[:MOST_STEPS])
    short = [kept[i] for i in chosen]
    begun = {s.fault for s in short if s.kind == BEGINS}
    short = [s for s in short if s.kind != ENDS or s.fault in begun or s in marked]
    return short, len(steps) - len(short)


def _seen(known: PartitionEvidence, finding: Anomaly, life: RecordLife) -> outside.RecordSeen:
    """Return what clients saw of the record that the brokers' traces follow."""
    at, acked = finding.offset, life.acknowledged
    acked_us, client = (acked.t_us, acked.client) if acked is not None else (-1, "")
    sent = outside.named_send(known, finding)
    if acked is not None and (sent is None or not is_answered(sent, acked)):
        here = (s for s in known.sent if s.offset <= at < s.offset + s.count)
        sent = next((s for s in here if is_answered(s, acked)), None)
    if sent is None:
        named = (
            w.value for w in finding.witnesses if w.offset == at and finding.name == "vanished"
        )
        value = next(named, -1)
        return outside.RecordSeen(at, value, client, acked_us, life.first_us)
    return outside.RecordSeen(
        at, sent.value + at - sent.offset, sent.client, acked_us, sent.invoked_us
    )
