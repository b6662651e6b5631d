"""Members of a cluster that was changed: after the final heal all list the same, and it came."""

from __future__ import annotations

from collections.abc import Iterator

from checker.checks.cases import Cases, Examined, Unknown
from checker.checks.findings import listing
from checker.checks.registry import Check, Scope
from checker.evidence.group import Group
from checker.formats.anomalies import LIVENESS, LOG
from checker.formats.verdict import Witness
from harness.formats.run_info import MemberRecord

MEMBERS = Check(LOG, scope=Scope.RUN)
CHANGES = Check(LIVENESS, scope=Scope.RUN)


@MEMBERS.finds("membership-differs")
def differs(group: Group) -> Iterator[Cases | Examined | Unknown]:
    """Find `membership-differs`: after the final heal a member did not list another member, or
    listed a node that is none."""
    record = group.meta.membership
    if record is None or not record.said:
        return
    silent = [name for name in record.final if name not in record.said]
    yield Examined(len(record.said))
    if silent:
        yield Unknown(f"{listing(silent)} did not say after the final heal who is a member")
    wrong = {name: why for name in record.final if (why := _difference(record, name))}
    yield Cases(
        "{name} {why}, although the members since the final heal are {final:list}.",
        list(wrong),
        lambda name: [
            Witness(what=f"the list of {name}: {', '.join(record.said[name])}", node=name)
        ],
        lambda name: {"name": name, "why": wrong[name], "final": record.final},
    )


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


@CHANGES.finds("membership-stuck")
def stuck(group: Group) -> Iterator[Cases | Examined]:
    """Find `membership-stuck`: a change of the final heal did not come in three times the time
    that it may take."""
    record = group.meta.membership
    if record is None or group.meta.state != "finished":
        return
    yield Examined(1)
    if record.stuck:
        why = record.stuck.rstrip(".")
        yield Cases(
            "The final heal of the members did not end: {why}.", words=lambda _: {"why": why}
        )
