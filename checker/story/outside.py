"""Steps of a story from clients, exits and final logs, for systems with and without traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from msgspec.structs import replace

from checker.checks.findings import listing
from checker.formats.anomalies import LIVENESS, LOST_WRITES
from checker.formats.story import Span, StoryStep
from checker.formats.verdict import Anomaly
from checker.story.evidence import ActiveFault, PartitionEvidence, RecordsRead, Sent
from checker.story.fault_steps import ToldSteps, in_force, with_faults
from checker.story.later_leader import LaterLeader, later_leader, made_to_lead
from checker.story.replica_logs import ReplicaLogs
from checker.story.rules import EVERYTHING, BrokenRule
from checker.story.spans import down, led
from harness.formats.history import show_value
from harness.formats.problem import Exit
from node.formats import trace
from node.formats.event_text import EXIT, Event, action

MOST_READ: Final = 300_000
"""The most records of reads that are compared one by one."""
READ: Final = "read"
WITHOUT: Final = "elected-without"
_SAID: Final = (trace.ROLE, trace.PARTITION, trace.TRUNCATED, trace.APPEND, trace.HW, trace.ISR)
_CLOSE_US: Final = 5_000
"""The most by which times of a client and a broker may differ for one event."""


def broken_by_clients(known: PartitionEvidence) -> list[BrokenRule]:
    """Return the broken rules of replication that clients, exits or logs show."""
    found = [*_crashes(known), *_appended_twice(known), *_wrong_duplicates(known)]
    found += _after_failed_sync(known)
    if sum(s.count for s in known.seen) <= MOST_READ:
        found += [*_reads_above(known), *_reads_changed(known)]
    return found


def _crashes(known: PartitionEvidence) -> Iterator[BrokenRule]:
    for x in known.exits:
        if not x.expected:
            event = Event(EXIT, t_us=x.t_us, node=x.node, reason=f"code {x.code}")
            yield BrokenRule(event, "process-lives", "")


def _reads_above(known: PartitionEvidence) -> Iterator[BrokenRule]:
    """Yield the reads beyond what any leader had called committed by then."""
    moves = [e for e in known.events if e.event == trace.HW and e.role == "leader"]
    if not moves:
        return
    at, hw = 0, 0
    for seen in known.seen:
        while at < len(moves) and moves[at].t_us <= seen.t_us:
            hw = max(hw, moves[at].hw)
            at += 1
        end = seen.offset + seen.count
        stated = 0 <= seen.hw < hw
        limit = seen.hw if stated else hw
        if end > limit and not seen.final:
            event = Event(READ, t_us=seen.t_us, node=seen.client)
            says = f"the answer states high watermark {limit}" if stated else f"{hw} is committed"
            why = f": {_read(seen, end - 1)}, although {says}"
            yield BrokenRule(event, "read-above-hw", why, max(limit, seen.offset), end)


def _reads_changed(known: PartitionEvidence) -> Iterator[BrokenRule]:
    """Yield the reads of another value than the one that was read there first."""
    if not known.promise.committed_stays:
        return
    first: dict[int, int] = {}
    for seen in known.seen:
        for k in range(seen.count):
            offset, value = seen.offset + k, seen.value + k if seen.value >= 0 else seen.value
            if first.setdefault(offset, value) == value:
                continue
            event = Event(READ, t_us=seen.t_us, node=seen.client)
            rule = "damage-unnoticed" if value < 0 or seen.node in known.damaged else "read-changed"
            was = show_value(first[offset])
            why = f": {_read(seen, offset)}, where value {was} was read before"
            yield BrokenRule(event, rule, why, offset, offset + 1)


def _appended_twice(known: PartitionEvidence) -> Iterator[BrokenRule]:
    """Yield leaders' appends of values that the same log has at a lower offset."""
    if not known.promise.idempotent:
        return
    again: dict[int, int] = {}
    for runs in known.logs.values():
        place: dict[int, int] = {}
        for run in runs:
            for r in run.records:
                for k in range(r.count):
                    before = place.setdefault(r.value + k, r.offset + k)
                    if before != r.offset + k:
                        again[r.offset + k] = before
    appends = [e for e in known.events if e.event == trace.APPEND and e.role == "leader"]
    for e in appends:
        twice = [o for o in sorted(again) if e.base_offset <= o < e.leo]
        if twice:
            why = f", with what stands at offset {again[twice[0]]} already"
            yield BrokenRule(e, "appended-twice", why)


