"""Leadership as traces report it: one leader an epoch, elected from ISR or ELR, ISR of replicas."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from checker.checks.cases import Cases
from checker.checks.findings import listing, node_witness
from checker.checks.registry import Check, Scope
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
from node.formats.event_text import Event
from node.formats.json_input import JsonReader

LEADERS = Check(
    LOG,
    (Need.TRACES,),
    examined=lambda group: len(group.of(RoleChanges)) + len(group.of(PartitionChanges)),
)
CONTROLLERS = Check(
    LOG, (Need.TRACES,), Scope.RUN, examined=lambda group: len(group.of(Controllers))
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


def _claims(says: str, facts: OfNode, epochs: I64, did: str) -> Cases:
    return Cases(
        says,
        _one_each(facts, epochs),
        lambda claim: [node_witness(facts, row, did) for row in claim[1]],
        lambda claim: {
            "nodes": [facts.name(int(facts.node[row])) for row in claim[1]],
            "epoch": claim[0],
            "t": min(node_witness(facts, row).t_us for row in claim[1]),
        },
    )


@LEADERS.finds("two-leaders")
def two_leaders(group: Group) -> Iterator[Cases]:
    """Find `two-leaders`: two nodes became leader, or appended as leader, in one leader epoch of a
    partition."""
    says = "{{nodes:list}} {} of {{partition}} in the same epoch {{epoch}}, first {{t:when}}."
    roles, appends = group.of(RoleChanges), group.of(Appends)
    claims: tuple[tuple[RoleChanges | Appends, str], ...] = (
        (roles.take(roles.leads), "became leader"),
        (appends.take(appends.leads), "appended as leader"),
    )
    cases = [_claims(says.format(did), facts, facts.epoch, did) for facts, did in claims]
    yield next((each for each in cases if each.rows), cases[0])


@CONTROLLERS.finds("two-controllers")
def two_controllers(group: Group) -> Iterator[Cases]:
    """Find `two-controllers`: two voters were the active controller in one term."""
    active = group.of(Controllers)
    active = active.take(active.active)
    says = "{nodes:list} were controller in the same term {epoch}."
    yield _claims(says, active, active.term, "became controller")


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


def _cases(says: str, found: list[tuple[CommittedChange, list[str]]]) -> Cases:
    return Cases(
        says,
        found,
        lambda pair: [node_witness(pair[0].facts, pair[0].row)],
        lambda pair: {"who": pair[1], "change": pair[0]},
    )


@LEADERS.finds("isr-outside-replicas")
def isr_outside_replicas(group: Group) -> Iterator[Cases]:
    """Find `isr-outside-replicas`: a member of the ISR of a committed change is no replica."""
    found = []
    for change in group.memo(changes_of):
        outsiders = sorted({*change.members.isr} - {*change.members.replicas})
        if change.members.replicas and outsiders:
            found.append((change, outsiders))
    says = "{who:list} in the ISR of {partition}, {a:when}, but not among its replicas."
    yield _cases(says, found)


@LEADERS.finds("fenced-in-isr")
def fenced_in_isr(group: Group) -> Iterator[Cases]:
    """Find `fenced-in-isr`: a committed change leaves a broker in an ISR of two or more that the
    same controller had fenced."""
    found = []
    for change in group.memo(changes_of):
        silent = [each for each in change.members.isr if each in change.members.fenced]
        # Without an ELR the last member may stay: it alone can lead again.
        if len(change.members.isr) > 1 and silent:
            found.append((change, silent))
    yield _cases("{who:list} in the ISR of {partition}, {a:when}, but fenced.", found)


@LEADERS.finds("leader-outside-isr")
def leader_outside_isr(group: Group) -> Iterator[Cases]:
    """Find `leader-outside-isr`: a committed change elects a leader that was in neither ISR nor
    ELR before it."""
    found = []
    for before, change in pairwise(group.memo(changes_of)):
        if before.number + 1 != change.number:
            continue
        was, now = before.members, change.members
        elected = now.leader and now.leader != was.leader and change.epoch > before.epoch
        if elected and now.leader not in may_lead(was, now):
            found.append((change, [listing(was.isr) or "empty", listing(was.elr) or "empty"]))
    yield _cases(
        "{change.members.leader} was elected leader of {partition} in epoch {change.epoch}, "
        "{a:when}, from outside ISR ({who[0]}) and ELR ({who[1]}).",
        found,
    )
