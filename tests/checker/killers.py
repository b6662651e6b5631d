"""The tests that mutants of the checks must not survive, as functions that run in a moment.

Goldens and random histories are read once; only judging them is repeated. Of the stories in
`tests/test_checker_*.py` those are taken that need nothing of pytest but a folder.
"""

from __future__ import annotations

import importlib
import inspect
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings

from checker import cycles, inprocess, judge, meta
from checker.assemble import assemble
from checker.catalogue import CATALOGUE, KINDS, Needs
from checker.findings import Kernel
from checker.group import Group, groups_of
from checker.ingest import ingest, sources
from checker.lines import Problems
from checker.verdict import Anomaly
from tests.checker import log_histories
from tests.checker.definitions import EXCUSED, define
from tests.checker.goldens import GOLDENS
from tests.checker.histories import tell, wild
from tests.checker.log_definitions import LogDefinitions
from tests.checker.story import Story

# Which stories know of which file; all of them know of every other file.
STORIES = {
    "checker/kernels/agreement.py": ("agreement",),
    "checker/kernels/exercise.py": ("liveness",),
    "checker/kernels/liveness.py": ("liveness",),
    "checker/kernels/logs.py": ("logs",),
    "checker/kernels/lost.py": ("lost",),
    "checker/kernels/metadata.py": ("logs",),
    "checker/kernels/offsets.py": ("offsets",),
    "checker/kernels/polls.py": ("order",),
    "checker/kernels/reads.py": ("reads",),
    "checker/kernels/sends.py": ("order",),
    "checker/kernels/transactions.py": ("foreign",),
    "checker/kernels/values.py": ("offsets",),
    "checker/cycles.py": ("foreign",),
    "checker/knots.py": ("foreign",),
    "checker/strangers.py": ("offsets",),
    "checker/policy.py": ("verdict", "lost", "reads"),
    "checker/evidence.py": ("agreement", "lost", "offsets", "order", "reads"),
}
RANDOM_HISTORIES = 60
EXERCISE = {kind.name for kind in CATALOGUE if kind.needs is Needs.EXERCISE}


class Killer(NamedTuple):
    """One test by name; it raises if the checks are wrong."""

    name: str
    run: Callable[[], object]


@dataclass
class Known:
    """One history with all that is known of it, and what it has by hand or by definition."""

    name: str
    about: meta.RunMeta
    facts: list[pa.RecordBatch]
    due: Counter[str]
    groups: list[Group]
    covers: frozenset[str] | None = None
    """Which anomalies `due` tells of; None: all."""
    excused: Counter[str] | None = None
    """How many are allowed for reasons of their own, where that is known."""


def _known(
    story: Story, name: str, due: dict[str, int], covers: frozenset[str] | None = None,
    excused: Counter[str] | None = None,
) -> Known:  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        story.write(Path(folder))
        about = meta.load(Path(folder), Problems())
        facts = [
            batch for source in sources(0, Path(folder)) for batch in ingest(source, None).facts
        ]
    return Known(name, about, facts, Counter(due), groups_of(facts), covers, excused)


def _counted(anomalies: Iterable[Anomaly], known: Known) -> Counter[str]:
    """Anomalies by name, lack of exercise only where the history is about it."""
    counts: Counter[str] = Counter()
    for anomaly in anomalies:
        if known.covers is not None and anomaly.name not in known.covers:
            continue
        if anomaly.name not in EXERCISE or known.name in EXERCISE:
            counts[anomaly.name] += anomaly.count
    return counts


