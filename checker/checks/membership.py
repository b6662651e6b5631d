"""Members of a cluster that was changed: after the final heal all list the same, and it came."""

from __future__ import annotations

from checker.checks.findings import Finding, anomaly, listing
from checker.checks.registry import per_run
from checker.evidence.group import Group
from checker.formats.anomalies import LIVENESS, LOG
from checker.formats.verdict import Witness
from harness.formats.run_info import MemberRecord


@per_run("membership-differs")
def differs(group: Group) -> Finding:
    """Find `membership-differs`: after the final heal a member did not list another member, or
    listed a node that is none."""
    record = group.meta.membership
    if record is None or not record.said:
        return Finding(property=LOG)
    silent = [name for name in record.final if name not in record.said]
    unknown = (
        f"{listing(silent)} did not say after the final heal who is a member" if silent else ""
    )
    wrong = {name: why for name in record.final if (why := _difference(record, name))}
    if not wrong:
        return Finding(property=LOG, examined=len(record.said), unknown=unknown)
    first, why = next(iter(wrong.items()))
    told = anomaly(
        group,
        "membership-differs",
        f"{first} {why}, although {listing(record.final)} are the members since the final heal.",
        [
            Witness(what=f"the list of {name}: {', '.join(record.said[name])}", node=name)
            for name in wrong
        ],
        count=len(wrong),
        offset=-1,
    )
    return Finding(property=LOG, examined=len(record.said), anomalies=(told,), unknown=unknown)


def _difference(record: MemberRecord, name: str) -> str:
    """Say what is wrong with the members that a node listed; "" if nothing is."""
    listed = set(record.said.get(name, ()))
    if not listed:
        return ""
    missing = [n for n in record.final if not listed & {n, *record.expected.get(n, ())}]
    known = {each for n in record.final for each in (n, *record.expected.get(n, ()))}
    words = [f"does not list {listing(missing)}"] if missing else []
    words += [f"lists {listing(sorted(listed - known))}"] if listed - known else []
    return " and ".join(words)


@per_run("membership-stuck")
def stuck(group: Group) -> Finding:
    """Find `membership-stuck`: a change of the final heal did not come in three times the time
    that it may take."""
    record = group.meta.membership
    if record is None or group.meta.state != "finished":
        return Finding(property=LIVENESS)
    told = anomaly(
        group,
        "membership-stuck",
        f"The final heal of the members did not end: {record.stuck.rstrip('.')}.",
        offset=-1,
    )
    return Finding(property=LIVENESS, examined=1, anomalies=(told,) if record.stuck else ())
