"""A run in a few lines of text, for the terminal."""

from __future__ import annotations

from pathlib import Path

from checker.formats.verdict import Verdict
from reports import theme, wording
from reports.run_page import head, model


def summary(run_dir: Path) -> str:
    """About ten lines: verdict, sentence, what ran, what was found, how to run it again.

    Raises ReportError when the folder holds nothing of a run.
    """
    folder = model.read(Path(run_dir))
    facts = dict(head.facts(folder))
    badges = {badge.name: badge for badge in head.badges(folder)}
    lines = [
        f"{theme.MARKS[folder.verdict]} {folder.verdict.upper()}  {folder.name}",
        f"  {head.sentence(folder)}",
        f"  run         {facts['protocol']}, bugs {facts['bugs']}, seed {facts['seed']}, "
        f"schedule {facts['schedule']}, {facts['duration']}",
    ]
    for name, label in (
        ("Acknowledged writes", "acked"),
        ("Faults took effect", "faults"),
        ("Longest gap", "gap"),
        ("Harness", "harness"),
    ):
        if (badge := badges.get(name)) is not None:
            lines.append(f"  {label:<11} {badge.value}. {wording.clip(badge.detail, 160)}")
    lines.append(f"  properties  {_properties(folder)}")
    for anomaly in folder.anomalies[:3]:
        allowed = "" if anomaly.verdict is Verdict.INVALID else " (allowed)"
        where = f" in {anomaly.partition}" if anomaly.partition else ""
        text = f"{anomaly.name}{where} × {anomaly.count:,}{allowed}"
        lines.append(f"  finding     {text}: {wording.clip(anomaly.message, 160)}")
    if len(folder.anomalies) > 3:
        lines.append(f"              and {len(folder.anomalies) - 3} more kinds of findings")
    if not folder.info.source:
        lines.append(f"  replay      {head.commands(folder)[0].line}")
    return "\n".join(line.replace("\n", " ") for line in lines)


def _properties(folder: model.RunFolder) -> str:
    found = head.properties(folder)
    if not found:
        return "none judged"
    by = {v: [p.property for p in found if p.verdict is v] for v in Verdict}
    parts = [f"{len(by[Verdict.VALID])} of {len(found)} valid"]
    parts += [
        f"{verdict}: {wording.listing(by[verdict], 6)}"
        for verdict in (Verdict.INVALID, Verdict.UNKNOWN, Verdict.NOT_EXERCISED)
        if by[verdict]
    ]
    return "; ".join(parts)
