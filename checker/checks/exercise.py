"""Whether a run proved anything: acknowledgements, clients that kept on, faults that took effect.

A fault counts if it took effect (`nemesis.formats.fault_log.took_effect`), and if clients got
acknowledgements both before and after it (with acks=0: read records). A scripted run, in which
clients do only the operations of the schedule, was exercised if each operation was invoked and
ended as the schedule says, and each fault took effect. A history of groups that another tool
recorded is taken as it is: how much its members did is what the tool meant to do.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checker.checks.findings import Finding, anomaly, plural
from checker.checks.registry import per_run
from checker.evidence.facts import Exits, FaultAction, FaultLines, Outcome, SampledOps, Served
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.formats.anomalies import EXERCISE
from checker.formats.verdict import Anomaly, Witness
from nemesis.formats.fault_log import took_effect

MIN_ACKS: Final = 10
_ACTIONS: Final = {int(action): action.name.lower() for action in FaultAction}
_MOST_SILENT: Final = 1 / 3


@per_run(
    "few-acks",
    "clients-stopped",
    "fault-missed",
    "few-faults",
    "operation-missed",
    needs=(Need.HISTORY,),
)
def judge_run(group: Group) -> Finding:
    ops = group.of(SampledOps)
    sent = ops.take(ops.progress & (ops.outcome == Outcome.OK))
    found = [*faults_without_effect(group, sent), *operation_missed(group, ops)]
    if not group.meta.scripted:
        of_groups = bool(group.meta.source) and group.has_groups
        few = [] if of_groups else few_acks(group, int(sent.count.sum()))
        found = [*few, *clients_stopped(group, ops), *found]
    examined = int(ops.count.sum()) + len(group.meta.faults)
    return Finding(property=EXERCISE, examined=examined, anomalies=tuple(found))


def few_acks(group: Group, acknowledged: int) -> list[Anomaly]:
    """Find `few-acks`: fewer than 10 operations that sent something were acknowledged; with acks=0,
    fewer than 10 polls before the final reads returned records."""
    if acknowledged >= MIN_ACKS:
        return []
    what, how = ("send", "acknowledged") if group.meta.promise.acks else ("poll", "with records")
    return [
        anomaly(
            group,
            "few-acks",
            f"Only {plural(acknowledged, what)} {how} in the whole run, and fewer than {MIN_ACKS} "
            "prove nothing.",
        )
    ]


def clients_stopped(group: Group, ops: SampledOps) -> list[Anomaly]:
    """Find `clients-stopped`: no client invoked anything for more than a third of the storm."""
    begin, end = group.meta.phases.storm_us, group.meta.phases.heal_us
    if begin <= 0:
        return []
    inside = np.sort(ops.invoke_us[(ops.invoke_us >= begin) & (ops.invoke_us <= end)])
    edges = np.concatenate(([begin], inside, [end]))
    gaps = np.diff(edges)
    at = int(np.argmax(gaps))
    if gaps[at] <= (end - begin) * _MOST_SILENT:
        return []
    return [
        anomaly(
            group,
            "clients-stopped",
            f"No client invoked anything for {gaps[at] / 1e6:.3f} s from "
            f"{group.seconds(edges[at])} on, more than a third of the storm.",
            [Witness(what="last invocation before the silence", t_us=int(edges[at]))],
            offset=-1,
        )
    ]


def faults_without_effect(group: Group, sent: SampledOps) -> list[Anomaly]:
    """Find `fault-missed`: a fault of a schedule file took no effect between acknowledged sends.
    Find `few-faults`: of the faults of a drawn schedule fewer than half took effect there."""
    scheduled, lines = group.meta.faults, group.of(FaultLines)
    missed = [(index, why) for index, why in enumerate(_whys(group, sent)) if why]
    effective = len(scheduled) - len(missed)
    if not missed or (group.meta.drawn and effective * 2 >= len(scheduled)):
        return []
    index, why = missed[0]
    first = f"fault {index} ({scheduled[index]}) {why}"
    name = "few-faults" if group.meta.drawn else "fault-missed"
    acted = {int(number) for number in effective_faults(lines)}
    # Faults that took effect are not called without effect, even if they prove nothing.
    where = " between acknowledged sends" if any(index in acted for index, _ in missed) else ""
    message = (
        f"Only {effective} of {len(scheduled)} drawn faults took effect{where}; {first}."
        if group.meta.drawn
        else f"{plural(len(missed), 'fault')} of the schedule did not take effect{where}: {first}."
    )
    witnesses = [Witness(what=f"fault {i} ({scheduled[i]}) {why}") for i, why in missed]
    return [anomaly(group, name, message, witnesses, offset=-1)]


def tried_faults(group: Group) -> list[int]:
    """Return which faults of the schedule put acknowledged sends to the test: they took effect
    between such sends."""
    ops = group.of(SampledOps)
    sent = ops.take(ops.progress & (ops.outcome == Outcome.OK))
    return [index for index, why in enumerate(_whys(group, sent)) if not why]


def _whys(group: Group, sent: SampledOps) -> list[str]:
    """Return for each fault of the schedule why it does not count, "" if it does."""
    lines = group.of(FaultLines)
    return [
        _why_missed(group, lines.take(lines.fault == index), sent)
        for index in range(len(group.meta.faults))
    ]


def effective_faults(lines: FaultLines) -> list[int]:
    """Return which faults took effect, by their numbers in the schedule."""
    known: dict[int, list[tuple[str, int]]] = {}
    columns = (column.tolist() for column in (lines.fault, lines.action, lines.affected))
    for number, action, affected in zip(*columns, strict=True):
        if number >= 0:
            known.setdefault(number, []).append((_ACTIONS[action], affected))
    return [number for number, own in known.items() if took_effect(own)]


def operation_missed(group: Group, ops: SampledOps) -> list[Anomaly]:
    """Find `operation-missed`: an operation that the schedule itself names was not invoked, or did
    not end as the schedule says."""
    missed = []
    for step, (what, must) in enumerate(group.meta.operations):
        ended = ops.outcome[ops.step == step]
        if not len(ended):
            missed.append(f"operation {step} ({what}) was never begun")
        elif must == "ok" and ended[0] != Outcome.OK:
            missed.append(f"operation {step} ({what}) was not answered with ok")
    if not missed:
        return []
    return [
        anomaly(
            group,
            "operation-missed",
            f"{plural(len(missed), 'operation')} of the schedule did not take place: {missed[0]}.",
            [Witness(what=why) for why in missed],
            offset=-1,
        )
    ]


def _why_missed(group: Group, lines: FaultLines, sent: SampledOps) -> str:
    """Return why one fault does not count, "" if it does."""
    injected = np.flatnonzero(lines.action == FaultAction.INJECT)
    if not len(injected):
        return _why_not_injected(lines)
    if not effective_faults(lines):
        return "had no effect"
    if group.meta.scripted:
        return ""
    at = int(lines.t_us[injected[0]])
    if not _served(group, lines.name(int(lines.node[injected[0]])), at):
        return "hit no node that served again since its process began"
    acks = group.meta.promise.acks
    if not (sent.complete_us <= at).any():
        return f"took effect before anything was {'acknowledged' if acks else 'read'}"
    if not (sent.complete_us > at).any():
        return f"was followed by no {'acknowledgement' if acks else 'poll with records'}"
    return ""


def _served(group: Group, nodes: str, at: int) -> bool:
    """Return whether one of the nodes, or more, was seen to serve between the last end of its
    process and a moment; also if nothing ever shows that a node serves."""
    served, exits = group.of(Served), group.of(Exits)
    for node in nodes.split(","):
        code = served.names.index(node) if node in served.names else -1
        seen = served.t_us[served.node == code]
        ends = exits.t_us[(exits.node == code) & (exits.t_us < at)]
        if not len(seen) or ((seen > ends.max(initial=-1)) & (seen <= at)).any():
            return True
    return False


def _why_not_injected(lines: FaultLines) -> str:
    """Return why a fault was not injected, as its lines say."""
    skipped = np.flatnonzero(np.isin(lines.action, (FaultAction.SKIPPED, FaultAction.MISSED)))
    if not len(skipped):
        return "was never reached"
    what = "found no target" if lines.action[skipped[0]] == FaultAction.SKIPPED else "was missed"
    detail = str(lines.text[skipped[0]]).partition(" ")[2]
    return f"{what} ({detail})" if detail else what
