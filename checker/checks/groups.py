"""The promises to consumer groups: the checks of `checker.checks.delivery`, bound to the facts
of a run. A run whose promise says nothing of groups is not examined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from checker.checks.delivery import again, order, ownership, positions, reached, states
from checker.checks.delivery.operations import Case, GroupView
from checker.checks.findings import Finding, anomaly
from checker.checks.registry import per_partition, per_run
from checker.evidence.contents import evidence
from checker.evidence.facts import OP_KINDS, GroupOps, GroupStates, Outcome
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.formats.anomalies import DELIVERY, EXERCISE, LIVENESS, OWNERSHIP, WITNESS_CAP
from checker.formats.verdict import Anomaly, Witness
from harness.formats.group_state import GroupState
from harness.formats.history import GROUP_PREFIX
from node.formats.json_input import decode
from node.formats.trace import METADATA_PARTITION

_ENDED = {Outcome.OK: "ok", Outcome.INFO: "unknown outcome", Outcome.FAIL: "failed"}


@per_partition(
    "undelivered",
    "not-redelivered",
    "group-skip",
    "acked-redelivered",
    "delivery-order",
    "over-delivered",
    "delivery-count",
    "early-redelivery",
    needs=(Need.HISTORY,),
)
def judge_delivery(group: Group) -> Finding:
    """Judge what each group was given of a partition."""
    known, found, unknown, examined = evidence(group), list[Anomaly](), "", 0
    for name, view in group.memo(_of_partition):
        examined += len(view.delivered)
        found += _anomalies(group, name, view, _of_messages(view))
        found += _anomalies(group, name, view, order.first_order(view))
        found += _anomalies(group, name, view, order.owner_order(view, known))
        if (view.delivered.offset < 0).any() and len(known.shared_values):
            unknown = f"values of {group.partition} were sent twice, and deliveries state no offset"
        elif (op := reached.settles_unknown(view)) >= 0:
            unknown = (
                f"operation {op} settles a record of {group.partition} that no poll of group "
                f"{name} was given: a history must have every poll, and an ack names what it got"
            )
        elif view.promise.at_least_once and view.concerned and len(known.sends):
            examined += 1
            if view.quiet:
                found += _anomalies(group, name, view, reached.undelivered(view, known))
                found += _anomalies(group, name, view, _not_again(view, group))
            else:
                unknown = unknown or _not_quiet(name, group)
    return Finding(property=DELIVERY, examined=examined, anomalies=tuple(found), unknown=unknown)


def _of_messages(view: GroupView) -> Iterator[Case]:
    yield from again.acked_redelivered(view)
    yield from again.over_delivered(view)
    yield from again.delivery_count(view)
    yield from again.early_redelivery(view)


def _not_again(view: GroupView, group: Group) -> Iterator[Case]:
    if view.promise.kind == "acks":
        yield from reached.not_redelivered(view, evidence(group))


def _not_quiet(name: str, group: Group) -> str:
    return (
        f"no drain shows that group {name} was given all of {group.partition}: fresh members must "
        "poll until nothing came for ack_wait_ms + redelivery_ms, and each poll must be answered"
    )


@per_partition(
    "position-ahead",
    "commit-lost",
    "position-back",
    "position-phantom",
    "zombie-commit",
    "double-ownership",
    "epoch-back",
    "stale-position",
    needs=(Need.HISTORY,),
)
def judge_positions(group: Group) -> Finding:
    """Judge the positions of each group in a partition and who owned it; or, in the partition of a
    group as a whole, its epochs."""
    found, unknown, examined = list[Anomaly](), "", 0
    for name, view in group.memo(_of_group):
        examined += len(view.events("join", "assign"))
        found += _anomalies(group, name, view, ownership.epoch_back(view))
    for name, view in group.memo(_of_partition):
        fetched, committed = view.positions("position"), view.positions("commit")
        examined += len(fetched) + len(committed) + len(view.owners)
        found += _anomalies(group, name, view, ownership.zombie_commit(view))
        found += _anomalies(group, name, view, ownership.double_ownership(view))
        if view.promise.kind == "acks":
            floors = reached.floor_ahead(view, evidence(group))
            found += _anomalies(group, name, view, floors)
            continue
        found += _anomalies(group, name, view, positions.stated_positions(view))
        if view.promise.durable and positions.commits_without_final_fetch(view):
            unknown = (
                f"no final fetch says where group {name} goes on in {group.partition}: a fresh "
                "client must fetch every position after the drain"
            )
    return Finding(property=OWNERSHIP, examined=examined, anomalies=tuple(found), unknown=unknown)


@per_partition("few-deliveries", needs=(Need.HISTORY,))
def judge_exercise_of_groups(group: Group) -> Finding:
    """Judge whether the members of each group did enough to prove anything, in a run of ours."""
    found = list[Anomaly]()
    if group.meta.phases.storm_us and not group.meta.scripted:
        for name, view in group.memo(_of_group):
            found += _anomalies(group, name, view, reached.few_deliveries(view))
    return Finding(property=EXERCISE, anomalies=tuple(found))


@per_partition("group-stuck", needs=(Need.HISTORY,))
def judge_ownership_in_time(group: Group) -> Finding:
    """Judge whether each partition gets an owner after the members of a group changed."""
    found = list[Anomaly]()
    heal_us = group.meta.phases.heal_us
    for name, view in group.memo(_of_partition):
        if view.concerned:
            stuck = ownership.group_stuck(view, evidence(group), heal_us)
            found += _anomalies(group, name, view, stuck)
    return Finding(property=LIVENESS, anomalies=tuple(found))


@per_run("replay-differs", "group-replicas-differ")
def judge_states(group: Group) -> Finding:
    """Judge the states of groups that replicas keep."""
    facts = group.of(GroupStates)
    lines: list[GroupState] = [decode(str(text), GroupState) for text in facts.text]
    cases = (*states.replay_differs(lines), *states.group_replicas_differ(lines))
    made = (anomaly(group, c.anomaly, f"{c.message}.", count=c.times) for c in cases)
    return Finding(property=OWNERSHIP, examined=len(lines), anomalies=tuple(made))


Views = list[tuple[str, GroupView]]


def _of_partition(group: Group) -> Views:
    """Return what each group did in a partition; nothing of one that is no log."""
    special = group.partition == METADATA_PARTITION or group.partition.startswith(GROUP_PREFIX)
    return [] if special else _views(group)


def _of_group(group: Group) -> Views:
    """Return what the group did as a whole."""
    return _views(group) if group.partition.startswith(GROUP_PREFIX) else []


def _views(group: Group) -> Views:
    ops, promise = group.of(GroupOps), group.meta.promise.groups
    if promise is None or not len(ops):
        return []
    codes = np.unique(ops.group).tolist()
    return [(ops.name(code), GroupView(ops.take(ops.group == code), promise)) for code in codes]


def _anomalies(
    group: Group, name: str, view: GroupView, cases: Iterable[Case]
) -> Iterator[Anomaly]:
    """Yield cases of a group as anomalies, each with its sentence."""
    where = "" if group.partition.startswith(GROUP_PREFIX) else f" in {group.partition}"
    for case in cases:
        times = f"{case.times:,} cases, the first: " if case.times > 1 else ""
        witnesses = [_witness(view.ops, row) for row in case.rows[:WITNESS_CAP]]
        message = f"Group {name}{where}: {times}{case.message}."
        yield anomaly(group, case.anomaly, message, witnesses, count=case.times, offset=case.offset)


def _witness(ops: GroupOps, row: int) -> Witness:
    done, kind = int(ops.complete_us[row]), OP_KINDS[int(ops.what[row])]
    return Witness(
        what=f"{kind}, {_ENDED[Outcome(int(ops.outcome[row]))]}",
        op=int(ops.op[row]),
        process=int(ops.process[row]),
        client=ops.name(int(ops.client[row])),
        t_us=done if done >= 0 else int(ops.invoke_us[row]),
        offset=int(ops.offset[row]),
        value=int(ops.value[row]),
        epoch=int(ops.epoch[row]),
    )
