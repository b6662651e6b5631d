"""The tests that mutants of the checks must not survive, as functions that run in a moment.

Goldens and random histories are read once; only judging them is repeated. Stories are those of
`checks/stories/*.txt`, and test functions that need nothing of pytest but a folder."""

from __future__ import annotations

import importlib
import inspect
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from checker.checks import cycles
from checker.checks.findings import Findings
from checker.checks.phantom import joined_origins, origins
from checker.checks.registry import Check, Scope, checks
from checker.engine import judge
from checker.evidence.columns import Rows
from checker.evidence.facts import Sends
from checker.evidence.group import Group, groups_of
from checker.evidence.run_meta import RunMeta
from checker.formats.anomalies import KINDS, LIVENESS, LOST_WRITES
from checker.formats.verdict import Anomaly
from checker.ingest.lines import Problems
from checker.ingest.read_run_files import read_meta
from checker.output.assemble import RunFindings, assemble
from tests.support.checker import histories, life_histories, log_histories, weakened
from tests.support.checker.agreed import EXERCISE
from tests.support.checker.defined import everything
from tests.support.checker.definitions import EXCUSED
from tests.support.checker.evidence_definitions import unknown_properties
from tests.support.checker.goldens import GOLDENS
from tests.support.checker.story import Story, facts_of
from tests.support.checker.story_text import FOLDER, Told, stories
from tests.support.paths import ROOT

THIN = ("external_history", "read_downsampling")
STORIES = {
    "aborted": ("offsets", "weakened"),
    "agreement": ("agreement", "evidence"),
    "contents": (
        "lost",
        "vanished",
        "offsets",
        "order",
        "reads",
        "contents",
        "retention",
        "agreement",
        *THIN,
    ),
    "cycles": ("external_history", "transactions"),
    "exercise": ("liveness",),
    "groups": ("groups", "cases"),
    "leaders": ("logs",),
    "logs": ("logs", "retention"),
    "lost": (
        "lost",
        "vanished",
        "contents",
        "retention",
        "evidence",
        "weakened",
        "sentence",
        *THIN,
    ),
    "membership": ("liveness",),
    "offsets": ("offsets", "retention"),
    "phantom": ("offsets",),
    "policy": ("verdict", "lost", "reads", "weakened", "sentence", "vanished"),
    "polls": ("order", "contents", "read_downsampling"),
    "reads": ("reads", "read_downsampling"),
    "sends": ("order", "contents"),
    "transactions": ("external_history", "transactions"),
}
"""The stories and modules of tests that know of a file, where they are not those of its name."""
UNKNOWN = " unknown"
DRAWN = {
    "steps": 120,
    "transactions": 120,
    "logs": 250,
    "lives": 400,
    "silences": 300,
    "leadership": 150,
}
WEAKENED = 240


class Killer(NamedTuple):
    """One test by name; it raises if the checks are wrong."""

    name: str
    run: Callable[[], object]


@dataclass
class Known:
    """One history with all that is known of it, and what it has by hand or by definition."""

    name: str
    about: RunMeta
    facts: list[Rows]
    due: Counter[str]
    excused: Counter[str] | None = None
    """How many are allowed for reasons of their own; None for what is told by hand."""
    torn: bool = False

    @property
    def groups(self) -> list[Group]:
        """The groups of the history, new ones each time: a group keeps what is made of it, perhaps
        by a mutant."""
        return groups_of(self.facts)

    def counted(self, anomalies: Iterable[Anomaly]) -> Counter[str]:
        """Return anomalies by name; lack of exercise only if the expectation has it."""
        counts: Counter[str] = Counter()
        for anomaly in anomalies:
            if anomaly.name not in EXERCISE or self.excused is not None or self.name in EXERCISE:
                counts[anomaly.name] += anomaly.count
        return counts


def _known(
    story: Story, name: str, due: dict[str, int], excused: Counter[str] | None = None
) -> Known:
    with tempfile.TemporaryDirectory() as folder:
        story.write(Path(folder))
        about = read_meta(Path(folder), Problems())
        facts = facts_of(Path(folder))
    return Known(name, about, facts, Counter(due), excused, story.torn)