def _after_failed_sync(known: PartitionEvidence) -> Iterator[BrokenRule]:
    """Yield high watermarks over records that a leader wrote while its disk could not sync."""
    if known.promise.flush != "sync":
        return
    for f in known.faults:
        if f.what != "fsync-error":
            continue
        inside = [e for e in known.events if e.node in f.nodes and f.from_us < e.t_us <= f.until_us]
        wrote = [e for e in inside if e.event == trace.APPEND and e.role == "leader"]
        moves = [e for e in inside if e.event == trace.HW and e.role == "leader"]
        for e in moves:
            own = [w for w in wrote if w.base_offset < e.hw <= w.leo and w.node == e.node]
            if own:
                why = ", although its disk could not sync them"
                yield BrokenRule(e, "synced-after-error", why, own[0].base_offset, own[0].leo)


def _wrong_duplicates(known: PartitionEvidence) -> Iterator[BrokenRule]:
    """Yield answers to duplicate sends with an offset where the log has another record."""
    held = {
        r.offset + k: r.value + k
        for runs in known.logs.values()
        for run in runs
        for r in run.records
        for k in range(r.count)
    }
    for e in (e for e in known.events if e.event == trace.DUPLICATE):
        from_us = e.t_us - _CLOSE_US
        answered = (s for s in known.sent if s.offset == e.base_offset and s.t_us >= from_us)
        s = next((s for s in answered if held.get(s.offset, s.value) != s.value), None)
        if s is not None:
            why = f", although value {show_value(held[s.offset])} stands there"
            yield BrokenRule(e, "duplicate-not-in-log", why, e.base_offset, e.leo)


def _read(seen: RecordsRead, offset: int) -> str:
    value = seen.value + offset - seen.offset if seen.value >= 0 else seen.value
    shown = f"value {show_value(value)}" if value >= 0 else "a damaged record"
    return f"{seen.client} reads {shown} at offset {offset}{f' from {seen.node}' * bool(seen.node)}"


def reads_at(
    known: PartitionEvidence, at: int, own: int, since_us: int
) -> Iterator[tuple[StoryStep, bool]]:
    """Yield the first read at the offset `at` from `since_us` on that returned the value `own`, and
    the first that returned another value there; with each, whether it returned `own`."""
    shown: set[bool] = set()
    for seen in known.seen:
        if seen.t_us < since_us or not seen.offset <= at < seen.offset + seen.count:
            continue
        is_own = seen.value + at - seen.offset == own
        if is_own in shown:
            continue
        shown.add(is_own)
        text = f"{_read(seen, at)}{'' if is_own else ': another record'}."
        yield StoryStep(t_us=seen.t_us, text=text, kind=READ, node=seen.node), is_own


def passed_over(known: PartitionEvidence, at: int, since_us: int) -> StoryStep | None:
    """Return the first read after `since_us` that goes on behind the offset `at` where its client,
    or the same answer, had all before it; None if there is none."""
    last: dict[str, RecordsRead] = {}
    for seen in known.seen:
        before = last.get(seen.client)
        last[seen.client] = seen
        if before is None or seen.t_us < since_us:
            continue
        end = before.offset + before.count
        if end <= at < seen.offset and (end == at or before.op == seen.op):
            text = f"{seen.client} reads offset {seen.offset:,} after offset {end - 1:,}."
            return StoryStep(t_us=seen.t_us, text=text, kind=READ, node=seen.node, breaks="gone")
    return None


