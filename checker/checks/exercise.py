"""Whether a run proved anything: acknowledgements, clients that kept on, faults that took effect.

A fault counts if it took effect (`nemesis.formats.fault_log.took_effect`), and if clients got
acknowledgements both before and after it (with acks=0: read records). A scripted run, in which
clients do only the operations of the schedule, was exercised if each operation was invoked and
ended as the schedule says, and each fault took effect. A history of groups that another tool
recorded is taken as it is: how much its members did is what the tool meant to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from checker.checks.cases import Cases
from checker.checks.registry import Check, Scope
from checker.evidence.facts import FaultAction, FaultLines, Outcome, SampledOps, Served
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.formats.anomalies import EXERCISE
from checker.formats.verdict import Witness
from nemesis.formats.fault_log import took_effect

MIN_ACKS: Final = 10
_ACTIONS: Final = {int(action): action.name.lower() for action in FaultAction}
_MOST_SILENT: Final = 1 / 3
_JOINS: Final = ("join", "return")
"""The kinds of faults on nodes that are no members, so that they cannot serve."""


PROOF = Check(
    EXERCISE,
    (Need.HISTORY,),
    Scope.RUN,
    examined=lambda group: int(group.of(SampledOps).count.sum()) + len(group.meta.faults),
)


def _sent(group: Group) -> SampledOps:
    ops = group.of(SampledOps)
    return ops.take(ops.progress & (ops.outcome == Outcome.OK))


@PROOF.finds("few-acks")
def few_acks(group: Group) -> Iterator[Cases]:
    """Find `few-acks`: fewer than 10 operations that sent something were acknowledged; with acks=0,
    fewer than 10 polls before the final reads returned records."""
    if group.meta.scripted or (group.meta.source and group.has_groups):
        return
    acknowledged = int(_sent(group).count.sum())
    what, how = ("send", "acknowledged") if group.meta.promise.acks else ("poll", "with records")
    if acknowledged < MIN_ACKS:
        yield Cases(
            f"Only {{acked:{what}}} {how} in the whole run, and fewer than {MIN_ACKS} prove "
            "nothing.",
            words=lambda _: {"acked": acknowledged},
        )


@PROOF.finds("clients-stopped")
def clients_stopped(group: Group) -> Iterator[Cases]:
    """Find `clients-stopped`: no client invoked anything for more than a third of the storm."""
    begin, end = group.meta.phases.storm_us, group.meta.phases.heal_us
    if begin <= 0 or group.meta.scripted:
        return
    invoke_us = group.of(SampledOps).invoke_us
    inside = np.sort(invoke_us[(invoke_us >= begin) & (invoke_us <= end)])
    edges = np.concatenate(([begin], inside, [end]))
    gaps = np.diff(edges)
    at = int(np.argmax(gaps))
    yield Cases(
        f"No client invoked anything for {gaps[at] / 1e6:.3f} s from {{a.t_us:seconds}} on, more "
        "than a third of the storm.",
        edges[[at]] if gaps[at] > (end - begin) * _MOST_SILENT else (),
        lambda t_us: [Witness(what="last invocation before the silence", t_us=t_us)],
    )


@PROOF.finds("fault-missed", "few-faults")
def faults_without_effect(group: Group) -> Iterator[Cases]:
    """Find `fault-missed`: a fault of a schedule file took no effect between acknowledged sends.
    Find `few-faults`: of the faults of a drawn schedule fewer than half took effect there."""
    scheduled, drawn = group.meta.faults, group.meta.drawn
    missed = [(index, why) for index, why in enumerate(group.memo(_whys)) if why]
    effective = len(scheduled) - len(missed)
    if drawn and effective * 2 >= len(scheduled):
        return
    acted = {int(number) for number in effective_faults(group.of(FaultLines))}
    # Faults that took effect are not called without effect, even if they prove nothing.
    where = " between acknowledged sends" if any(index in acted for index, _ in missed) else ""
    yield Cases(
        f"Only {effective} of {len(scheduled)} drawn faults took effect{where}; {{a.what}}."
        if drawn
        else f"{{n:fault}} of the schedule did not take effect{where}: {{a.what}}.",
        missed,
        lambda each: [Witness(what=f"fault {each[0]} ({scheduled[each[0]]}) {each[1]}")],
        name="few-faults" if drawn else "fault-missed",
    )


def tried_faults(group: Group) -> list[int]:
    """Return which faults of the schedule put acknowledged sends to the test: they took effect
    between such sends."""
    return [index for index, why in enumerate(group.memo(_whys)) if not why]


def _whys(group: Group) -> list[str]:
    """Return for each fault of the schedule why it does not count, "" if it does."""
    lines, sent = group.of(FaultLines), _sent(group)
    effective = {*effective_faults(lines)}
    return [
        _why_missed(group, what, lines.take(lines.fault == index), sent)
        if index in effective
        else _why_not_effective(lines.take(lines.fault == index))
        for index, what in enumerate(group.meta.faults)
    ]


def effective_faults(lines: FaultLines) -> list[int]:
    """Return which faults took effect, by their numbers in the schedule."""
    known: dict[int, list[tuple[str, int]]] = {}
    columns = (column.tolist() for column in (lines.fault, lines.action, lines.affected))
    for number, action, affected in zip(*columns, strict=True):
        if number >= 0:
            known.setdefault(number, []).append((_ACTIONS[action], affected))
    return [number for number, own in known.items() if took_effect(own)]


@PROOF.finds("operation-missed")
def operation_missed(group: Group) -> Iterator[Cases]:
    """Find `operation-missed`: an operation that the schedule itself names was not invoked, or did
    not end as the schedule says."""
    missed, ops = [], group.of(SampledOps)
    for step, (what, must) in enumerate(group.meta.operations):
        ended = ops.outcome[ops.step == step]
        if not len(ended):
            missed.append(f"operation {step} ({what}) was never begun")
        elif must == "ok" and ended[0] != Outcome.OK:
            missed.append(f"operation {step} ({what}) was not answered with ok")
    yield Cases(
        "{n:operation} of the schedule did not take place: {a.what}.",
        missed,
        lambda why: [Witness(what=why)],
    )


def _why_missed(group: Group, what: str, lines: FaultLines, sent: SampledOps) -> str:
    if group.meta.scripted:
        return ""
    injected = np.argmax(lines.action == FaultAction.INJECT)
    at = int(lines.t_us[injected])
    if what not in _JOINS and not _served(group, lines.name(int(lines.node[injected])), at):
        return "hit no node that served"
    acks = group.meta.promise.acks
    if not (sent.complete_us <= at).any():
        return f"took effect before anything was {'acknowledged' if acks else 'read'}"
    if not (sent.complete_us > at).any():
        return f"was followed by no {'acknowledgement' if acks else 'poll with records'}"
    return ""


def _served(group: Group, nodes: str, at: int) -> bool:
    """Return whether one of the nodes, or more, served at a moment; also if nothing ever shows that
    a node serves."""
    served = group.of(Served)
    for node in nodes.split(","):
        code = served.names.index(node) if node in served.names else -1
        turns = served.take(served.node == code)
        if not len(turns) or turns.serves[turns.t_us <= at][-1:].any():
            return True
    return False


def _why_not_effective(lines: FaultLines) -> str:
    if (lines.action == FaultAction.INJECT).any():
        return "had no effect"
    skipped = np.flatnonzero(np.isin(lines.action, (FaultAction.SKIPPED, FaultAction.MISSED)))
    if not len(skipped):
        return "was never reached"
    what = "found no target" if lines.action[skipped[0]] == FaultAction.SKIPPED else "was missed"
    detail = str(lines.text[skipped[0]]).partition(" ")[2]
    return f"{what} ({detail})" if detail else what