def _excused(anomalies: Iterable[Anomaly]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for anomaly in anomalies:
        if anomaly.allowed and anomaly.name in EXCUSED:
            counts[anomaly.name] += anomaly.count
    return counts


def _whole(known: Known) -> None:
    """Everything the checker says of a history."""
    collected = inprocess.judge_facts(known.about, known.facts)
    result = assemble(collected, inprocess._homes(collected, known.facts), {})
    assert _counted(result.anomalies, known) == known.due
    assert known.excused is None or _excused(result.anomalies) == known.excused
    assert not any("failed" in problem for problem in result.problems)


def _alone(known: Known, kernels: Sequence[Kernel], names: set[str], strange: bool) -> None:
    """What some kernels say of a history, of the anomalies that are theirs; `strange` if it is
    they who hand on values that nobody sent."""
    found = [k.judge(g) for g in known.groups for k in kernels if _judges(k, g)]
    anomalies = [a for f in found for a in f.anomalies]
    graphs = [(a, f.graph) for a, f in zip("abcdefgh", found, strict=False) if f.graph]
    counts = _counted([*anomalies, *cycles.judge(known.about, graphs)], known)
    if known.excused is not None:
        mine = {n: c for n, c in known.excused.items() if n in names}
        assert _excused(anomalies) == mine
    assert counts == Counter({n: c for n, c in known.due.items() if n in names})
    strangers = sum(f.unclaimed_count for f in found)
    due = known.due["phantom"] + known.due["misrouted"]
    assert known.covers or not strange or strangers == due


def _judges(kernel: Kernel, group: Group) -> bool:
    return kernel in (judge.PARTITION_KERNELS if group.partition else judge.RUN_KERNELS)


def _random() -> Iterator[Known]:
    """Histories that Hypothesis draws, always the same, with what their definitions say."""
    found: list[tuple[Story, int]] = []
    for transactions in (False, True):

        @settings(
            max_examples=RANDOM_HISTORIES, derandomize=True, deadline=None, database=None,
            phases=[Phase.generate], suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(wild(transactions=transactions))
        def draw(steps: Any) -> None:
            found.append((tell(steps), len(found) % 4 - 1))

        draw()
    for number, (story, staleness_ms) in enumerate(found):
        story.run["promise"]["staleness_ms"] = staleness_ms
        due, excused = define(story.history, staleness_us=staleness_ms * 1000)
        yield _known(story, f"random history {number}", due, excused=excused)


def _random_logs() -> Iterator[Known]:
    """Logs and traces that Hypothesis draws, always the same, with what their definitions say."""
    found: list[log_histories.Run] = []

    @settings(
        max_examples=RANDOM_HISTORIES, derandomize=True, deadline=None, database=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(log_histories.runs)
    def draw(run: Any) -> None:
        found.append(run)

    draw()
    for number, run in enumerate(found):
        story = log_histories.tell(*run)
        due = LogDefinitions(story).counts()
        yield _known(story, f"random logs {number}", due, log_histories.LOGS_SHOW)


def _stories(modules: Sequence[str]) -> Iterator[Killer]:
    """Test functions, with the values that they are parametrized with."""
    for module in modules:
        found = importlib.import_module(f"tests.test_checker_{module}")
        for name, function in vars(found).items():
            if name.startswith("test_") and inspect.isfunction(function):
                yield from _calls(f"{module}: {name}", function)


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


class Killers:
    """All killers; histories are read once."""

    def __init__(self) -> None:
        goldens = [
            _known(golden.story(bad), name, golden.bad if bad else golden.good)
            for name, golden in GOLDENS.items()
            for bad in (True, False)
        ]
        self.known = [*goldens, *_random(), *_random_logs()]
        for each in self.known:
            _whole(each)

    def of(self, file: str) -> list[Killer]:
        """What is to notice mutants of a file, the fastest first."""
        tests = []
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        kernels = [
            kernel
            for kernel in dict.fromkeys((*judge.PARTITION_KERNELS, *judge.RUN_KERNELS))
            if kernel.judge.__module__ == module.__name__
        ]
        if kernels:
            # Alone, a kernel leaves the evidence of a history as it is: that is made only once.
            names = {
                a.name
                for each in self.known
                for g in each.groups
                for k in kernels
                if _judges(k, g)
                for a in k.judge(g).anomalies
            }
            if file.endswith("transactions.py"):
                names |= {name for name in KINDS if name.startswith(("g0", "g1c"))}
            tests += [
                Killer(each.name, partial(_alone, each, kernels, names, file.endswith("values.py")))
                for each in self.known
            ]
        else:
            tests += [Killer(each.name, partial(_whole, each)) for each in self.known]
        return [*tests, *_stories(STORIES[file])]
