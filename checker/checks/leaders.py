"""Leadership as traces report it: one leader an epoch, elected from ISR or ELR, ISR of replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from checker.checks.findings import Finding, anomaly, listing, node_witness
from checker.checks.registry import per_partition, per_run
from checker.evidence.contents import first_of
from checker.evidence.facts import (
    Appends,
    Controllers,
    OfNode,
    PartitionChanges,
    PartitionMembers,
    RoleChanges,
)
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.sorting import I64, distinct, order_of
from checker.formats.anomalies import LOG
from checker.formats.verdict import Anomaly, Witness
from node.formats.event_text import Event
from node.formats.json_input import JsonReader


@per_partition(
    "two-leaders",
    "leader-outside-isr",
    "isr-outside-replicas",
    "fenced-in-isr",
    needs=(Need.TRACES,),
)
@per_run("two-controllers", needs=(Need.TRACES,))
def judge(group: Group) -> Finding:
    """Judge the leaders of one partition; or, given the facts of the whole run, its controllers."""
    roles, appends = group.of(RoleChanges), group.of(Appends)
    controllers = group.of(Controllers)
    leaders, writers = roles.take(roles.leads), appends.take(appends.leads)
    found = list(two_leaders(group, leaders, writers))
    found += two_controllers(group, controllers.take(controllers.active))
    found += _elections(group, group.memo(changes_of))
    changes = group.of(PartitionChanges)
    return Finding(
        property=LOG, examined=len(roles) + len(controllers) + len(changes), anomalies=tuple(found)
    )


def _one_each(facts: OfNode, epochs: I64) -> list[tuple[int, list[int]]]:
    """Return the epochs that more than one node claims, each with the first row of each node."""
    known = np.flatnonzero(epochs >= 0)
    order = known[order_of((epochs[known], facts.node[known]))] if len(known) else known
    epoch, node = epochs[order], facts.node[order]
    if not ((epoch[1:] == epoch[:-1]) & (node[1:] != node[:-1])).any():
        return []
    claims = np.union1d(first_of(epoch), first_of(node))
    claimed = epoch[claims]
    double = distinct(claimed[1:][claimed[1:] == claimed[:-1]])
    return [(each, order[claims[claimed == each]].tolist()) for each in double.tolist()]


def two_leaders(group: Group, roles: RoleChanges, appends: Appends) -> Iterator[Anomaly]:
    """Find `two-leaders`: two nodes became leader, or appended as leader, in one leader epoch of a
    partition. `roles` and `appends` are those of leaders only."""
    claims: tuple[tuple[RoleChanges | Appends, str], ...] = (
        (roles, "became leader"),
        (appends, "appended as leader"),
    )
    for facts, did in claims:
        if double := _one_each(facts, facts.epoch):
            epoch, rows = double[0]
            witnesses = [node_witness(facts, r, did) for _, rs in double for r in rs]
            nodes = listing(w.node for w in witnesses[: len(rows)])
            yield anomaly(
                group,
                "two-leaders",
                f"{nodes} {did} of {group.partition} in the same epoch {epoch}, first "
                f"{group.seconds(min(w.t_us for w in witnesses[: len(rows)]))} into the storm.",
                witnesses,
                count=len(double),
            )
            return


def two_controllers(group: Group, active: Controllers) -> list[Anomaly]:
    """Find `two-controllers`: two voters were the active controller in one term."""
    double = _one_each(active, active.term)
    if not double:
        return []
    witnesses = [
        node_witness(active, row, "became controller") for _, rows in double for row in rows
    ]
    term, rows = double[0]
    return [
        anomaly(
            group,
            "two-controllers",
            f"{listing(w.node for w in witnesses[: len(rows)])} were controller in the same term "
            f"{term}.",
            witnesses,
            count=len(double),
            offset=-1,
        )
    ]


def may_lead(was: PartitionMembers | Event, now: PartitionMembers | Event) -> set[str]:
    """Return the brokers that a clean election, or a recovery from the last known ELR, may choose
    between the change `was` of a partition and the next one, `now`. The change that completes a
    reassignment may also add to the ISR what the leader proposed with it. If it removes that
    leader, its own ISR may therefore lead as well."""
    found = {*was.isr, *was.elr} or {*was.last_known_elr}
    stays = {*was.replicas} - {*was.removing}
    completed = bool(was.removing) and not now.removing and {*now.replicas} == stays
    if completed and was.leader in was.removing:
        found |= {*now.isr}
    return found


class CommittedChange(NamedTuple):
    """A change of a partition that the controller committed. `number` is its partition epoch,
    `epoch` the leader epoch, `row` its row in `facts`."""

    number: int
    epoch: int
    t_us: int
    members: PartitionMembers
    facts: PartitionChanges
    row: int


def changes_of(group: Group) -> list[CommittedChange]:
    """Return the committed changes of a partition in the order of their partition epochs, each as
    the trace that reported it first has it."""
    facts, decoder = group.of(PartitionChanges), JsonReader(PartitionMembers)
    found = []
    for row in np.unique(facts.partition_epoch, return_index=True)[1].tolist():
        number, epoch = int(facts.partition_epoch[row]), int(facts.epoch[row])
        members = decoder.decode(facts.members[row])
        found.append(CommittedChange(number, epoch, int(facts.t_us[row]), members, facts, row))
    return found


def _elections(group: Group, changes: list[CommittedChange]) -> Iterator[Anomaly]:
    """Examine each committed change of the partition against the one before it.
    `leader-outside-isr`: it elects a leader that was in neither ISR nor ELR.
    `isr-outside-replicas`: a member of its ISR is no replica. `fenced-in-isr`: it leaves a broker
    in an ISR of two or more that the same controller had fenced."""
    found: dict[str, list[tuple[str, Witness]]] = {}
    before: CommittedChange | None = None
    for change in changes:
        now, witness = change.members, node_witness(change.facts, change.row)
        when = f"{group.seconds(witness.t_us)} into the storm"
        in_isr = f"in the ISR of {group.partition}, {when}, but"
        if now.replicas and (outsiders := sorted(set(now.isr) - set(now.replicas))):
            words = f"{listing(outsiders)} {in_isr} not among its replicas."
            found.setdefault("isr-outside-replicas", []).append((words, witness))
        # Without an ELR the last member may stay: it alone can lead again.
        if len(now.isr) > 1 and (silent := [m for m in now.isr if m in now.fenced]):
            words = f"{listing(silent)} {in_isr} fenced."
            found.setdefault("fenced-in-isr", []).append((words, witness))
        if before is not None and before.number + 1 == change.number:
            was = before.members
            elected = now.leader and now.leader != was.leader and change.epoch > before.epoch
            if elected and now.leader not in may_lead(was, now):
                sets = (listing(was.isr) or "empty", listing(was.elr) or "empty")
                words = (
                    f"{now.leader} was elected leader of {group.partition} in epoch "
                    f"{change.epoch}, {when}, from outside ISR ({sets[0]}) and ELR ({sets[1]})."
                )
                found.setdefault("leader-outside-isr", []).append((words, witness))
        before = change
    for name, told in found.items():
        yield anomaly(group, name, told[0][0], [w for _, w in told], offset=-1)
