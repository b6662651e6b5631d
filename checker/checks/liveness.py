"""Liveness: progress after the heal, answered final reads, equal logs, no unexplained exits."""

from __future__ import annotations

import signal
from typing import Final

import numpy as np

from checker.checks.findings import Finding, anomaly, node_witness, plural, send_witness
from checker.checks.registry import per_partition, per_run
from checker.evidence.contents import NEVER, evidence
from checker.evidence.facts import Exits, Outcome, Sends
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.evidence.sorting import I64
from checker.formats.anomalies import LIVENESS
from checker.formats.verdict import Anomaly, Witness

_CATCH_UP_US: Final = 1_000_000
_HUNG: Final = "hung when it was stopped and was killed"
_STOPPED: Final = "exited with code {} when it was stopped"


@per_partition("no-progress", "final-reads-stuck", "not-converged", needs=(Need.HISTORY, Need.LOGS))
def judge(group: Group) -> Finding:
    found, unknown = no_progress(group)
    stuck, not_asked = final_reads_stuck(group)
    found += stuck
    found += not_converged(group)
    return Finding(
        property=LIVENESS,
        examined=_examined(group),
        anomalies=tuple(found),
        unknown=unknown or not_asked,
    )


def _examined(group: Group) -> int:
    """Count the sends after the heal, those due in final reads, and the logs to be equal."""
    sends, phases = group.of(Sends), group.meta.phases
    after = int((sends.invoke_us > phases.heal_us).sum()) if phases.heal_us > 0 else 0
    due = len(sends) if group.meta.final_reads_had_time else 0
    return after + due + (len(group.replica_heads) if phases.heal_us > 0 else 0)


def no_progress(group: Group) -> tuple[list[Anomaly], str]:
    """Find `no-progress`: clients sent to a partition after the heal, and it acknowledged no send
    until the recovery limit. The second result says that the run did not last so long, "" if it
    did."""
    sends, phases = group.of(Sends), group.meta.phases
    heal_us, limit_us = phases.heal_us, group.meta.recovery_limit_ms * 1000
    if heal_us <= 0 or group.meta.promise.acks == 0:
        return [], ""  # with acks=0 no send is acknowledged, so progress is not known
    after = np.flatnonzero(sends.invoke_us > heal_us)
    acknowledged = sends.complete_us[(sends.outcome == Outcome.OK) & (sends.complete_us > heal_us)]
    first = int(acknowledged.min()) if len(acknowledged) else NEVER
    if not len(after) or first <= heal_us + limit_us:
        return [], ""
    last_us = max(int(sends.invoke_us[after].max()), phases.stop_writing_us, phases.end_us)
    if first == NEVER and last_us < heal_us + limit_us:
        waited = (last_us - heal_us) / 1e6
        return [], (
            f"{group.partition} acknowledged nothing after the heal, but was only written to for "
            f"{waited:.1f} s of the {limit_us / 1e6:g} s it may take"
        )
    came = (
        f"the first acknowledgement came {(first - heal_us) / 1e6:.3f} s after the heal"
        if first < NEVER
        else f"none of {plural(len(after), 'send')} after the heal was acknowledged"
    )
    return [
        anomaly(
            group,
            "no-progress",
            f"{group.partition} made no progress in {limit_us / 1e6:g} s after all faults were "
            f"healed, {group.seconds(heal_us)} into the storm: {came}.",
            [send_witness(sends, int(row)) for row in after],
            offset=-1,
        )
    ], ""


def final_reads_stuck(group: Group) -> tuple[list[Anomaly], str]:
    """Find `final-reads-stuck`: a partition that acknowledged sends answered no final read, or
    always without a record and without the end of the log. The second result says that the history
    has no final read, "" if it has one."""
    known = evidence(group)
    acknowledged = np.flatnonzero(known.sends.outcome == Outcome.OK)
    phases = group.meta.phases
    answered = len(known.final_reads) > 0 and not known.finals_say_nothing
    if not group.meta.final_reads_had_time or not len(acknowledged) or answered:
        return [], ""
    if not group.final_reads_invoked:
        return [], (
            f"run.json says when the final reads began, and no final read of {group.partition} is "
            "in the history"
        )
    return [
        anomaly(
            group,
            "final-reads-stuck",
            f"No final read of {group.partition} was answered in "
            f"{(phases.end_us - phases.final_us) / 1e6:.1f} s after all faults were healed.",
            [send_witness(known.sends, int(acknowledged[-1]))],
            offset=-1,
        )
    ], ""


def not_converged(group: Group) -> list[Anomaly]:
    """Find `not-converged`: the complete logs of the replicas have different ends, although the
    replicas were in sync again or the recovery limit had passed after the heal."""
    heads, phases = group.replica_heads, group.meta.phases
    if not group.logs_complete or phases.heal_us <= 0 or group.meta.state != "finished":
        return []
    due_us = max(group.meta.copied_due_us, phases.stop_writing_us + _CATCH_UP_US)
    due_us = min(due_us, phases.alike_us or due_us)
    if phases.end_us < due_us or heads.leo.min() == heads.leo.max():
        return []
    longest = int(heads.leo.max())
    behind = np.flatnonzero(heads.leo < longest)
    ends = ", ".join(
        f"{heads.name(int(heads.node[r]))} at {heads.leo[r]}" for r in range(len(heads))
    )
    return [
        anomaly(
            group,
            "not-converged",
            f"The replicas of {group.partition} did not converge in "
            f"{(phases.end_us - phases.heal_us) / 1e6:.1f} s after the heal: logs end with {ends}.",
            [node_witness(heads, int(r), offset=int(heads.leo[r])) for r in range(len(heads))],
            count=len(behind),
            offset=int(heads.leo.min()),
        )
    ]


@per_run("unexplained-exit", "unclean-stop", needs=(Need.EXITS,))
def unexplained_exits(group: Group) -> Finding:
    """Find `unexplained-exit`: a process ended that neither a fault nor the harness had ended; and
    `unclean-stop`: it hung, or ended with the code of an error, when the harness stopped it."""
    exits = group.of(Exits)
    # If nobody outside sent SIGKILL, the harness did: the process ignored its SIGTERM.
    hung = exits.code == -signal.SIGKILL
    stopped = hung | np.array([by == "stop" for by in exits.by], bool)
    found = []
    for name, which in (("unexplained-exit", ~stopped), ("unclean-stop", stopped)):
        if len(rows := np.flatnonzero(~exits.expected & which)):
            how = _STOPPED if which is stopped else "ended by itself with code {}"
            how = _HUNG if hung[rows[0]] else how.format(exits.code[rows[0]])
            found.append(_exits(group, exits, rows, name, how))
    return Finding(property=LIVENESS, examined=len(exits), anomalies=tuple(found))


def _exits(group: Group, exits: Exits, rows: I64, name: str, how: str) -> Anomaly:
    """Return ends of processes as one anomaly."""
    first = int(rows[0])
    witnesses = [
        Witness(
            what=f"exit with code {exits.code[row]}",
            node=exits.name(int(exits.node[row])),
            t_us=int(exits.t_us[row]),
        )
        for row in rows
    ]
    said = exits.said[first].rstrip(".")
    said = f"; its last lines: {said}" if said else ""
    return anomaly(
        group,
        name,
        f"{witnesses[0].node} {how}, {group.seconds(exits.t_us[first])} into the storm "
        f"({plural(len(rows), 'such exit')}){said}.",
        witnesses,
        count=len(rows),
        offset=-1,
    )
