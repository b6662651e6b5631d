"""Facts of two runs side by side: verdict, what was found, faults, gap, latency."""

from __future__ import annotations

from typing import Any, NamedTuple

from reports.evidence.model import RunFolder
from reports.run_page import head

_BADGES = ("Faults took effect", "Acknowledged writes", "Longest gap", "Harness")


class Compared(NamedTuple):
    """A fact of two runs; "–" for a run that does not say it."""

    name: str
    before: str
    after: str

    @property
    def differs(self) -> bool:
        """Return whether the two runs say different things."""
        return self.before != self.after


def compared(before: RunFolder, after: RunFolder) -> list[Compared]:
    """Return the facts of both runs in one order: how they came out, what was found, how they went,
    what was run."""
    found = []
    for one, two in zip(_sections(before), _sections(after), strict=True):
        names = dict.fromkeys((*one, *two))
        found += [Compared(name, one.get(name, "–"), two.get(name, "–")) for name in names]
    return found


def _sections(folder: RunFolder) -> list[dict[str, str]]:
    badges = {badge.name: badge.value for badge in head.badges(folder)}
    properties = {p.property: str(p.verdict) for p in head.properties(folder)}
    findings = {
        f"{each.name}{f' in {each.partition}' if each.partition else ''}": f"{each.count:,}"
        for each in folder.anomalies
    }
    return [
        {"verdict": str(folder.verdict), **properties},
        findings,
        {name.lower(): badges[name] for name in _BADGES if name in badges} | _latency(folder),
        dict(head.facts(folder)),
    ]


def _latency(folder: RunFolder) -> dict[str, str]:
    found: Any = folder.result.measures if folder.result is not None else {}
    for name in ("latency_ms", "send"):
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        return {}
    each = {name: found.get(name) for name in ("p50", "p99", "max")}
    return {
        f"send {name}": f"{value:g} ms"
        for name, value in each.items()
        if isinstance(value, int | float)
    }
