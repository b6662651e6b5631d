"""What a search knows of a run's failure, and the baseline run: `finding/` and `control.json`.

A run folder holds them only when they were made; the page says so where they were not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from nemesis.formats.schedule import Schedule
from nemesis.formats.schedule import parse as parse_schedule
from node.formats.errors import UsageError
from reports.run_page.files import Notes, json_file

FINDING: Final = "finding"
CONTROL: Final = "control.json"


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
                "the failure depends on the timing of real processes, and this pair proves nothing."
            )
        return f"{fails.name} is {fails.verdict}, {holds.name} is {holds.verdict}."


@dataclass(frozen=True)
class Provenance:
    """The finding that a run replays: why it fails, the schedule as drawn and as shrunk."""

    explained: Explained
    drawn: Schedule | None
    minimal: Schedule | None
    for_real: bool = False


def read_provenance(run_dir: Path, notes: Notes) -> Provenance | None:
    """What `finding/` says, None where the run comes from no shrunk finding."""
    folder = run_dir / FINDING
    if not (folder / "explain.json").exists():
        return None
    explained = json_file(folder / "explain.json", Explained, notes)
    if explained is None:
        return None
    return Provenance(
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
