"""An exploration as a command makes it: explore, confirm a counterexample, and save it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from harness.explore.explorer import Exploration, Explorer
from harness.explore.requests import ExplorationLimits, ExploreRequest
from harness.explore.to_schedule import Confirmed, confirm
from harness.formats.finding import SCHEDULE
from harness.search.deadline import Stop, never
from harness.sim import compiled
from node.formats.errors import UsageError
from node.formats.files import as_part, make_folder, write_whole

FOLDER: Final = "explored"
"""The folder of a store that keeps what explorations found."""


class Explored(msgspec.Struct, frozen=True, kw_only=True):
    """An exploration, and whether its counterexample was confirmed. `confirmed`: a schedule made of
    one of the `tried` counterexamples (all of the same length) failed in the simulated world; it
    took `runs` runs, and the schedule is in `folder`. `broken` are the properties that it breaks,
    `faults` is the number of its faults."""

    result: Exploration
    confirmed: bool = False
    tried: int = 0
    runs: int = 0
    folder: str = ""
    sentence: str = ""
    broken: tuple[str, ...] = ()
    faults: int = 0

    @property
    def exit_code(self) -> int:
        """The exit code: 1 for a violation, 0 for none within the bounds, 2 if stopped."""
        return {"violation": 1, "none": 0}.get(self.result.outcome, 2)


def explore(
    request: ExploreRequest, *, stop: Stop = never, told: Callable[[str], None] = lambda line: None
) -> Explored:
    """Explore, and save a schedule of a counterexample that fails in the simulated world. `told`
    gets lines on the progress. Raises UsageError under compiled code, StorageError."""
    if compiled.in_use():
        raise UsageError(
            f"an exploration cannot step compiled code; set {compiled.PURE}=1 in the environment"
        )
    explorer = Explorer(request.bounds)
    limits = ExplorationLimits(seconds=request.budget_s, memory_mb=request.memory)
    result = explorer.run(limits, stop=stop, told=told)
    return _confirmed(request, explorer, result, stop)


def _confirmed(
    request: ExploreRequest, explorer: Explorer, result: Exploration, stop: Stop
) -> Explored:
    """Try the counterexamples until one fails in the simulated world."""
    tried = 0
    for found in result.counterexamples:
        tried += 1
        made = confirm(explorer.model, found, breaks=request.breaks)
        if made is not None:
            folder = _kept(request, made)
            # The first counterexample of a report is the one that was confirmed.
            rest = tuple(c for c in result.counterexamples if c is not found)
            result = msgspec.structs.replace(result, counterexamples=(found, *rest))
            return Explored(
                result=result,
                confirmed=True,
                tried=tried,
                runs=made.runs,
                folder=str(folder),
                sentence=made.attempt.sentence,
                broken=tuple(made.attempt.broken),
                faults=len(made.schedule.faults),
            )
        if stop():
            break
    return Explored(result=result, tried=tried)


def _kept(request: ExploreRequest, made: Confirmed) -> Path:
    """Write the schedule; return its folder. Raises StorageError."""
    name = f"{made.schedule.name}-{made.schedule.digest()}"
    folder = make_folder(request.store / FOLDER / as_part(name), request.store)
    write_whole(folder / SCHEDULE, made.schedule.to_pretty_json(), request.store)
    return folder
