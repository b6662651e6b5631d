"""When the faults of a run were injected and ended: the windows that sends are counted in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from checker.evidence.run_meta import RunMeta
from checker.ingest.lines import readable_lines
from nemesis.formats.fault_log import FINAL_HEAL, FaultLine

AROUND_US: Final = 5_000_000
WINDOWS: Final = ("before", "during", "after")
_NEVER: Final = 1 << 62


class InjectedFault(NamedTuple):
    """One fault as it was injected: `nth` of the run, from 0; `fault` is its number in the
    schedule. It ended at `end_us`, or never as far as is known."""

    nth: int
    fault: int
    what: str
    on: str
    begin_us: int
    end_us: int

    @property
    def ended(self) -> bool:
        """Whether its end is known."""
        return self.end_us < _NEVER

    def windows(self) -> Iterator[tuple[str, int, int]]:
        """The times before, during and after it: from .. to, the latter exclusive."""
        yield "before", self.begin_us - AROUND_US, self.begin_us
        yield "during", self.begin_us, self.end_us
        yield "after", self.end_us, self.end_us + AROUND_US


def injected_faults_of(folder: Path, meta: RunMeta) -> list[InjectedFault]:
    """The faults of a run folder, in order of their begin."""
    lines = list(readable_lines(folder / "faults.jsonl", FaultLine))
    heals = [line for line in lines if line.action == "heal"]
    injected = [line for line in lines if line.action == "inject" and line.fault >= 0]
    injected.sort(key=lambda line: (line.t_us, line.fault))
    made = []
    for nth, line in enumerate(injected):
        own = [h.t_us for h in heals if h.fault == line.fault and h.t_us >= line.t_us]
        last = [h.t_us for h in heals if h.fault == FINAL_HEAL and h.t_us >= line.t_us]
        last += [meta.phases.heal_us] if meta.phases.heal_us >= line.t_us else []
        end_us = min(own or last, default=_NEVER)
        made.append(InjectedFault(nth, line.fault, line.what, line.on, line.t_us, end_us))
    return made
