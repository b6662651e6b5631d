"""The verdict in one sentence, which claims no more than was examined and counts every loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from checker.checks.findings import LossCount, agreeing, listing, plural
from checker.evidence.run_meta import RunMeta
from checker.formats.anomalies import AGREEMENT, DELIVERY, LOST_WRITES, RANK
from checker.formats.verdict import Anomaly, PropertyResult, Verdict
from nemesis.faults import KINDS
from nemesis.faults.kind import FaultKind

_LOSSES: Final = ("lost", "vanished", "tail-lost")
_COUNTED: Final = ("lost", "tail-lost")
"""The losses whose message says how many acknowledged records are lost."""
_NO_MENTION: Final = ("hw-regression", *_LOSSES, "unseen")
"""Allowed anomalies that the end of the sentence does not name: it counts their records."""


@dataclass(frozen=True)
class Judgement:
    """The input of a sentence. Properties and anomalies are sorted by importance; `problems` are
    the reasons why a run is unknown; `losses` are by partition."""

    meta: RunMeta
    verdict: Verdict
    properties: Sequence[PropertyResult]
    anomalies: Sequence[Anomaly]
    problems: Sequence[str]
    measures: Mapping[str, Any]
    losses: Mapping[str, LossCount]

    @property
    def loss(self) -> LossCount:
        """The sums of the losses of all partitions."""
        return LossCount(*map(sum, zip(*self.losses.values(), strict=True)))


def sentence(judged: Judgement) -> str:
    """Return the verdict in one sentence. It names the most important anomaly."""
    match judged.verdict:
        case Verdict.VALID:
            return _held(judged)
        case Verdict.UNKNOWN:
            reasons = [p.reason for p in judged.properties if p.verdict is Verdict.UNKNOWN]
            return f"unknown: {[*judged.problems, *reasons][0].rstrip('.')}."
    against = [a for a in judged.anomalies if a.verdict is judged.verdict]
    others = sorted({a.name for a in against[1:]} - {against[0].name}, key=RANK.__getitem__)
    more = f" (also: {', '.join(others)})" if others else ""
    words = f"{judged.verdict}: {_counted(judged, against[0])}{more}."
    if judged.verdict is Verdict.INVALID and judged.meta.impaired:
        words += f" Besides: {judged.problems[0].rstrip('.')}."
    return words


def untouched(meta: RunMeta, faults: Sequence[int]) -> str:
    """Name a connection past the links if one of `faults`, by number, was on links; "" if not."""
    on_links = {n for n, what in enumerate(meta.faults) if KINDS.get(what, FaultKind).on_links}
    if not meta.bypassed or on_links.isdisjoint(faults):
        return ""
    more = f" (and {len(meta.bypassed) - 1} more)" if meta.bypassed[1:] else ""
    return f"Faults on links did not touch every connection: {meta.bypassed[0]}{more}."


def _counted(judged: Judgement, first: Anomaly) -> str:
    """Return the first anomaly, and how many records are lost where it does not say that itself."""
    loss, message = judged.loss, first.message.rstrip(".")
    if loss.lost == 0 or loss.lost == (first.count if first.name in _COUNTED else 0):
        return message
    if first.name in _LOSSES:
        return f"{_lost(judged)}; first: {message}"
    allowed = _why_allowed(judged)
    return f"{message}; besides, {_lost(judged)}{f', {allowed}' if allowed else ''}"


def _lost(judged: Judgement) -> str:
    loss = judged.loss
    places = sum(count.lost > 0 for count in judged.losses.values())
    where = f" in {places} partitions" if places > 1 else ""
    noun = "acknowledged record" if loss.acknowledged == loss.lost else "record"
    words = f"{plural(loss.lost, noun)}{where} {agreeing(loss.lost)} lost"
    if loss.acknowledged < loss.lost:
        many = f"{loss.acknowledged:,} of them acknowledged"
        words += f", {agreeing(loss.lost, 'which was not acknowledged', many)}"
    return words + _read_before(loss)


def _read_before(loss: LossCount) -> str:
    who = agreeing(loss.lost, "it", f"{loss.read:,} of them")
    return f" ({who} had been read before)" if loss.read else ""


def _why_allowed(judged: Judgement) -> str:
    """Return why the promise allows the losses; "" if it does not allow all of them."""
    about = [a for a in judged.anomalies if a.name in (*_LOSSES, "unseen")]
    if not about or any(a.verdict is not Verdict.VALID for a in about):
        return ""
    reasons = dict.fromkeys(a.allowed for a in about)
    return f"which the promise allows ({'; '.join(reasons)})"


def _held(judged: Judgement) -> str:
    """Say which properties held, by which evidence, and what the promise excused."""
    # Records of unknown outcome that were read are required too: with acks=0 they count.
    required = next((p.examined for p in judged.properties if p.property == LOST_WRITES), 0)
    acknowledged = int(judged.measures.get("acked_records", required))
    seen = judged.meta.promise.acks == 0 and not acknowledged
    required = required if seen else acknowledged
    loss = judged.loss
    opening, left = "", required
    kept = plural(required, "visible record" if seen else "acknowledged record")
    if loss.lost or loss.undelivered:
        opening = f"{_losses(judged, required)}, {_why_allowed(judged)}; "
        left = max(0, required - loss.acknowledged - loss.undelivered - loss.deleted)
        kept = f"the other {left:,}"
    elif loss.deleted:
        left = max(0, required - loss.deleted)
        kept = plural(left, "acknowledged record")
    partitions = len(judged.meta.partitions) or len(judged.losses)
    where = f" in {plural(partitions, 'partition')}" if partitions else ""
    words = f"valid: {opening}{kept}{where} {_outlived(judged, left)}"
    words += _deleted(loss)
    names = {a.name for a in judged.anomalies if a.verdict is Verdict.VALID} - set(_NO_MENTION)
    excused = sorted(names, key=RANK.__getitem__)
    return f"{words} (allowed by its promise: {', '.join(excused)})." if excused else f"{words}."


def _deleted(loss: LossCount) -> str:
    if not loss.deleted:
        return ""
    were, unread = agreeing(loss.deleted, "was", "were"), f"{loss.deleted_unread:,} of them unread"
    words = f"; {loss.deleted:,} more {were} deleted by retention"
    if loss.deleted_unread:
        words += f", {agreeing(loss.deleted, 'unread', unread)} and not examined"
    return words


def _losses(judged: Judgement, required: int) -> str:
    loss, parts = judged.loss, list[str]()
    records = plural(required, "acknowledged record")
    if loss.lost:
        parts.append(f"{loss.lost:,} of {records} {agreeing(loss.lost)} lost{_read_before(loss)}")
    if loss.undelivered:
        of = "" if parts else f" of {records}"
        were = agreeing(loss.undelivered, "was", "were")
        parts.append(f"{loss.undelivered:,}{of} {were} never delivered")
    return listing(parts)


def _outlived(judged: Judgement, count: int) -> str:
    """Say which faults so many records survived, and which replicas were examined."""
    results = {p.property: p.verdict for p in judged.properties}
    given = results.get(LOST_WRITES) is Verdict.NOT_EXAMINED and DELIVERY in results
    shown = results.get(DELIVERY) is Verdict.VALID
    kept = ("given to the group" if shown else "not examined") if given else "kept"
    kept = f"{agreeing(count, 'was', 'were')} {kept}"
    if judged.meta.source:
        return (
            f"{kept}, as far as a history alone shows: it records no faults, and no replica's log "
            "was examined"
        )
    faults = int(judged.measures.get("faults", 0))
    through = f"outlived {plural(faults, 'fault')}" if faults else f"{kept}; no fault took effect"
    if given and faults:
        through = f"{kept} in spite of {plural(faults, 'fault')}"
    if any(a.property == AGREEMENT and a.verdict is Verdict.VALID for a in judged.anomalies):
        return f"{through}; replicas differ in what is committed, which the promise allows"
    seen = judged.meta.capabilities
    if "logs" in seen:
        return f"{through}, and all replicas agree on what is committed"
    if "trace" in seen:
        through += ", and the traces agree on what is committed"
    return f"{through}; no replica's log was examined"
