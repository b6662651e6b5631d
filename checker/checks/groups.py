"""The promises to consumer groups: the checks of `checker.checks.delivery`, bound to the facts
of a run. A run whose promise says nothing of groups is not examined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from checker.checks.cases import Cases, Examined, Unknown
from checker.checks.delivery import again, order, ownership, positions, reached, states
from checker.checks.delivery.operations import Case, GroupView
from checker.checks.findings import send_witness
from checker.checks.registry import Check, Scope
from checker.evidence.contents import evidence
from checker.evidence.facts import OP_KINDS, GroupOps, GroupStates, Outcome
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.formats.anomalies import DELIVERY, EXERCISE, LIVENESS, OWNERSHIP
from checker.formats.verdict import Witness
from harness.formats.history import GROUP_PREFIX, GroupState
from node.formats.json_input import decode
from node.formats.trace import METADATA_PARTITION

Found = Iterator[Cases | Examined | Unknown]
_ENDED = {Outcome.OK: "ok", Outcome.INFO: "unknown outcome", Outcome.FAIL: "failed"}


DELIVERIES = Check(DELIVERY, (Need.HISTORY,))
POSITIONS = Check(OWNERSHIP, (Need.HISTORY,))
ACTIVITY = Check(EXERCISE, (Need.HISTORY,))
OWNERS = Check(LIVENESS, (Need.HISTORY,))
STATES = Check(OWNERSHIP, scope=Scope.RUN)


@DELIVERIES.finds(
    "undelivered",
    "not-redelivered",
    "group-skip",
    "acked-redelivered",
    "delivery-order",
    "over-delivered",
    "delivery-count",
    "early-redelivery",
)
def deliveries(group: Group) -> Found:
    """Find what is wrong with what each group was given of a partition."""
    known, unknown = evidence(group), ""
    for name, view in group.memo(_of_partition):
        yield Examined(len(view.delivered))
        for find in _OF_VIEW:
            yield from _cases(group, name, view, find(view))
        yield from _cases(group, name, view, order.owner_order(view, known))
        if (view.delivered.offset < 0).any() and len(known.shared_values):
            unknown = f"values of {group.partition} were sent twice, and deliveries state no offset"
        elif (op := reached.settles_unknown(view)) >= 0:
            unknown = (
                f"operation {op} settles a record of {group.partition} that no poll of group "
                f"{name} was given: a history must have every poll, and an ack names what it got"
            )
        elif view.promise.at_least_once and view.concerned and len(known.sends):
            yield Examined(1)
            if view.quiet:
                yield from _cases(group, name, view, reached.undelivered(view, known))
                if view.promise.kind == "acks":
                    yield from _cases(group, name, view, reached.not_redelivered(view, known))
            else:
                unknown = unknown or _not_quiet(name, group)
    yield Unknown(unknown)


_OF_VIEW = (
    *(again.acked_redelivered, again.over_delivered, again.delivery_count),
    *(again.early_redelivery, order.first_order),
)


def _not_quiet(name: str, group: Group) -> str:
    return (
        f"no drain shows that group {name} was given all of {group.partition}: fresh members must "
        "poll until nothing came for ack_wait_ms + redelivery_ms, and each poll must be answered"
    )


@POSITIONS.finds(
    "position-ahead",
    "commit-lost",
    "position-back",
    "position-phantom",
    "zombie-commit",
    "double-ownership",
    "epoch-back",
    "stale-position",
)
def positions_and_owners(group: Group) -> Found:
    """Find what is wrong with the positions of each group in a partition and with its owners; or,
    in the partition of a group as a whole, with its epochs."""
    unknown = ""
    for name, view in group.memo(_of_group):
        yield Examined(len(view.events("join", "assign")))
        yield from _cases(group, name, view, ownership.epoch_back(view))
    for name, view in group.memo(_of_partition):
        fetched, committed = view.positions("position"), view.positions("commit")
        yield Examined(len(fetched) + len(committed) + len(view.owners))
        yield from _cases(group, name, view, ownership.zombie_commit(view))
        yield from _cases(group, name, view, ownership.double_ownership(view))
        if view.promise.kind == "acks":
            floors = reached.floor_ahead(view, evidence(group))
            yield from _cases(group, name, view, floors)
            continue
        yield from _cases(group, name, view, positions.stated_positions(view))
        if view.promise.durable and positions.commits_without_final_fetch(view):
            unknown = (
                f"no final fetch says where group {name} goes on in {group.partition}: a fresh "
                "client must fetch every position after the drain"
            )
    yield Unknown(unknown)


@ACTIVITY.finds("few-deliveries")
def few_deliveries(group: Group) -> Found:
    """Judge whether the members of each group did enough to prove anything, in a run of ours."""
    if group.meta.phases.storm_us and not group.meta.scripted:
        for name, view in group.memo(_of_group):
            yield from _cases(group, name, view, reached.few_deliveries(view))


@OWNERS.finds("group-stuck")
def group_stuck(group: Group) -> Found:
    """Judge whether each partition gets an owner after the members of a group changed."""
    heal_us = group.meta.phases.heal_us
    for name, view in group.memo(_of_partition):
        if view.concerned:
            stuck = ownership.group_stuck(view, evidence(group), heal_us)
            yield from _cases(group, name, view, stuck)


@STATES.finds("replay-differs", "group-replicas-differ")
def states_of_groups(group: Group) -> Found:
    """Judge the states of groups that replicas keep."""
    facts = group.of(GroupStates)
    lines: list[GroupState] = [decode(str(text), GroupState) for text in facts.text]
    yield Examined(len(lines))
    for case in (*states.replay_differs(lines), *states.group_replicas_differ(lines)):
        yield Cases(_as_is(f"{case.message}."), name=case.anomaly, count=case.times)


Views = list[tuple[str, GroupView]]


def given_to_groups(group: Group) -> bool:
    """Return whether `undelivered` judges the partition: a group that was promised every record
    consumes it."""
    views = group.memo(_of_partition)
    return any(view.concerned and view.promise.at_least_once for _, view in views)


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


def _cases(group: Group, name: str, view: GroupView, found: Iterable[Case]) -> Iterator[Cases]:
    where = "" if group.partition.startswith(GROUP_PREFIX) else f" in {group.partition}"
    for case in found:
        times = f"{case.times:,} cases, the first: " if case.times > 1 else ""
        yield Cases(
            _as_is(f"Group {name}{where}: {times}{case.message}."),
            case.rows or [-1],
            partial(_witnesses, group, view.ops, case),
            name=case.anomaly,
            count=case.times,
            offset=case.offset,
        )


def _as_is(sentence: str) -> str:
    return sentence.replace("{", "{{").replace("}", "}}")


def _witnesses(group: Group, ops: GroupOps, case: Case, row: int) -> Iterator[Witness]:
    """Yield an operation as a witness, with the record of the case if it names that; or the send of
    the record, if no operation (-1) is one."""
    if row < 0:
        known = evidence(group)
        for send in known.writer(np.array([case.value])).tolist():
            if send >= 0:
                yield send_witness(known.sends, send, offset=case.offset, value=case.value)
        return
    done, kind = int(ops.complete_us[row]), OP_KINDS[int(ops.what[row])]
    offset, value = int(ops.offset[row]), int(ops.value[row])
    past = case.value - value if min(case.value, value) >= 0 else 0
    if not 0 <= past < ops.count[row]:
        past = 0
    yield Witness(
        what=f"{kind}, {_ENDED[Outcome(int(ops.outcome[row]))]}",
        op=int(ops.op[row]),
        process=int(ops.process[row]),
        client=ops.name(int(ops.client[row])),
        t_us=done if done >= 0 else int(ops.invoke_us[row]),
        offset=offset + past if offset >= 0 else -1,
        value=value + past if value >= 0 else value,
        epoch=int(ops.epoch[row]),
    )