def without_record(known: PartitionEvidence, finding: Anomaly) -> list[tuple[StoryStep, bool]]:
    """Return the steps of a story about no record, such as the last acknowledgement; each with
    whether a shortened story leaves it out."""
    made: list[StoryStep] = []
    before = [s for s in known.sent if s.t_us <= finding.t_us]
    later = [s for s in known.sent if s.t_us > finding.t_us]
    after = next(iter(later), None) if finding.name == "unavailable" else None
    if finding.property == LIVENESS and before:
        more = ": the last one" if after is None else ": the last one before the silence"
        made.append(sent_step(before[-1], before[-1].offset, more))
    if finding.name in ("no-progress", "unavailable") and finding.t_us >= 0 and known.sent:
        since_us = finding.t_us if after is not None else max(finding.t_us, known.sent[-1].t_us)
        made += _stuck(known, since_us, after)
    if finding.name == "not-converged":
        ends = ", ".join(f"{n} at {leo}" for n, leo in sorted(_ends(known).items()))
        text = f"The logs end with {ends}."
        made.append(StoryStep(t_us=finding.t_us, text=text, kind="log", rule="not-converged"))
    return [(step, False) for step in made]


def _ends(known: PartitionEvidence) -> dict[str, int]:
    logs = ReplicaLogs()
    for e in known.events:
        (logs.append if e.event == trace.APPEND else logs.observe)(e)
    return {node: log.leo for node, log in logs.logs.items()}


def _stuck(known: PartitionEvidence, since_us: int, after: Sent | None) -> Iterator[StoryStep]:
    """Yield the moment from which no send is acknowledged, and the send `after` which that ended;
    if there is none, the last step of the replicas."""
    last = next((e for e in reversed(known.events) if e.node and e.event in _SAID), None)
    if after is None and known.traced and last is not None and (what := action(last)):
        by = "The controller" if last.event == trace.PARTITION else last.node
        text = f"{by} {what}: the last step of a replica or the controller."
        yield StoryStep(t_us=last.t_us, text=text, kind=last.event, node=last.node)
    off = {s.who for s in down(known, known.end_us) if s.from_us <= since_us < s.until_us}
    up = sorted({*known.logs, *(e.node for e in known.events if e.event == trace.ROLE)} - off)
    hit = listing(sorted({f.what for f in known.faults if f.from_us <= since_us < f.until_us}))
    said = [f"{listing(up)} {'is' if len(up) == 1 else 'are'} up" if up else "no node is up"]
    said += [f"{listing(sorted(off))} {'is' if len(off) == 1 else 'are'} down"] if off else []
    said.append(f"faults in force: {hit}" if hit else "no fault is in force")
    long = "from here to the end of the run"
    if after is not None:
        long = f"for {(after.t_us - since_us) / 1e6:.3f} s"
        yield sent_step(after, after.offset, ": the first one after it")
    text = f"No send is acknowledged {long}; here {', '.join(said)}."
    yield StoryStep(t_us=since_us, text=text, kind="log")
    if after is None and known.end_us > since_us:
        text = "The run ends without another acknowledgement."
        yield StoryStep(t_us=known.end_us, text=text, kind="end")


def sent_step(s: Sent, offset: int, more: str = "") -> StoryStep:
    """Return the step at which the record at an offset was acknowledged to its sender."""
    value = show_value(s.value + offset - s.offset)
    text = f"{s.client}'s send of value {value} is acknowledged at offset {offset}{more}."
    return StoryStep(t_us=s.t_us, text=text, kind="send", node=s.client)


class RecordSeen(NamedTuple):
    """A record as clients saw it, with the client that sent it, and when; -1 and "" stand for
    unknown."""

    offset: int = -1
    value: int = -1
    client: str = ""
    acknowledged_us: int = -1
    invoked_us: int = -1


