"""Bisection of versions whose failures come only in some runs."""

from __future__ import annotations

import json
import random
import statistics
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.runs.interrupts import Interrupts
from harness.search.bisect import Bisection, BisectResult, VersionRun, bisect, in_words
from harness.search.requests import BisectRequest
from harness.search.worlds.outcome import ScheduleOutcome
from harness.search.worlds.real import StormSubject
from harness.systems.external.system import ExternalSystem
from nemesis.formats.schedule import Schedule


class Trials(NamedTuple):
    runs: float
    right: float


def trials(count: int, size: int, rate: float, failed: int, of: int, most: int = 1000) -> Trials:
    """Bisect `size` versions that fail at `rate` from a drawn one on, `count` times."""
    made, right = [], 0
    for seed in range(count):
        rng = random.Random(f"{size} {rate} {seed}")
        first = rng.randrange(size)
        known, runs = Bisection(size, failed, of), 0
        while not known.is_sure and runs < most:
            at = known.next()
            known.observe(at, at >= first and rng.random() < rate)
            runs += 1
        made.append(runs)
        right += known.best == first
    return Trials(statistics.median(made), right / count)


def plain(count: int, size: int, rate: float) -> float:
    """Return how often a plain bisection is right, which believes every run."""
    right = 0
    for seed in range(count):
        rng = random.Random(f"plain {size} {rate} {seed}")
        first, low, high = rng.randrange(size), 0, size - 1
        while low < high:
            middle = (low + high) // 2
            if middle >= first and rng.random() < rate:
                high = middle
            else:
                low = middle + 1
        right += low == first
    return right / count


def test_it_needs_few_runs_and_is_right() -> None:
    made = trials(400, 32, 0.5, failed=5, of=10)
    assert made.runs <= 18
    assert made.right >= 0.95


@pytest.mark.nightly
def test_it_needs_few_runs_where_failures_are_rare() -> None:
    made = trials(400, 128, 0.2, failed=20, of=100)
    assert made.runs <= 65
    assert made.right >= 0.93


@pytest.mark.nightly
def test_a_plain_bisection_believes_rare_failures_too_much() -> None:
    rare = 1 / 12
    assert plain(100, 32, rare) < 0.3
    assert trials(100, 32, rare, failed=8, of=96).right >= 0.9


def test_a_failure_proves_that_its_version_is_bad() -> None:
    known = Bisection(8)
    known.observe(3, failed=True)
    assert known.posterior[4:].sum() == 0
    known.observe(2, failed=False)
    assert known.posterior[3] > known.posterior[0] > 0


def test_versions_that_cannot_run_are_left_out() -> None:
    known = Bisection(8)
    assert known.next(among=[1, 6]) in (1, 6)


def test_the_answer_says_how_often_each_version_failed() -> None:
    runs = [VersionRun(server="1.1", verdict=v) for v in ("valid", "invalid", "unknown")]
    made = BisectResult(
        fails="1.1", holds="1.2", probability=0.97, posterior={"1.1": 0.97}, runs=tuple(runs)
    )
    assert in_words(made).splitlines() == [
        "1.1 fails, 1.2 is the next one that does not: 97.0%, after 3 runs",
        "  1.1: 97.0% (failed 1 of 2)",
    ]


def test_versions_run_on_what_the_run_was_made_on_and_each_run_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "schedule.json").write_bytes(Schedule().to_json())
    settings = {"sync": "always", "servers": "2.14.6"}
    system = {"name": "nats", "settings": settings, "links": "kernel"}
    (tmp_path / "run.json").write_text(json.dumps({"system": system}))
    made: list[StormSubject] = []

    def run(subject: StormSubject, *_: object) -> ScheduleOutcome:
        made.append(subject)
        is_new = subject.settings["servers"].endswith("new")
        return ScheduleOutcome(verdict="invalid" if is_new else "valid")

    monkeypatch.setattr(StormSubject, "run", run)
    monkeypatch.setattr(ExternalSystem, "check", lambda *_: None)
    servers = (tmp_path / "old", tmp_path / "new")
    request = BisectRequest(schedule=tmp_path, system="nats", server=servers, store=tmp_path)
    first = bisect(request, Interrupts(), print)
    assert first.fails == str(servers[1])
    assert {(s.links, s.settings["sync"]) for s in made} == {("kernel", "always")}
    [rows] = tmp_path.glob("bisect-*.jsonl")
    rows.write_bytes(rows.read_bytes() + b'{"what":"vers')
    assert bisect(request, Interrupts(), print) == first
    assert len(made) == len(first.runs)