def _excused(anomalies: Iterable[Anomaly]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for anomaly in anomalies:
        if anomaly.allowed and anomaly.name in EXCUSED:
            counts[anomaly.name] += anomaly.count
    return counts


def _whole(known: Known) -> None:
    """Everything the checker says of a history."""
    collected = RunFindings(known.about)
    for group in known.groups:
        collected.add(judge.judge_group(group))
    values = collected.unknown_values()
    found = joined_origins(origins(values, part) for part in known.facts if part.kind is Sends)
    result = assemble(collected, found, {})
    due = {name: n for name, n in known.due.items() if not name.endswith(UNKNOWN)}
    assert known.counted(result.anomalies) == due, known.name
    assert known.excused is None or _excused(result.anomalies) == known.excused
    assert not any("failed" in problem for problem in result.problems)


def _alone(known: Known, checks: Sequence[Check], names: set[str], strange: bool) -> None:
    """Run some checks on a history; `strange` if these report values that were never sent."""
    own = [(g, judge._known(k.judge(g), g)) for g in known.groups for k in checks if _judges(k, g)]
    found = [f if g.history_whole else judge._without_absence(f) for g, f in own]
    anomalies = [a for f in found for a in f.anomalies]
    by_partition = list(zip("abcdefgh", found, strict=False))
    cyclic = cycles.CYCLES.judge(Findings(known.about, by_partition)).anomalies
    counts = known.counted([*anomalies, *cyclic])
    due = {n: c for n, c in known.due.items() if n in names and not n.endswith(UNKNOWN)}
    assert counts == due
    assert all(f.examined >= 0 for f in found)
    if known.excused is not None:
        assert _excused(anomalies) == {n: c for n, c in known.excused.items() if n in names}
        for name in names & {LIVENESS + UNKNOWN, LOST_WRITES + UNKNOWN}:
            told = sum(bool(f.unknown) for _, f in own if f.property == name.removesuffix(UNKNOWN))
            assert known.torn or told == known.due[name]
    unknown = sum(f.unknown_value_count for f in found)
    assert not strange or unknown == known.due["phantom"] + known.due["misrouted"]


def _judges(check: Check, group: Group) -> bool:
    return check in checks(Scope.PARTITION if group.partition else Scope.RUN)


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


def _random() -> Iterator[tuple[str, Story]]:
    """Yield histories at random, each with a name."""
    strategies = {
        "steps": histories.wild(transactions=False),
        "transactions": histories.wild(transactions=True),
        "logs": log_histories.runs(),
        "lives": life_histories.lives(),
        "silences": life_histories.silences(),
        "leadership": life_histories.changes(),
    }
    for name, strategy in strategies.items():
        yield from ((f"{name} {n}", s) for n, s in enumerate(_drawn(strategy, DRAWN[name])))
    for seed in range(WEAKENED):
        if (case := weakened.drawn(seed)) is not None and case.form == "own":
            yield f"weakened {seed}", case.story


def _stories(names: Sequence[str]) -> Iterator[Killer]:
    """Yield the stories of files, and test functions with the values of their parameters."""
    for name in names:
        if (FOLDER / f"{name}.txt").exists():
            yield from (Killer(str(told), partial(_told, told)) for told in stories(name))
        for file in sorted((ROOT / "tests/checker").rglob(f"test_{name}.py")):
            place = file.relative_to(ROOT).with_suffix("")
            found = importlib.import_module(".".join(place.parts))
            for test, function in vars(found).items():
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
    for case in cases:
        if wanted - set(case) - {"tmp_path"}:
            continue

        def run(case: dict[str, Any] = case) -> None:
            with tempfile.TemporaryDirectory() as folder:
                function(**case, **({"tmp_path": Path(folder)} if "tmp_path" in wanted else {}))

        yield Killer(name, run)


def _sound(tests: list[Killer]) -> list[Killer]:
    """Run tests on the checks as they are: one that fails there would notice every mutant."""
    for test in tests:
        test.run()
    return tests


class Killers:
    """All killers: those made by hand, and the slower ones that are drawn when needed."""

    def __init__(self) -> None:
        self.goldens = [
            _known(golden.story(bad), name, golden.bad if bad else golden.good)
            for name, golden in GOLDENS.items()
            for bad in (True, False)
        ]
        self._by_hand: dict[str, list[Killer]] = {}
        self._at_random: dict[str, list[Killer]] = {}

    @cached_property
    def drawn(self) -> list[Known]:
        """Random histories with what their definitions say; this takes a minute."""
        return [
            _known(s, name, found - Counter(n + UNKNOWN for n in unknown_properties(s)), excused)
            for name, s in _random()
            for found, excused in [everything(s)]
        ]

    def by_hand(self, file: str) -> list[Killer]:
        """Return the goldens and stories that are to notice mutants of a file."""
        if file not in self._by_hand:
            name = Path(file).stem
            told = _stories(STORIES.get(name, (name,)))
            self._by_hand[file] = _sound([*self._of(file, self.goldens), *told])
        return self._by_hand[file]

    def at_random(self, file: str) -> list[Killer]:
        """Return the random histories that are to notice mutants of a file."""
        if file not in self._at_random:
            self._at_random[file] = _sound(self._of(file, self.drawn))
        return self._at_random[file]

    def _of(self, file: str, known: list[Known]) -> list[Killer]:
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        own = [
            check
            for scope in (Scope.PARTITION, Scope.RUN)
            for check in checks(scope)
            if check.finders[0][1].__module__ == module.__name__
        ]
        if not own:
            return [Killer(each.name, partial(_whole, each)) for each in known]
        names = self._names(own)
        strange = file.endswith("phantom.py")
        return [Killer(k.name, partial(_alone, k, own, names, strange)) for k in known]

    def _names(self, checks: Sequence[Check]) -> set[str]:
        """Return the anomalies that these checks can tell: each has its golden."""
        names = {
            a.name
            for each in self.goldens
            for g in each.groups
            for k in checks
            if _judges(k, g)
            for a in k.judge(g).anomalies
        }
        if any(k.finders[0][1].__module__.endswith("transactions") for k in checks):
            names |= {name for name in KINDS if name.startswith(("g0", "g1c"))}
        # Checks in other files, too, break liveness: one file alone says when it is unknown.
        witness_of = {LIVENESS: "no-progress", LOST_WRITES: "lost"}
        return names | {of + UNKNOWN for of, name in witness_of.items() if name in names}