def told(known: PartitionEvidence, finding: Anomaly) -> tuple[ToldSteps, RecordSeen]:
    """Return the steps of the story of a finding, for a system that leaves no traces, and its
    record as clients saw it."""
    own, led_by = own_send(known, finding), _stretches(led(known, known.end_us))
    if own is None:
        return _told_without_record(known, finding, led_by), RecordSeen()
    value = own.value + finding.offset - own.offset
    seen = RecordSeen(finding.offset, value, own.client, own.t_us, own.invoked_us)
    steps = [*_of_record(known, led_by, own, seen), *_exits(known)]
    steps.sort(key=lambda s: s.t_us)
    gone = next((s for s in steps if s.breaks and s.t_us >= own.t_us), None)
    if gone is None and finding.property == LOST_WRITES:
        gone = passed_over(known, finding.offset, own.t_us)
        steps = sorted([*steps, *([gone] if gone else [])], key=lambda s: s.t_us)
    last_us = gone.t_us if gone is not None else max(s.t_us for s in steps)
    without = later_leader(known, led_by, own, finding.offset)
    steps += _leaders(known, led_by, without, own.t_us)
    faults = [f for f in known.faults if f.from_us <= last_us]
    made = made_to_lead(faults, led_by, without.span, last_us) if without is not None else None
    lost = made.fault if made is not None else _which_lost(known, faults, led_by, steps, last_us)
    shown = [f for f in faults if f.until_us >= own.invoked_us or f is lost]
    # Before the record only leaders matter, and only from these faults on.
    since_us = min([own.t_us, *(f.from_us for f in shown)])
    steps = [
        step
        for step in steps
        if step.t_us >= (since_us if step.kind == trace.ROLE else own.t_us) or step.kind == "send"
    ]
    both = with_faults(((s, False) for s in sorted(steps, key=lambda s: s.t_us)), shown, last_us)
    led_at = next((s for s, _ in both if s.breaks == WITHOUT and s.t_us <= last_us), None)
    of_fault = [s for s, _ in both if lost is not None and s.fault == lost.number]
    by_fault = of_fault[-1] if made is not None and made.at_end else next(iter(of_fault), None)
    broke = next((s for s, _ in both if s.rule and s.t_us <= last_us), None)
    cause = broke or led_at or by_fault
    # The record is lost when a leader without it leads, and clients find that later.
    until_us = max(own.t_us, led_at.t_us) if led_at is not None else last_us
    active = tuple(f.number for f in in_force(shown, own.invoked_us, until_us))
    both = [
        (s, m and s is not cause and s is not by_fault) for s, m in _thinned(both, cause, last_us)
    ]
    return ToldSteps(both, cause, gone, by_fault, active), seen


def _told_without_record(
    known: PartitionEvidence, finding: Anomaly, led_by: list[Span]
) -> ToldSteps:
    """Return the steps of a story about no record."""
    steps = [*_leaders(known, led_by, None, -1), *_exits(known)]
    steps += [step for step, _ in without_record(known, finding)]
    steps.sort(key=lambda s: s.t_us)
    last_us = max((s.t_us for s in steps), default=max(finding.t_us, known.heal_us))
    at_us = finding.t_us if finding.t_us >= 0 else last_us
    first_us = min((s.t_us for s in steps), default=0)
    faults = in_force(known.faults, first_us, last_us) or in_force(known.faults, 0, last_us)
    active = in_force(faults, at_us, at_us)
    both = with_faults(((s, False) for s in steps), faults, last_us)
    wanted = (active or [f for f in faults if f.from_us <= at_us])[-1:]
    by_fault = next((s for s, _ in both if wanted and s.fault == wanted[0].number), None)
    cause = next((s for s in steps if s.rule and s.t_us <= at_us), by_fault)
    return ToldSteps(
        _thinned(both, cause, last_us), cause, None, None, tuple(f.number for f in active)
    )


def _thinned(
    steps: Iterable[tuple[StoryStep, bool]], cause: StoryStep | None, last_us: int
) -> list[tuple[StoryStep, bool]]:
    """Call minor all but the last in-sync set before the cause, for such sets come and go, and who
    leads or is in sync after `last_us`, when the record was found gone."""
    known = list(steps)
    cause_us = cause.t_us if cause is not None else -1
    named = [s for s, _ in known if s.kind == trace.ISR and s.t_us < cause_us]
    come_and_go = (trace.ROLE, trace.ISR)
    return [
        (s, minor or s in named[:-1] or (s.kind in come_and_go and s.t_us > last_us))
        for s, minor in known
    ]


