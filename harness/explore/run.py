"""One exploration from a command: explore, confirm what was found, and keep it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from harness.explore.explorer import Exploration, Explorer
from harness.explore.requests import ExplorationLimits, ExploreRequest
from harness.explore.to_schedule import Confirmed, confirm
from harness.formats.finding import REAL, SCHEDULE
from harness.search.deadline import Stop, never
from harness.search.real_schedule import real_schedule
from harness.sim import compiled
from node.formats.errors import UsageError

FOLDER: Final = "explored"
"""The folder of a store that keeps what explorations found."""


class Explored(msgspec.Struct, frozen=True, kw_only=True):
    """An exploration, and what became of its counterexample: the schedule that fails in the
    simulated world after `runs` runs, `tried` counterexamples of the same length. `folder` has it;
    `real_worlds` is in how many worlds its form for real processes fails, -1 where none was
    looked for or found."""

    result: Exploration
    confirmed: bool = False
    tried: int = 0
    runs: int = 0
    folder: str = ""
    sentence: str = ""
    broken: tuple[str, ...] = ()
    faults: int = 0
    real_worlds: int = -1

    @property
    def exit_code(self) -> int:
        """1 for a violation, 0 for none within the bounds, 2 if that is open."""
        return {"violation": 1, "none": 0}.get(self.result.outcome, 2)


def explore(
    request: ExploreRequest, *, stop: Stop = never, told: Callable[[str], None] = lambda line: None
) -> Explored:
    """Explore, from the checkpoint if there is one. Raises UsageError for a checkpoint of another
    exploration and for compiled code, OSError if nothing can be written."""
    if compiled.in_use():
        raise UsageError(
            f"an exploration cannot step compiled code; set {compiled.PURE}=1 in the environment"
        )
    file = request.checkpoint
    if file is not None and file.exists():
        explorer = Explorer.continued(file, request.bounds, inner=request.inner)
    else:
        explorer = Explorer(request.bounds, inner=request.inner)
    limits = ExplorationLimits(seconds=request.budget_s, memory_mb=request.memory)
    result = explorer.run(limits, stop=stop, told=told, keep=file)
    if file is not None and result.outcome in ("none", "violation"):
        file.unlink(missing_ok=True)
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
            folder, worlds = _kept(request, made, stop)
            # The first counterexample that is told is the one that was confirmed.
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
                real_worlds=worlds,
            )
        if stop():
            break
    return Explored(result=result, tried=tried)


def _kept(request: ExploreRequest, made: Confirmed, stop: Stop) -> tuple[Path, int]:
    """Write the schedule, and the one for real processes where it was asked for and exists."""
    folder = request.store / FOLDER / f"{made.schedule.name}-{made.schedule.digest()}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCHEDULE).write_bytes(made.schedule.to_pretty_json())
    if not request.real:
        return folder, -1
    real = real_schedule(made.schedule, made.schedule.expectation.property or "", stop=stop)
    if real is None:
        return folder, -1
    (folder / REAL).write_bytes(real.schedule.to_pretty_json())
    return folder, real.failing_worlds
