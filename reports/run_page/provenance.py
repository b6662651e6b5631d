"""Where a run comes from, and how it would have gone otherwise: `finding/` and `control.json`.

Both are there only when they were really made; a page says so where they are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from nemesis.formats.schedule import Fault, Schedule
from nemesis.formats.schedule import parse as parse_schedule
from node.formats.errors import UsageError
from reports import wording
from reports.run_page import faults
from reports.run_page.files import Notes, json_file

FINDING: Final = "finding"
CONTROL: Final = "control.json"
MOST_LANES: Final = 14
MOST_FAULTS: Final = 40


class Without(msgspec.Struct, frozen=True):
    """A counterfactual: one thing left out, and whether it still fails in the same way."""

    kind: str
    without: str
    fails: bool
    instead: str = ""


class Explained(msgspec.Struct, frozen=True):
    """`explain.json`, as far as it is shown."""

    schedule: str = ""
    bucket: str = ""
    property: str = ""
    counterfactuals: tuple[Without, ...] = ()
    untried: int = 0


class Side(msgspec.Struct, frozen=True):
    """One of the two runs of a control."""

    protocol: str
    verdict: str
    sentence: str
    bugs: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The protocol, with the bugs that are on."""
        return " + ".join((self.protocol, *self.bugs))


class Control(msgspec.Struct, frozen=True):
    """`control.json`."""

    schedule: str = ""
    seed: int = 0
    as_it_is: Side | None = None
    control: Side | None = None
    same_again: bool | None = None
    problem: str = ""

    def says(self, verdict: str) -> str:
        """What the pair proves, in a sentence; `verdict` is that of the run on the page."""
        if self.as_it_is is None or self.control is None:
            return f"It could not be made: {self.problem or 'no reason is given'}."
        fails, holds = self.as_it_is, self.control
        if fails.verdict == "invalid" and holds.verdict == "valid":
            return (
                f"The schedule breaks {fails.name} and does not break {holds.name}: what differs "
                "between the two is to blame."
            )
        if fails.verdict == "invalid" and not holds.broken and holds.verdict == "not-exercised":
            return (
                f"The schedule breaks {fails.name}; under {holds.name} nothing is broken, with too "
                "few operations to prove more than that."
            )
        if holds.verdict == "invalid":
            return (
                f"The schedule breaks {holds.name} too, which is expected to hold: look at the "
                "harness, the checker, or a bug that both have."
            )
        if verdict == "invalid" and fails.verdict != "invalid":
            return (
                f"In the simulated world {fails.name} does not fail under this schedule either: "
                "the failure hangs on the timing of real processes, and this pair proves nothing."
            )
        return f"{fails.name} is {fails.verdict}, {holds.name} is {holds.verdict}."


@dataclass(frozen=True)
class Origin:
    """The finding that a run replays: why it fails, the schedule as drawn and as shrunk."""

    explained: Explained
    drawn: Schedule | None
    minimal: Schedule | None
    for_real: bool = False


@dataclass(frozen=True)
class Cell:
    """One fault in a lane; `fate` says what shrinking did to it: kept, simpler or removed."""

    letter: str
    what: str
    title: str
    fate: str
    column: int
    span: int = 1


@dataclass(frozen=True)
class Plan:
    """A schedule as lanes, a lane for each target, faults in the order in which they are due."""

    title: str
    columns: int
    lanes: tuple[tuple[str, tuple[Cell, ...]], ...]
    words: tuple[tuple[Cell, str], ...]
    left_out: int = 0


def read_origin(run_dir: Path, notes: Notes) -> Origin | None:
    """What `finding/` says, None where the run comes from no shrunk finding."""
    folder = run_dir / FINDING
    if not (folder / "explain.json").exists():
        return None
    explained = json_file(folder / "explain.json", Explained, notes)
    if explained is None:
        return None
    return Origin(
        explained,
        _schedule(folder / "drawn.json", notes),
        _schedule(folder / "schedule.json", notes),
        (folder / "real.json").exists(),
    )


def read_control(run_dir: Path, notes: Notes) -> Control | None:
    """The control of the run, None where none was made."""
    file = run_dir / CONTROL
    return json_file(file, Control, notes) if file.exists() else None


def _schedule(file: Path, notes: Notes) -> Schedule | None:
    try:
        return parse_schedule(file.read_bytes(), source=file.name)
    except (OSError, UsageError) as error:
        notes.add(f"finding/{file.name} is not shown: {error}.")
        return None


def plans(origin: Origin) -> list[Plan]:
    """The schedule as it was drawn and what shrinking left of it, in the same form."""
    drawn, minimal = origin.drawn, origin.minimal
    if minimal is None:
        return []
    fates = _fates(drawn.faults, minimal.faults) if drawn is not None else {}
    made = []
    if drawn is not None:
        title = f"As drawn: {wording.count(len(drawn.faults), 'fault')}"
        made.append(_plan(title, drawn.faults, fates))
    least = len(minimal.faults)
    whole = f"{wording.count(least, 'fault')}" + ("" if least else ": the workload alone is enough")
    made.append(_plan(f"What is needed: {whole}", minimal.faults, {}))
    return made


def _fates(drawn: tuple[Fault, ...], minimal: tuple[Fault, ...]) -> dict[int, str]:
    """What became of each drawn fault: the most alike of a kind are taken for the same one."""
    left = list(minimal)
    fates = dict.fromkeys(range(len(drawn)), "removed")
    for exact in (True, False):
        for index, fault in enumerate(drawn):
            if fates[index] != "removed":
                continue
            alike = (
                [f for f in left if f == fault]
                if exact
                else [f for f in left if type(f) is type(fault)]
            )
            if alike:
                left.remove(alike[0])
                fates[index] = "kept" if exact else "simpler"
    return fates


def _due(fault: Fault) -> tuple[bool, int]:
    """Timed faults by their time, then those that wait for an event, as they are written."""
    return (fault.after is not None, fault.at_ms or 0)


def _plan(title: str, given: tuple[Fault, ...], fates: dict[int, str]) -> Plan:
    order = sorted(range(len(given)), key=lambda i: _due(given[i]))[:MOST_FAULTS]
    lanes: dict[str, list[Cell]] = {}
    said = []
    for column, index in enumerate(order):
        fault = given[index]
        what = str(fault.__struct_config__.tag)
        text = f"{wording.intent(fault)} {wording.asked(fault)}"
        cell = Cell(
            faults.LETTERS.get(what, "?"),
            what,
            wording.clip(text, 300),
            fates.get(index, "kept"),
            column,
        )
        lanes.setdefault(_target(fault), []).append(cell)
        said.append((cell, wording.clip(text, 400)))
    shown = tuple((name, tuple(cells)) for name, cells in list(lanes.items())[:MOST_LANES])
    return Plan(title, len(order), shown, tuple(said), len(given) - len(order))


def _target(fault: Fault) -> str:
    """The lane of a fault: whom it is meant for."""
    on = getattr(fault, "on", "") or getattr(fault, "partition", "") or "cluster"
    return wording.clip(on, 24)