def _stretches(spans: Iterable[Span]) -> list[Span]:
    """Return the times in which nodes led, each over all its epochs."""
    made: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.who, s.from_us)):
        if made and (made[-1].who, made[-1].until_us) == (span.who, span.from_us):
            made[-1] = replace(made[-1], until_us=span.until_us)
        else:
            made.append(span)
    return sorted(made, key=lambda s: s.from_us)


def _exits(known: PartitionEvidence) -> Iterator[StoryStep]:
    """Yield the ends of processes that neither a fault nor the harness asked for."""
    for x in (x for x in known.exits if not x.expected):
        text = f"{x.node} {how_exited(x)}."
        yield StoryStep(t_us=x.t_us, text=text, kind=EXIT, node=x.node, rule="process-lives")


def how_exited(x: Exit) -> str:
    """Word the end of a process that is not expected."""
    if x.by == "stop":
        return f"exits with code {x.code} when it is stopped"
    return f"exits by itself with code {x.code}"


def _of_record(
    known: PartitionEvidence, led_by: list[Span], own: Sent, seen: RecordSeen
) -> Iterator[StoryStep]:
    at, value = seen.offset, seen.value
    yield sent_step(own, at, led_then(known, led_by, own.t_us))
    others = [s for s in known.sent if _covers(s, at) and s.value + at - s.offset != value]
    for before in [s for s in others if s.t_us <= own.t_us][-1:]:
        yield sent_step(before, at, f"{led_then(known, led_by, before.t_us)}: another record")
    again = [s for s in others if s.t_us > own.t_us]
    if again:
        more = f"{led_then(known, led_by, again[0].t_us)}: the offset is given again"
        yield replace(sent_step(again[0], at, more), breaks="overwritten")
    for read, is_own in reads_at(known, at, value, own.invoked_us):
        yield read if is_own else replace(read, breaks="read-other")
    yield from _held_at_end(known, at, value)


def spans_of_clients(
    seen: RecordSeen, gone: StoryStep | None, window: tuple[int, int]
) -> list[Span]:
    """Return the spans from the acknowledgement of a record until clients found it `gone`, and
    after that if another record took its place."""
    if seen.acknowledged_us < 0:
        return []
    from_us = seen.acknowledged_us
    until = max(from_us, gone.t_us if gone is not None else window[1])
    made = [Span(lane="holds", who="record", from_us=from_us, until_us=until)]
    if gone is not None and gone.breaks != "gone":
        made.append(Span(lane="other", who="record", from_us=until, until_us=max(until, window[1])))
    return made


def _which_lost(
    known: PartitionEvidence,
    faults: list[ActiveFault],
    led_by: list[Span],
    steps: list[StoryStep],
    last_us: int,
) -> ActiveFault | None:
    """Return which fault lost a record of which no later leader is known to lack it: the first that
    lost unsynced writes of a disk; else the last one on a leader, after clients last saw the
    record, before the next node led; else the last of all."""
    kept = [s.t_us for s in steps if s.t_us < last_us and s.kind in (READ, "send") and not s.breaks]
    seen_us = max(kept, default=0)
    disks = [f for f in faults if f.loses]
    since = [f for f in faults if f.until_us >= seen_us] or faults
    next_us = min((s.from_us for s in led_by if s.from_us > seen_us), default=EVERYTHING)
    on_leader = [f for f in since if hits_leader(f, led_by)]
    before = [f for f in on_leader if f.from_us <= next_us]
    return disks[0] if disks else next(iter((before or on_leader or since)[::-1]), None)


def hits_leader(fault: ActiveFault, led_by: list[Span]) -> bool:
    """Return whether a fault was on a node that led when it began."""
    if not led_by:
        return fault.on.startswith("leader")
    return any(s.who in fault.nodes and s.from_us <= fault.from_us <= s.until_us for s in led_by)


def _covers(s: Sent, offset: int) -> bool:
    return s.offset <= offset < s.offset + s.count


