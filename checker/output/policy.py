"""The policy on anomalies: each counts against the system, or the run's promise allows it."""

from __future__ import annotations

from typing import Final

import msgspec

from checker.evidence.run_meta import RunMeta
from checker.formats.anomalies import KINDS, Needs
from checker.formats.verdict import Anomaly, Verdict
from harness.formats.run_info import Promise

_INTERLEAVED: Final = "others may append between the sends of an operation"
_INFORMATION: Final = {
    "hw-regression": "a new leader may begin with an older high watermark",
    "early-redelivery": "a system may deliver a record again sooner than it has to",
    "stale-position": "a position may be stated by a coordinator that was deposed",
    **dict.fromkeys(("int-send-skip", "g0", "g0-process", "g0-realtime"), _INTERLEAVED),
}
_OF_GROUPS: Final = {
    Needs.DELIVERED: ("at_least_once", "its groups need not be given every record"),
    Needs.SETTLED_STAYS: ("durable", "an ack or commit of a group does not promise durability"),
    Needs.FENCED: ("fenced", "commits of a group are not fenced by its epochs"),
    Needs.EXCLUSIVE: ("exclusive", "a partition may have several owners in a group"),
    Needs.EPOCHS_RISE: ("epochs_rise", "the epochs of a group may start over"),
    Needs.COUNTED: ("counts", "the deliveries of a record are not counted for good"),
}
_LOST_DISKS: Final = "more disks lost what they had synced than the promise covers"
_OF_DISKS: Final = (
    *(Needs.DISKS_KEPT, Needs.CLEAN_ELECTION),
    *(Needs.DURABLE_ACKS, Needs.COMMITTED_STAYS, Needs.SILENCE_DEPOSES),
)


def excuse(needs: Needs, promise: Promise) -> str:
    """Return why a run with this promise may show an anomaly with these needs; "" if it may not."""
    if needs is Needs.INFORMATION:
        return "it is reported for information"
    if needs is Needs.CONTIGUOUS and not promise.contiguous_offsets:
        return "this system does not promise offsets without holes"
    if needs is Needs.SILENCE_DEPOSES and not promise.silence_deposes:
        return "here followers, not the controller, say that a leader failed"
    if needs is Needs.CLEAN_ELECTION and promise.unclean_election:
        return "unclean elections are switched on"
    if needs is Needs.APPENDED_ONCE:
        if promise.delivery == "at-least-once":
            return "with at-least-once a producer sends again what may have been appended"
        # Without retries nothing is ever sent twice. With them a record that was lost comes again.
        needs = Needs.COMMITTED_STAYS if promise.idempotent else Needs.NOTHING
    if not promise.disks_kept and needs in (*_OF_DISKS, *_OF_GROUPS):
        return _LOST_DISKS
    if needs in _OF_GROUPS:
        field, words = _OF_GROUPS[needs]
        if promise.groups is not None and not getattr(promise.groups, field):
            return words
        weak = not promise.durable_acks and needs in (Needs.DELIVERED, Needs.SETTLED_STAYS)
        needs = Needs.DURABLE_ACKS if weak else Needs.COMMITTED_STAYS
    if needs in (Needs.DURABLE_ACKS, Needs.COMMITTED_STAYS):
        if promise.unclean_election:
            return "unclean elections are switched on, so that committed records may be lost"
        if not promise.committed_stays:
            return "this run lost more unsynced disks than its flush mode survives"
    if needs is Needs.DURABLE_ACKS and not promise.durable_acks:
        return f"acks={promise.acks} does not promise durability"
    return ""


def is_explained_by_silence(name: str, meta: RunMeta) -> bool:
    """Return whether the anomaly `name` may be there only because something outside the system kept
    the cluster or its clients from going on."""
    match KINDS[name].from_silence:
        case "always":
            return meta.impaired
        case "without-logs":
            # A machine that is too slow loses no record.
            return meta.broken and "logs" not in meta.capabilities
    return False


def apply(anomaly: Anomaly, meta: RunMeta, *, damaged: bool = False) -> Anomaly:
    """Return the anomaly with its verdict: invalid, unless the run's promise allows it; unknown if
    the evidence is damaged."""
    needs = KINDS[anomaly.name].needs
    if needs is Needs.EXERCISE:
        return msgspec.structs.replace(anomaly, verdict=Verdict.NOT_EXERCISED)
    allowed = anomaly.allowed or _INFORMATION.get(anomaly.name) or excuse(needs, meta.promise)
    verdict = Verdict.VALID if allowed else Verdict.INVALID
    doubtful = damaged or not meta.promise_understood
    if verdict is Verdict.INVALID and (doubtful or is_explained_by_silence(anomaly.name, meta)):
        verdict = Verdict.UNKNOWN
    return msgspec.structs.replace(anomaly, verdict=verdict, allowed=allowed)
