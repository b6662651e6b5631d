"""From the findings of all groups of a run to its result: the policy on each anomaly, the verdict
of each property, one sentence, and the files that judging leaves. Each of these is written whole or
not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from checker.checks.findings import Finding, Findings, LossCount, Origin, failed
from checker.checks.registry import Check, Scope, checks
from checker.evidence.run_meta import RunMeta
from checker.formats.anomalies import EXERCISE, LOST_WRITES, OF_GROUPS, OFFSETS, PROPERTIES, RANK
from checker.formats.verdict import SEVERITY, Anomaly, PropertyResult, RunResult, Verdict, worst
from checker.ingest import tables
from checker.ingest.fault_windows import InjectedFault
from checker.output import measures, policy
from checker.output.curves import Curves, curve_tables, curves_in_short
from checker.output.sentence import Judgement, sentence, untouched
from harness.formats.history import GROUP_PREFIX
from node.formats.files import write_whole


class GroupResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of judging one group: a partition, or the run as a whole. Problems make the
    verdict unknown, notes do not. `faults`: the faults of the schedule that took effect between
    acknowledged sends, by number, for the whole run only. `damaged`: the evidence was changed after
    it was written."""

    partition: str
    findings: tuple[Finding, ...]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    faults: tuple[int, ...] = ()
    curves: Curves | None = None
    damaged: bool = False


