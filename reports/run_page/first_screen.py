"""The first screen: a headline, lines (lost record, members that had it, cause, fault, how to
repeat the run), and the cause strip."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from checker.formats.story import RULES, StoryStep
from checker.formats.verdict import Anomaly, Verdict
from harness.formats.history import show_value
from node.core.bugs import KNOWN_BUGS
from reports import wording
from reports.evidence.model import RunFolder
from reports.run_page import head

MOST_WORDS: Final = 14
MOST_HANDLED: Final = 8
_LOST_RECORDS: Final = "acknowledged record{|s} lost"
_DIFFERING: Final = "range{ of offsets differs|s of offsets differ} between replicas"
_WHAT: Final = {
    "lost": _LOST_RECORDS,
    "tail-lost": _LOST_RECORDS,
    "unseen": "acknowledged record{|s} never read",
    "vanished": "read record{|s} lost",
    "duplicate": "record{|s} appended twice",
    "divergence": _DIFFERING,
    "divergent-tail": "log end{ differs|s differ} between replicas",
    "replicas-differ": _DIFFERING,
    "inconsistent-offsets": "offset{|s} read with two values",
    "read-beyond-hw": "record{|s} read above the high watermark",
    "stale-read": "stale read{|s}",
    "fenced-in-isr": "fenced broker{ in an ISR|s in ISRs}",
    "leader-outside-isr": "leader{|s} elected from outside the ISR",
    "membership-differs": "member{ with a wrong list|s with wrong lists}",
    "undelivered": "record{|s} never delivered",
    "not-redelivered": "unsettled record{|s} never delivered again",
    "acked-redelivered": "settled record{|s} delivered again",
    "over-delivered": "record{|s} delivered too often",
    "delivery-count": "deliver{y|ies} counted wrong",
    "delivery-order": "record{|s} delivered out of order",
    "group-skip": "record{|s} skipped by a group",
    "commit-lost": "confirmed commit{|s} forgotten",
    "position-back": "position{|s} handed over too low",
    "position-phantom": "position{|s} that nobody committed",
    "position-ahead": "position{|s} ahead of the group",
    "zombie-commit": "commit{ of a superseded owner|s of superseded owners}",
    "double-ownership": "epoch{|s} with two owners",
    "epoch-back": "epoch{|s} that went back",
    "replay-differs": "group state{ unlike its log|s unlike their logs}",
    "group-replicas-differ": "group{ differs|s differ} between replicas",
    "unexplained-exit": "process{ ended by itself|es ended by themselves}",
    "unclean-stop": "process{|es} did not stop cleanly",
}
"""The subject of a finding in the headline: of {one|several}."""
_LOST: Final = ("lost", "tail-lost", "vanished")
_STUCK: Final = {
    "no-progress": "stopped acknowledging",
    "unavailable": "acknowledged nothing although a majority was up",
    "membership-stuck": "did not get the members of its start back",
    "not-converged": "has replicas that did not converge",
    "group-stuck": "has no owner although members poll",
    "final-reads-stuck": "could not be read to its end",
}
"""What a partition does not do: how often is of no interest."""
_AFTERWARDS: Final = frozenset(_STUCK) - {"unavailable"}
"""What shows only after all faults are healed."""


class HeadLine(NamedTuple):
    """One of the lines under the headline; `rule` is what the cause breaks, `code` a command."""

    name: str
    text: str
    rule: str = ""
    code: str = ""


def headline(folder: RunFolder) -> str:
    """Word the headline of a run, in at most 14 words."""
    found = _about(folder)
    if folder.verdict is not Verdict.INVALID or found is None:
        return _of_verdict(folder)
    # The loss of the story, else the time of the finding.
    story = folder.story
    loss_us = -1 if story is None or story.loss < 0 <= found.t_us else story.loss_us
    t_us = found.t_us if loss_us < 0 else loss_us
    at_s = f"{folder.seconds(t_us):.2f} s" if t_us >= 0 else ""
    if found.name in _STUCK:
        when = f" from {at_s} on" if at_s else ""
        return f"{found.partition or 'The cluster'} {_STUCK[found.name]}{when}"
    when = f" at {at_s}" if at_s else ""
    number, what = _counted(folder, found)
    where = f"{'; first' if number > 1 else ''} in {found.partition}" if found.partition else ""
    at = f" at offset {found.offset:,}" if found.offset >= 0 and where else ""
    said = f"{number:,} {what}{when}{where}{at}"
    return said if len(said.split()) <= MOST_WORDS else f"{number:,} {what}{when}"


def _about(folder: RunFolder) -> Anomaly | None:
    """Return the finding that the story is about, else the first that broke the run."""
    broke = [a for a in folder.anomalies if a.verdict is Verdict.INVALID]
    story = folder.story
    same = (a for a in broke if story and (a.name, a.partition) == (story.about, story.partition))
    return next(same, None) or next(iter(broke), None)


def _counted(folder: RunFolder, found: Anomaly) -> tuple[int, str]:
    """Count the records or places of a finding, and word them; of lost records count all that were
    acknowledged."""
    loss = folder.result.measures.get("loss") if folder.result is not None else None
    number, what = found.count, _WHAT.get(found.name, f"time{{|s}} {found.name}")
    if found.name in _LOST and isinstance(loss, dict) and (acked := loss.get("acknowledged")):
        number, what = int(acked), _LOST_RECORDS
    return number, re.sub(r"\{(.*?)\|(.*?)\}", lambda form: form[1 + (number != 1)], what)


def _of_verdict(folder: RunFolder) -> str:
    measures = folder.result.measures if folder.result is not None else {}
    kept = measures.get("acked_records")
    took = sum(f.took_effect for f in folder.faults)
    if folder.result is None:
        return f"No verdict: {folder.info.state or 'the run'} and not judged"
    records = wording.count(kept, "acknowledged record") if isinstance(kept, int) else "All records"
    faults = wording.count(took, "fault")
    match folder.verdict:
        case Verdict.VALID:
            return f"{records} kept through {faults}"
        case Verdict.NOT_EXERCISED:
            return f"Nothing broken, but too little was done: {records}, {faults}"
        case Verdict.UNKNOWN:
            return f"Not judged to the end: {wording.count(len(folder.problems), 'problem')}"
    return f"{records}, {faults}"


def lines(folder: RunFolder) -> list[HeadLine]:
    """Return the lines under the headline: lost record, cause, fault, how to repeat the run."""
    made: list[HeadLine] = []
    if folder.verdict is Verdict.INVALID:
        made = [*_whose(folder), *_handled(folder), *_cause(folder), *_needed(folder)]
    else:
        made = [HeadLine("Verdict", head.sentence(folder)), *_silent_bugs(folder)]
    command = next(iter(head.commands(folder)), None)
    if command is not None:
        made.append(HeadLine("Repeat", command.does, code=command.line))
    return made


def _whose(folder: RunFolder) -> list[HeadLine]:
    """Name the owner of the record, or quote the finding if it is about no record."""
    story, found = folder.story, _about(folder)
    if story is None or story.offset < 0 or story.value < 0:
        text = found.message if found is not None else head.sentence(folder)
        return [HeadLine("What", text)]
    acked = ""
    if story.acknowledged_us >= 0:
        by = [s.node for s in story.steps if (s.t_us, s.kind) == (story.acknowledged_us, "ack")]
        acked = f", acknowledged at {folder.seconds(story.acknowledged_us):.3f} s"
        acked += "".join(f" by {node}" for node in by[:1])
    epoch = f" of epoch {story.epoch}" if story.epoch >= 0 else ""
    value = show_value(story.value)
    sender = f", sent by {story.client}" if story.client else ""
    where = f"offset {story.offset:,}{epoch} in {story.partition}"
    return [HeadLine("Record", f"Value {value}{sender}: {where}{acked}.")]


def _handled(folder: RunFolder) -> list[HeadLine]:
    """Name who got the record of a group and who settled it, in order."""
    spans = folder.story.spans if folder.story is not None else ()
    own = sorted((s for s in spans if s.lane in ("delivered", "settled")), key=lambda s: s.from_us)
    told = [f"{s.who} {s.what} ({folder.seconds(s.from_us):.3f} s)" for s in own]
    if len(told) > MOST_HANDLED:
        told = [*told[: MOST_HANDLED - 3], f"{len(told) - MOST_HANDLED} more", *told[-3:]]
    return [HeadLine("Members", f"{', '.join(told)}.")] if told else []


def _cause(folder: RunFolder) -> list[HeadLine]:
    step = folder.cause
    if step is None:
        return [HeadLine("Cause", _without_cause(folder))]
    when = f"{folder.seconds(step.t_us):.3f} s: "
    return [HeadLine("Cause", f"{when}{step.text}", rule=RULES.get(step.rule, step.rule))]


def _without_cause(folder: RunFolder) -> str:
    """Word a failure without a step that is known to be the cause; one of liveness by the moment
    from which nothing is acknowledged."""
    about = _about(folder)
    stuck = about is not None and about.name in _STUCK
    for broke in (s for s in folder.steps if s.breaks or (stuck and s.kind == "log")):
        return f"{folder.seconds(broke.t_us):.3f} s: {broke.text}"
    return "No step of the evidence is known to break a rule."


def _needed(folder: RunFolder) -> list[HeadLine]:
    """Name the fault that was needed, if a search has tried, else the faults that were active."""
    if folder.provenance is not None:
        tried = [c for c in folder.provenance.explained.counterfactuals if c.kind == "fault"]
        needed = [c.without.partition("(")[2].rstrip(")") for c in tried if not c.fails]
        if needed:
            each = "one of them" if len(needed) > 1 else "it"
            return [HeadLine("Fault", f"{'; '.join(needed[:6])}. Without {each} the run passes.")]
    about, story = _about(folder), folder.story
    faults = [s for s in folder.steps if s.kind == "fault"]
    if about is not None and about.name in _AFTERWARDS:
        return [HeadLine("Fault", f"Before: {_named(folder, faults)}.")] if faults else []
    made = _made_to_lead(folder)
    active = story.active if story is not None else ()
    # The fault that made the leader lead is named already.
    named = story.steps[story.led_by] if story is not None and made else None
    shown = [s for s in faults if s.fault in active and s is not named]
    if shown:
        when = "Active" if story is None or story.offset < 0 else "Active from its send to its loss"
        return [HeadLine("Fault", f"{made}{when}: {_named(folder, shown)}.")]
    if made:
        return [HeadLine("Fault", made.rstrip())]
    if folder.info.source:
        return [HeadLine("Fault", "Not known: a history alone does not say.")]
    first_us = min((s.t_us for s in folder.steps), default=0)
    earlier = [f for f in folder.faults if f.took_effect and f.start_us <= first_us][-1:]
    last = "".join(f"; the last one before: {f.title(folder.zero_us)}" for f in earlier)
    return [HeadLine("Fault", f"None was active{last}.")]


def _named(folder: RunFolder, begins: list[StoryStep]) -> str:
    names = [f"{s.name} ({folder.seconds(s.t_us):.3f} s)" for s in begins[:5]]
    more = f" and {len(begins) - 5} more" if len(begins) > 5 else ""
    return f"{wording.listing(names)}{more}"


def _made_to_lead(folder: RunFolder) -> str:
    """Name the fault that made the leader without the record lead, "" if none is known."""
    story, cause = folder.story, folder.cause
    if story is None or cause is None or not 0 <= story.led_by < len(story.steps):
        return ""
    step = story.steps[story.led_by]
    if step is cause:
        return ""
    when = f"{folder.seconds(step.t_us):.3f} s"
    ended = f"the end of {step.name}" if step.kind == "fault-end" else step.name
    return f"{cause.node} led because of {ended} ({when}). "


def _silent_bugs(folder: RunFolder) -> list[HeadLine]:
    """Name a bug that was on and did not show, with the command that finds it."""
    cluster = folder.schedule.cluster if folder.schedule is not None else None
    bugs = folder.info.bugs or (cluster.bugs if cluster is not None else ())
    codes = {b.name: b.code for b in KNOWN_BUGS}
    return [
        HeadLine(
            "Bug",
            f"{bug} was on and did not show in this run. This command searches for it:",
            code=f"{folder.program} bugs find --only {codes.get(bug, bug)}",
        )
        for bug in bugs
        if folder.verdict in (Verdict.VALID, Verdict.NOT_EXERCISED)
    ]
