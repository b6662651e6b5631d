"""Liveness: progress after the heal, answered final reads, equal logs, no unexplained exits."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Final

import numpy as np

from checker.checks.cases import Cases, Unknown
from checker.checks.findings import node_witness, plural, send_witness
from checker.checks.registry import Check, Scope
from checker.evidence.contents import NEVER, evidence
from checker.evidence.facts import Exits, Outcome, Sends
from checker.evidence.group import Group
from checker.evidence.needs import Need
from checker.formats.anomalies import LIVENESS
from checker.formats.verdict import Witness

_CATCH_UP_US: Final = 1_000_000
_HUNG: Final = "hung when it was stopped and was killed"
_STOPPED: Final = "exited with code {} when it was stopped"


def _examined(group: Group) -> int:
    """Count the sends after the heal, those due in final reads, and the logs to be equal."""
    sends, phases = group.of(Sends), group.meta.phases
    after = int((sends.invoke_us > phases.heal_us).sum()) if phases.heal_us > 0 else 0
    due = len(sends) if group.meta.final_reads_had_time else 0
    return after + due + (len(group.replica_heads) if phases.heal_us > 0 else 0)


PROGRESS = Check(LIVENESS, (Need.HISTORY, Need.LOGS), examined=_examined)
EXITS = Check(LIVENESS, (Need.EXITS,), Scope.RUN, examined=lambda group: len(group.of(Exits)))


@PROGRESS.finds("no-progress")
def no_progress(group: Group) -> Iterator[Cases | Unknown]:
    """Find `no-progress`: clients sent to a partition after the heal, and it acknowledged no send
    until the recovery limit. Unknown if the run did not last so long."""
    sends, phases = group.of(Sends), group.meta.phases
    heal_us, limit_us = phases.heal_us, group.meta.recovery_limit_ms * 1000
    if heal_us <= 0 or group.meta.promise.acks == 0:
        return  # with acks=0 no send is acknowledged, so progress is not known
    after = np.flatnonzero(sends.invoke_us > heal_us)
    acknowledged = sends.complete_us[(sends.outcome == Outcome.OK) & (sends.complete_us > heal_us)]
    first = int(acknowledged.min()) if len(acknowledged) else NEVER
    if not len(after) or first <= heal_us + limit_us:
        return
    last_us = max(int(sends.invoke_us[after].max()), phases.stop_writing_us, phases.end_us)
    if first == NEVER and last_us < heal_us + limit_us:
        waited = (last_us - heal_us) / 1e6
        yield Unknown(
            f"{group.partition} acknowledged nothing after the heal, but was only written to for "
            f"{waited:.1f} s of the {limit_us / 1e6:g} s it may take"
        )
        return
    came = (
        f"the first acknowledgement came {(first - heal_us) / 1e6:.3f} s after the heal"
        if first < NEVER
        else f"of {plural(len(after), 'send')} after the heal none was acknowledged"
    )
    yield Cases(
        f"{{partition}} made no progress in {limit_us / 1e6:g} s after all faults were healed, "
        f"{{healed:when}}: {came}.",
        after,
        lambda row: [send_witness(sends, row)],
        lambda _: {"healed": heal_us},
        offset=-1,
    )


@PROGRESS.finds("final-reads-stuck")
def final_reads_stuck(group: Group) -> Iterator[Cases | Unknown]:
    """Find `final-reads-stuck`: a partition that acknowledged sends answered no final read, or
    always without a record and without the end of the log. Unknown if the history has no final
    read. Nothing is said of a system that only groups read."""
    if not group.meta.promise.reads:
        return
    known = evidence(group)
    acknowledged = np.flatnonzero(known.sends.outcome == Outcome.OK)
    phases = group.meta.phases
    answered = len(known.final_reads) > 0 and not known.finals_say_nothing
    if not group.meta.final_reads_had_time or not len(acknowledged) or answered:
        return
    if not group.final_reads_invoked:
        yield Unknown(
            f"run.json says when the final reads began, and no final read of {group.partition} is "
            "in the history"
        )
        return
    waited = (phases.end_us - phases.final_us) / 1e6
    yield Cases(
        f"No final read of {{partition}} was answered in {waited:.1f} s after all faults were "
        "healed.",
        acknowledged[-1:],
        lambda row: [send_witness(known.sends, row)],
        offset=-1,
    )


@PROGRESS.finds("not-converged")
def not_converged(group: Group) -> Iterator[Cases]:
    """Find `not-converged`: the complete logs of the replicas have different ends, although the
    replicas were in sync again or the recovery limit had passed after the heal."""
    heads, phases = group.replica_heads, group.meta.phases
    if not group.logs_complete or phases.heal_us <= 0 or group.meta.state != "finished":
        return
    due_us = max(group.meta.copied_due_us, phases.stop_writing_us + _CATCH_UP_US)
    due_us = min(due_us, phases.alike_us or due_us)
    if phases.end_us < due_us or heads.leo.min() == heads.leo.max():
        return
    nodes = [heads.name(int(node)) for node in heads.node]
    ends = ", ".join(f"{node} at {leo}" for node, leo in zip(nodes, heads.leo, strict=True))
    waited = (phases.end_us - phases.heal_us) / 1e6
    yield Cases(
        f"The replicas of {{partition}} did not converge in {waited:.1f} s after the heal: logs "
        "end with {ends}.",
        range(len(heads)),
        lambda row: [node_witness(heads, row, offset=int(heads.leo[row]))],
        lambda _: {"ends": ends},
        count=int((heads.leo < heads.leo.max()).sum()),
        offset=int(heads.leo.min()),
    )


@EXITS.finds("unexplained-exit", "unclean-stop")
def unexplained_exits(group: Group) -> Iterator[Cases]:
    """Find `unexplained-exit`: a process ended that neither a fault nor the harness had ended; and
    `unclean-stop`: it hung, or ended with the code of an error, when the harness stopped it."""
    exits = group.of(Exits)
    # If nobody outside sent SIGKILL, the harness did: the process ignored its SIGTERM.
    hung = exits.code == -signal.SIGKILL
    stopped = hung | np.array([by == "stop" for by in exits.by], bool)

    def shown(row: int) -> list[Witness]:
        node, t_us = exits.name(int(exits.node[row])), int(exits.t_us[row])
        return [Witness(what=f"exit with code {exits.code[row]}", node=node, t_us=t_us)]

    def words(row: int) -> dict[str, str]:
        how = _STOPPED if stopped[row] else "ended by itself with code {}"
        said = exits.said[row].rstrip(".")
        return {
            "how": _HUNG if hung[row] else how.format(exits.code[row]),
            "said": f"; its last lines: {said}" if said else "",
        }

    for name, which in (("unexplained-exit", ~stopped), ("unclean-stop", stopped)):
        yield Cases(
            "{a.node} {how}, {a:when} ({n:such exit}){said}.",
            np.flatnonzero(~exits.expected & which),
            shown,
            words,
            name=name,
        )
