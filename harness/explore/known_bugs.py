"""Explores each known bug within bounds of its own, and keeps the shortest counterexample.

The bounds follow from the description of the bug (what it needs), so that this is no blind search:
it says that a bug has a counterexample of that length, and none shorter within the reductions. What
was explored stays in the store, and a later call goes on with the rest.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness.explore.bounds import Bounds
from harness.explore.explorer import ExplorationLimits
from harness.explore.report import told
from harness.explore.run import Explored, ExploreRequest, explore
from harness.search.deadline import Stop, never
from node.core import bugs as catalogue
from node.core.bugs import KNOWN_BUGS, KnownBug
from node.formats import json_input
from node.formats.errors import UsageError
from node.formats.files import write_whole

WIDTH: Final = 118
"""Of a line of the page."""
STORE_FOLDER: Final = "explored-bugs"
BOUNDS: Final[dict[str, Bounds]] = {
    "M1": Bounds(kills=2),
    "M1b": Bounds(elections=1, kills=1, restarts=0),
    "M1c": Bounds(crashes=1, records=2),
    "M2": Bounds(cuts=1, elections=2, records=2, calm=True),
    "M2b": Bounds(cuts=1, elections=2, records=2, calm=True),
    "M2e": Bounds(cuts=1, elections=2, records=2, calm=True),
    "M5b": Bounds(fencings=1, losses=1, kills=1, restarts=0),
    "M6": Bounds(kills=2, min_isr=2),
    "M8": Bounds(power_cuts=2),
    "M9": Bounds(flush="async", min_isr=2, power_cuts=1, kills=1),
    "M10": Bounds(fencings=1, losses=1, kills=1, restarts=0),
    "M11": Bounds(cuts=1, elections=1, records=2, losses=1, kills=1, restarts=0),
    "M12": Bounds(crashes=1, records=2),
    "M17": Bounds(elections=1),
    "M18": Bounds(kills=1),
    "M19": Bounds(reads=1),
    "M20": Bounds(kills=1),
    "M22": Bounds(kills=2),
    "M24": Bounds(brokers=3, copies=2, moves=1, kills=2, restarts=0),
    "M25": Bounds(kills=2, restarts=1),
    "I1": Bounds(retries=1, kills=1, restarts=0),
    "R4b": Bounds(brokers=3, crashes=1, records=2),
    "R6": Bounds(brokers=1, crashes=1),
    "R7": Bounds(brokers=1, crashes=1),
}
"""By the code of the bug, without protocol and bug. Bugs that are not here were not found."""
_PAGE: Final = """# Explored bugs

Written by `floodmark bugs explore`. Each row is a known bug, turned on in a protocol that is
correct without it, and explored within the bounds of its row ([explore.md](explore.md)). The bounds
follow from the description of the bug. *Actions* counts those of the shortest counterexample:
records, faults and commands. *Simulated* says which of the tried schedules of it failed in the
simulated world, and not without the bug; *faults* counts the faults of that schedule. Seconds are
of processor time.

"""


class ExploredBug(msgspec.Struct, frozen=True, kw_only=True):
    """A bug and what exploring it came to."""

    code: str
    bug: str
    breaks: str
    explored: Explored


def targets(only: tuple[str, ...] = ()) -> list[KnownBug]:
    """The bugs with bounds, or those of these names or codes. Raises UsageError for one without."""
    asked = {catalogue.canonical(name) for name in only}
    found = [bug for bug in KNOWN_BUGS if bug.code in BOUNDS and (not asked or bug.name in asked)]
    if missing := sorted(asked - {bug.name for bug in found}):
        raise UsageError(f"there are no bounds within which '{missing[0]}' is explored")
    return found


def explore_bugs(
    only: tuple[str, ...],
    limits: ExplorationLimits,
    store: Path,
    *,
    cores: int = 1,
    stop: Stop = never,
    told: Callable[[str], None] = lambda line: None,
) -> list[ExploredBug]:
    """Explore each of them that is not in the store yet, or is open there. Returns the rows of all
    that are. Raises UsageError for a bug that nobody knows, OSError or StorageError where nothing
    can be written."""
    folder = store / STORE_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for bug in targets(only):
        file = folder / f"{bug.code.lower()}.json"
        if stop() or (file.exists() and _is_closed(_load(file), bug)):
            continue
        request = ExploreRequest(
            bounds=bounds_of(bug), limits=limits, cores=cores, breaks=bug.breaks, store=store
        )
        explored = explore(request, stop=stop, told=told)
        if explored.result.outcome == "stopped":
            break
        row = ExploredBug(code=bug.code, bug=bug.name, breaks=bug.breaks, explored=explored)
        write_whole(file, msgspec.json.encode(row) + b"\n")
    kept = [folder / f"{bug.code.lower()}.json" for bug in KNOWN_BUGS]
    return [_load(file) for file in kept if file.exists()]


def _is_closed(row: ExploredBug, bug: KnownBug) -> bool:
    """Whether exploring the bug again would tell no more."""
    result = row.explored.result
    return result.bounds == bounds_of(bug) and result.outcome in ("violation", "none")


def bounds_of(bug: KnownBug) -> Bounds:
    """Within which bounds a bug is explored."""
    return msgspec.structs.replace(BOUNDS[bug.code], protocol=bug.protocol, bugs=(bug.name,))


def _load(file: Path) -> ExploredBug:
    return json_input.decode(json_input.read_bytes(file), ExploredBug)


def as_markdown(rows: list[ExploredBug]) -> str:
    """The page with the table."""
    return _PAGE + "\n".join((*_table(rows), "", *_paths(rows))) + "\n"


def _table(rows: list[ExploredBug]) -> Iterator[str]:
    found = sum(row.explored.confirmed for row in rows)
    yield f"{found} of {len(rows)} bugs have a counterexample that fails in the simulated world."
    yield ""
    yield "| code | bug | states | cpu s | actions | violates | simulated | faults |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for row in rows:
        result, made = row.explored.result, row.explored
        first = result.counterexamples[0] if result.counterexamples else None
        cells = (
            row.code,
            row.bug,
            f"{result.states:,}",
            f"{result.cpu_s:.1f}",
            first.counted if first else "",
            first.invariant if first else result.outcome,
            f"run {made.runs}" if made.confirmed else "no",
            made.faults if made.confirmed else "",
        )
        yield f"| {' | '.join(map(str, cells))} |"


def _paths(rows: list[ExploredBug]) -> Iterator[str]:
    yield "## Bounds, and the shortest counterexamples"
    yield ""
    for row in rows:
        result = row.explored.result
        text = f"* **{row.code}** Within {result.bounds.words()}."
        if result.counterexamples:
            first = result.counterexamples[0]
            steps = "; ".join(told(result.bounds, first))
            text += f" Found: {steps}. Then {first.sentence}."
        yield from textwrap.wrap(text, WIDTH, subsequent_indent="  ")
