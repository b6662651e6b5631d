"""The faults of a run as they were executed: the lines of each fault, and its begin and end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from checker.evidence.run_meta import RunMeta
from checker.ingest.lines import readable_lines
from nemesis.formats.fault_log import FINAL_HEAL, FaultLine

AROUND_US: Final = 5_000_000
WINDOWS: Final = ("before", "during", "after")
_NEVER: Final = 1 << 62


class InjectedFault(NamedTuple):
    """A fault that was injected, the `nth` of its run from 0; `fault` is its number in the
    schedule. If its end is not known, `end_us` is beyond every time."""

    nth: int
    fault: int
    what: str
    on: str
    begin_us: int
    end_us: int

    @property
    def ended(self) -> bool:
        """Return whether it is known when the fault ended."""
        return self.end_us < _NEVER

    def windows(self) -> Iterator[tuple[str, int, int]]:
        """Yield the windows "before", "during" and "after" the fault, each with its begin and its
        end in microseconds; the end is exclusive."""
        yield "before", self.begin_us - AROUND_US, self.begin_us
        yield "during", self.begin_us, self.end_us
        yield "after", self.end_us, self.end_us + AROUND_US


class FaultRecord(NamedTuple):
    """All lines of one fault; of these, its injection (None if it was not injected) and the heal
    that ended it: its own first heal after the injection, else the final heal of the run."""

    lines: list[FaultLine]
    injected: FaultLine | None
    healed: FaultLine | None


def joined_faults(lines: Iterable[FaultLine]) -> dict[int, FaultRecord]:
    """Return the lines of each fault together, by its number in the schedule."""
    by_fault: dict[int, list[FaultLine]] = {}
    for line in (line for line in lines if line.fault >= FINAL_HEAL):
        by_fault.setdefault(line.fault, []).append(line)
    final = by_fault.pop(FINAL_HEAL, [])
    made = {}
    for number, own in sorted(by_fault.items()):
        injected = next((line for line in own if line.action == "inject"), None)
        begin_us = injected.t_us if injected is not None else 0
        heals = [h for h in (*own, *final) if h.action == "heal" and h.t_us >= begin_us]
        healed = min(heals, key=lambda h: (h.fault == FINAL_HEAL, h.t_us), default=None)
        made[number] = FaultRecord(own, injected, healed)
    return made


def injected_faults_of(folder: Path, meta: RunMeta) -> list[InjectedFault]:
    """Return the faults of a run folder that were injected, in order of their injection."""
    found = joined_faults(readable_lines(folder / "faults.jsonl", FaultLine)).values()
    known = [(fault.injected, fault.healed) for fault in found if fault.injected is not None]
    made = []
    for nth, (line, healed) in enumerate(sorted(known, key=lambda pair: pair[0].t_us)):
        end_us = healed.t_us if healed is not None else _NEVER
        if line.t_us <= meta.phases.heal_us and (healed is None or healed.fault == FINAL_HEAL):
            end_us = min(end_us, meta.phases.heal_us)
        made.append(InjectedFault(nth, line.fault, line.what, line.on, line.t_us, end_us))
    return made
