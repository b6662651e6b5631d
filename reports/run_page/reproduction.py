"""The minimal reproduction: the schedule of a failure as it was drawn and as it was shrunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from checker.formats.verdict import Verdict
from nemesis.formats.schedule import Fault
from reports import wording
from reports.evidence import faults
from reports.evidence.model import RunFolder

MOST_LANES: Final = 14
MOST_FAULTS: Final = 40


@dataclass(frozen=True)
class FaultCell:
    """One fault in a lane; `fate` says what shrinking did to it: kept, simpler or removed."""

    letter: str
    what: str
    title: str
    fate: str
    column: int


@dataclass(frozen=True)
class Plan:
    """A schedule drawn as lanes: one a target of faults, with its faults by time."""

    title: str
    columns: int
    lanes: tuple[tuple[str, tuple[FaultCell, ...]], ...]
    words: tuple[tuple[FaultCell, str], ...]
    left_out: int = 0


def reproduction(folder: RunFolder) -> list[Plan] | None:
    """Return the schedule as drawn and as shrunk. Empty if the run replays no finding; None if it
    did not fail, or if its system has no simulated world to search in."""
    if folder.verdict is not Verdict.INVALID or not folder.can_have_baseline:
        return None
    provenance = folder.provenance
    if provenance is None or provenance.minimal is None:
        return []
    drawn, minimal = provenance.drawn, provenance.minimal
    fates = _fates(drawn.faults, minimal.faults) if drawn is not None else {}
    made = []
    if drawn is not None:
        title = f"As drawn: {wording.count(len(drawn.faults), 'fault')}"
        made.append(_plan(title, drawn.faults, fates))
    least = len(minimal.faults)
    whole = f"{wording.count(least, 'fault')}" + ("" if least else ": the workload alone is enough")
    made.append(_plan(f"After shrinking: {whole}", minimal.faults, {}))
    return made


def _fates(drawn: tuple[Fault, ...], minimal: tuple[Fault, ...]) -> dict[int, str]:
    """Return the fate of each drawn fault; the most similar ones of a kind count as the same."""
    left = list(minimal)
    fates = dict.fromkeys(range(len(drawn)), "removed")
    for exact in (True, False):
        for index, fault in enumerate(drawn):
            if fates[index] != "removed":
                continue
            alike = [f for f in left if f == fault or (not exact and f.what == fault.what)]
            if alike:
                left.remove(alike[0])
                fates[index] = "kept" if exact else "simpler"
    return fates


def _plan(title: str, given: tuple[Fault, ...], fates: dict[int, str]) -> Plan:
    # Faults that wait for an event have no time; they come last, as they are written.
    due = [(fault.after is not None, fault.at_ms or 0) for fault in given]
    order = sorted(range(len(given)), key=due.__getitem__)[:MOST_FAULTS]
    lanes: dict[str, list[FaultCell]] = {}
    sentences = []
    for column, index in enumerate(order):
        fault = given[index]
        what = fault.what
        text = f"{wording.intent(fault)} {wording.asked(fault)}"
        cell = FaultCell(
            faults.letter(what), what, wording.clip(text, 300), fates.get(index, "kept"), column
        )
        target = getattr(fault, "on", "") or getattr(fault, "partition", "") or "cluster"
        lanes.setdefault(wording.clip(target, 24), []).append(cell)
        sentences.append((cell, wording.clip(text, 400)))
    shown = tuple((name, tuple(cells)) for name, cells in list(lanes.items())[:MOST_LANES])
    return Plan(title, len(order), shown, tuple(sentences), len(given) - len(order))
