"""The tests that mutants of the checks must not survive, as functions that run in a moment, and the
lines that each of them reaches.

Goldens and random histories are read once; only judging them is repeated, and what is said of them
is compared with the slow definitions. Stories are those of `checks/stories/*.txt`."""

from __future__ import annotations

import importlib
import inspect
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from checker.checks.phantom import joined_origins, origins
from checker.engine.judge import judge_group
from checker.evidence.columns import Rows
from checker.evidence.facts import Sends
from checker.evidence.group import groups_of
from checker.evidence.run_meta import RunMeta
from checker.formats.verdict import RunResult
from checker.ingest.lines import Problems
from checker.ingest.read_run_files import read_meta
from checker.output.assemble import RunFindings, assemble
from tests.support.checker import histories, life_histories, log_histories, weakened
from tests.support.checker.agreed import Due, DueOfGroups, due
from tests.support.checker.goldens import GOLDENS
from tests.support.checker.story import Story, facts_of
from tests.support.checker.story_text import Told, stories
from tests.support.paths import ROOT

MODULES = (
    *("checks.test_offsets", "checks.test_evidence", "checks.test_cases", "checks.test_components"),
    *("checks.delivery.test_cases", "checks.delivery.test_simulated", "output.test_verdict"),
    *("engine.test_read_downsampling", "ingest.test_external_history"),
)
"""Modules of `tests/checker` whose test functions are tried, if they need but a folder."""
DRAWN = {
    "steps": (histories.wild(transactions=False), 120),
    "transactions": (histories.wild(transactions=True), 120),
    "logs": (log_histories.runs(), 250),
    "lives": (life_histories.lives(), 400),
    "silences": (life_histories.silences(), 300),
    "leadership": (life_histories.changes(), 150),
}
WEAKENED = 240


class Killer(NamedTuple):
    """One test by name; it raises if the checks are wrong."""

    name: str
    run: Callable[[], object]
    lines: frozenset[tuple[str, int]] = frozenset()
    """The lines of the checks that it reaches, by file."""


class Known(NamedTuple):
    """One history that was read, with what is to be said of it."""

    meta: RunMeta
    facts: Sequence[Rows]
    due: Due | DueOfGroups

    def judge(self) -> None:
        """Judge new groups each time: a group keeps what is made of it, perhaps by a mutant."""
        collected = RunFindings(self.meta)
        for group in groups_of(list(self.facts)):
            collected.add(judge_group(group))
        values = collected.unknown_values()
        found = joined_origins(origins(values, part) for part in self.facts if part.kind is Sends)
        result: RunResult = assemble(collected, found, {})
        assert self.due.differs(result) == ""


def known(story: Story) -> Known:
    """Read a history as the checker reads it."""
    with tempfile.TemporaryDirectory() as name:
        folder = story.write(Path(name))
        return Known(read_meta(folder, Problems()), facts_of(folder), due(story))


def _drawn(strategy: SearchStrategy[Story], count: int) -> list[Story]:
    """Stories that Hypothesis draws, always the same."""
    found: list[Story] = []

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(story: Story) -> None:
        found.append(story)

    draw()
    return found


def _goldens() -> Iterator[tuple[str, Story]]:
    for name, golden in GOLDENS.items():
        yield from ((f"{name} {bad}", golden.story(bad)) for bad in (True, False))


def _random() -> Iterator[tuple[str, Story]]:
    for name, (strategy, count) in DRAWN.items():
        yield from ((f"{name} {n}", s) for n, s in enumerate(_drawn(strategy, count)))
    for seed in range(WEAKENED):
        if (case := weakened.drawn(seed)) is not None and case.form == "own":
            yield f"weakened {seed}", case.story


def _histories(stories: Iterable[tuple[str, Story]]) -> Iterator[Killer]:
    for name, story in stories:
        yield Killer(name, known(story).judge)


def _functions() -> Iterator[Killer]:
    """Yield test functions, with the values of their parameters."""
    for name in MODULES:
        for test, function in vars(importlib.import_module(f"tests.checker.{name}")).items():
            marks = {mark.name for mark in getattr(function, "pytestmark", ())}
            long = hasattr(function, "hypothesis") or "nightly" in marks
            if test.startswith("test_") and inspect.isfunction(function) and not long:
                yield from _calls(f"{name}: {test}", function)


def _told(told: Told) -> None:
    with tempfile.TemporaryDirectory() as folder:
        told.check(Path(folder))


def _calls(name: str, function: Any) -> Iterator[Killer]:
    marks = [m for m in getattr(function, "pytestmark", []) if m.name == "parametrize"]
    wanted = set(inspect.signature(function).parameters)
    cases: list[dict[str, Any]] = [{}]
    for mark in marks:
        names, values = mark.args[:2]
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        cases = [
            {**case, **dict(zip(names, value if len(names) > 1 else [value], strict=True))}
            for case in cases
            for value in values
        ]
    for number, case in enumerate(cases):
        if wanted - set(case) - {"tmp_path"}:
            continue

        def run(case: dict[str, Any] = case) -> None:
            with tempfile.TemporaryDirectory() as folder:
                function(**case, **({"tmp_path": Path(folder)} if "tmp_path" in wanted else {}))

        yield Killer(f"{name} {number}", run)


def reached(run: Callable[[], object], files: Sequence[str]) -> frozenset[tuple[str, int]]:
    """Run a test on the checks as they are, and return the lines of these files that it reaches.
    Raises what the test raises: one that fails there would notice every mutant."""
    by_path = {str(ROOT / file): file for file in files}
    lines: set[tuple[str, int]] = set()

    def local(frame: FrameType, event: str, argument: object) -> Any:
        lines.add((by_path[frame.f_code.co_filename], frame.f_lineno))
        return local

    before = sys.gettrace()
    sys.settrace(lambda frame, _, __: local if frame.f_code.co_filename in by_path else None)
    try:
        run()
    finally:
        sys.settrace(before)
    return frozenset(lines)


def killers(files: Sequence[str]) -> Iterator[list[Killer]]:
    """Yield all killers, in tiers that take longer and longer to make, with the lines of these
    files that they reach."""
    told = (Killer(str(told), partial(_told, told)) for told in stories())
    for tier in (_histories(_goldens()), chain(told, _functions()), _histories(_random())):
        yield [killer._replace(lines=reached(killer.run, files)) for killer in tier]