@dataclass
class RunFindings:
    """The results of all groups of one run (its partitions and itself), added up one by one."""

    meta: RunMeta
    findings: list[tuple[str, Finding]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    damaged: bool = False
    curves: dict[str, Curves] = field(default_factory=dict)
    losses: dict[str, LossCount] = field(default_factory=dict)
    """The losses of each partition that has records which must be kept."""

    def add(self, judged: GroupResult) -> None:
        """Add the result of one more group."""
        self.findings += [(judged.partition, found) for found in judged.findings]
        self.problems += judged.problems
        self.notes += judged.notes
        self.faults += judged.faults
        self.damaged |= judged.damaged
        self.losses.update(
            (judged.partition, f.loss) for f in judged.findings if f.loss and f.examined
        )
        if judged.curves is not None:
            self.curves[judged.partition] = judged.curves

    def unknown_values(self) -> list[int]:
        """Return the values that were found in a partition to which they were not sent. None of a
        Jepsen history: there a value is unique within a partition only, so other partitions say
        nothing."""
        if self.meta.is_jepsen:
            return []
        return [u.value for _, found in self.findings for u in found.unknown_values]


@dataclass(frozen=True)
class RunOutput:
    """The result of a run, and its tables of curves and measures by name. `damaged`: its evidence
    is not as it was sealed."""

    result: RunResult
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    damaged: bool = False

    def write(self, folder: Path) -> None:
        """Write the tables to `folder`. Raises OSError."""
        for name, table in self.tables.items():
            tables.write(folder, name, "", table)


def conclude(
    run: RunFindings,
    origins: Mapping[int, Origin],
    counted: measures.Measured | None,
    injected: Sequence[InjectedFault],
) -> RunOutput:
    """Make the result and the tables of one run from its findings and counts. If nothing was
    `counted`, there are no tables, and of the measures only the number of faults."""
    if counted is None:
        return RunOutput(assemble(run, origins, {"faults": len(run.faults)}))
    made = {
        **curve_tables(run.meta, run.curves),
        "around_faults": measures.around_faults(run.meta, counted, injected),
    }
    summary = {
        **measures.summary(run.meta, counted, len(run.faults)),
        **curves_in_short(made),
        "around_faults": measures.around_faults_in_short(made["around_faults"]),
    }
    result = assemble(run, origins, summary)
    return RunOutput(result, made, run.damaged)


def write_results(folder: Path, result: RunResult) -> None:
    """Write `results.json` to `folder`. Raises StorageError."""
    made = msgspec.json.format(msgspec.json.encode(result), indent=2)
    write_whole(folder / "results.json", made + b"\n")


def assemble(
    run: RunFindings, origins: Mapping[int, Origin], summary: Mapping[str, Any]
) -> RunResult:
    """Return the result of one run; `origins` are the sends of values found in other partitions."""
    known = Findings(run.meta, run.findings, origins)
    findings = [*run.findings, *(("", _across(check, known)) for check in checks(Scope.ACROSS))]
    anomalies = [
        policy.apply(anomaly, run.meta, damaged=run.damaged)
        for _, found in findings
        for anomaly in found.anomalies
    ]
    anomalies.sort(key=_importance)
    names = PROPERTIES if _has_groups(run) else [n for n in PROPERTIES if n not in OF_GROUPS]
    properties = [_property(name, findings, anomalies) for name in names]
    if _has_groups(run):
        examined = {p.property for p in properties if p.examined}
        properties = [_unread(each, examined) for each in properties]
    errors = [f"{found.error}." for _, found in findings if found.error]
    problems = [*run.problems, *dict.fromkeys(errors)]
    verdict = worst([p.verdict for p in properties])
    if not any(p.examined for p in properties if p.property != EXERCISE):
        problems.append("Nothing was examined: no property had anything to be judged by.")
    if problems:
        verdict = worst([verdict, Verdict.UNKNOWN])
    summary = dict(summary)
    judged = Judgement(run.meta, verdict, properties, anomalies, problems, summary, run.losses)
    if run.notes:
        summary["notes"] = run.notes
    if judged.loss.lost:
        summary["loss"] = judged.loss._asdict()
    if words := untouched(run.meta, run.faults):
        summary["untouched"] = words
    if run.meta.is_jepsen:
        summary["jepsen"] = _as_jepsen(anomalies)
    return RunResult(
        run=run.meta.run,
        verdict=verdict,
        sentence=f"{sentence(judged)} {words}".rstrip(),
        properties=tuple(properties),
        anomalies=tuple(anomalies),
        measures=summary,
        problems=tuple(problems),
    )


def _has_groups(run: RunFindings) -> bool:
    """Return whether the promise tells of groups, or anything of one was examined."""
    own = (found for _, found in run.findings if found.property in OF_GROUPS)
    named = any(partition.startswith(GROUP_PREFIX) for partition, _ in run.findings)
    return run.meta.promise.groups is not None or named or any(f.examined or f.error for f in own)


def _across(check: Check, known: Findings) -> Finding:
    try:
        return check.judge(known)
    except Exception as error:  # As in a group: one unknown property, not a lost verdict.
        return failed(check.property, " across partitions", error)


def _as_jepsen(anomalies: Sequence[Anomaly]) -> dict[str, list[str]]:
    """Return the classes that Jepsen's checker would name, and those of them that count."""
    seen = {a.jepsen for a in anomalies if a.jepsen}
    bad = {a.jepsen for a in anomalies if a.jepsen and a.verdict is Verdict.INVALID}
    return {"error-types": sorted(seen), "bad-error-types": sorted(bad)}


def _importance(anomaly: Anomaly) -> tuple[int, int, str, bool, int, str]:
    """Order anomalies: those against the system first, then as in the catalogue."""
    return (
        SEVERITY.index(anomaly.verdict),
        RANK[anomaly.name],
        anomaly.partition,
        bool(anomaly.allowed),
        anomaly.offset,
        anomaly.message,
    )


def _unread(result: PropertyResult, examined: Set[str]) -> PropertyResult:
    """Return the result for a property of a system without readers."""
    if result.property != LOST_WRITES or result.verdict is not Verdict.NOT_EXAMINED:
        return result
    if OFFSETS in examined and not examined & set(OF_GROUPS):
        reason = "no acknowledged record was read, by a reader or by a member of a group."
        return msgspec.structs.replace(result, verdict=Verdict.UNKNOWN, reason=reason)
    reason = "Only groups read this system, and what they were given is judged by delivery."
    return msgspec.structs.replace(result, reason=reason)


def _property(
    name: str, findings: Sequence[tuple[str, Finding]], anomalies: Sequence[Anomaly]
) -> PropertyResult:
    own = [found for _, found in findings if found.property == name]
    against = [a for a in anomalies if a.property == name and a.verdict is not Verdict.VALID]
    unknown = [f.error or f.unknown for f in own if f.error or f.unknown]
    verdicts = [a.verdict for a in against] + [Verdict.UNKNOWN] * bool(unknown)
    reason = ""
    if against:
        reason = against[0].message
    elif unknown:
        more = f" ({len(unknown) - 1} more)" if len(unknown) > 1 else ""
        reason = f"{unknown[0]}{more}."
    elif allowed := next((a for a in anomalies if a.property == name), None):
        reason = f"{allowed.name} is allowed: {allowed.allowed}."
    examined = sum(found.examined for found in own)
    if not examined and not verdicts:
        verdicts = [Verdict.NOT_EXAMINED]
        reason = reason or "There was nothing to judge it by."
    return PropertyResult(property=name, verdict=worst(verdicts), examined=examined, reason=reason)