def own_send(known: PartitionEvidence, finding: Anomaly) -> Sent | None:
    """Return the acknowledged send of the record that a finding names, else the first at its
    offset."""
    named = named_send(known, finding)
    return named or next((s for s in known.sent if _covers(s, finding.offset)), None)


def named_send(known: PartitionEvidence, finding: Anomaly) -> Sent | None:
    """Return the acknowledged send that the first witness of a finding is, or whose value the first
    witness names that names one of those sent."""
    at = finding.offset
    here = [s for s in known.sent if _covers(s, at)] if at >= 0 else []
    about = [w for w in finding.witnesses if w.offset in (at, -1)]
    by_op = (s for w in about for s in here if s.op == w.op)
    by_value = (s for w in about for s in here if s.value + at - s.offset == w.value)
    return next(chain(by_op, by_value), None)


def _leaders(
    known: PartitionEvidence, led_by: list[Span], without: LaterLeader | None, own_us: int
) -> Iterator[StoryStep]:
    """Yield changes of the leader and of its in-sync set, as the nodes tell it when asked, with the
    leader `without` the record that was acknowledged at `own_us`."""
    ended = {(x.node, x.t_us) for x in known.exits}
    begun = {(s.who, s.from_us) for s in led_by}
    for s in led_by:
        named = _in_sync(known, s.who, s.from_us)
        text = f"{s.who} says that it leads{f', and{named}' if named else ''}"
        breaks, more = "", ""
        if without is not None and without.span == s:
            breaks, more = WITHOUT, _lacks(without, own_us)
        text = f"{text}{more}."
        yield StoryStep(t_us=s.from_us, text=text, kind=trace.ROLE, node=s.who, breaks=breaks)
        if s.until_us < known.end_us and (s.who, s.until_us) not in ended:
            text = f"{s.who} no longer says that it leads."
            yield StoryStep(t_us=s.until_us, text=text, kind=trace.ROLE, node=s.who)
    for e in known.events:
        if e.event == trace.ISR and e.isr and (e.node, e.t_us) not in begun:
            text = f"{e.node} names {listing(sorted(e.isr))} in sync."
            yield StoryStep(t_us=e.t_us, text=text, kind=trace.ISR, node=e.node)


def _lacks(without: LaterLeader, own_us: int) -> str:
    if without.span.from_us <= own_us:
        return ": it never gets the record"
    return ", without the record" if without.known else "; in the end its log lacks the record"


def _in_sync(known: PartitionEvidence, leader: str, t_us: int) -> str:
    """Continue a sentence about a leader with the in-sync set that it named last."""
    said = (e for e in known.events if e.event == trace.ISR and e.t_us <= t_us)
    named = [e.isr for e in said if e.node == leader][-1:]
    return f" names {listing(sorted(named[0]))} in sync" if named and named[0] else ""


def led_then(known: PartitionEvidence, led_by: list[Span], t_us: int) -> str:
    """Continue a sentence with who led at a time, "" if that is not known."""
    leaders = sorted(s.who for s in led_by if s.from_us <= t_us < s.until_us)
    if len(leaders) == 1:
        named = _in_sync(known, leaders[0], t_us)
        return f" while {leaders[0]} leads{f' and{named}' if named else ''}"
    return f" while {listing(leaders)} say that they lead" if leaders else ""


def _held_at_end(known: PartitionEvidence, at: int, value: int) -> list[StoryStep]:
    held: dict[str, list[str]] = {"the record": [], "another record": [], "nothing": []}
    for node, runs in sorted(known.logs.items()):
        found = {
            r.value + at - r.offset
            for run in runs
            for r in run.records
            if r.offset <= at < r.offset + r.count
        }
        what = "nothing" if not found else "the record" if value in found else "another record"
        held[what].append(node)
    parts = [
        f"{listing(nodes)} {'holds' if len(nodes) == 1 else 'hold'} {what}"
        for what, nodes in held.items()
        if nodes
    ]
    text = f"At offset {at}, in the end, {'; '.join(parts)}."
    breaks = "" if held["the record"] else "gone"
    return [StoryStep(t_us=known.end_us, text=text, kind="log", breaks=breaks)] if parts else []
