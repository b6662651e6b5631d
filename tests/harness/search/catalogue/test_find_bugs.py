"""`floodmark bugs find`: the known bugs are searched for, kept, and shown in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harness.formats.finding import SCHEDULE
from harness.formats.journal import FinishedRow, SearchedRow
from harness.runs.interrupts import Interrupts
from harness.runs.progress import Progress
from harness.search import findings
from harness.search.catalogue import catalogue, known_bugs, table
from harness.search.catalogue.catalogue import entries
from harness.search.catalogue.known_bugs import SearchTarget
from harness.search.draw.mixture import GENERATOR_VERSION
from harness.search.jobs import EndedJob
from harness.search.requests import BugSearchRequest
from harness.search.search_jobs import FinishJob, SearchJob
from harness.search.worlds.outcome import run_simulated
from harness.search.worlds.simulated import BugSubject
from harness.search.worlds.subject import Drawn, RunFolders
from nemesis import ready_made
from nemesis.formats.schedule import load
from tests.support.local_pool import LocalPool

TARGETS = {target.code: target for target in known_bugs.search_targets()}
AT_FAULT = SearchTarget(
    code="x", name="x", source="", protocol="high-watermark", breaks="no-lost-acknowledged-write"
)
"""The protocol itself loses the write."""


class Canned(LocalPool):
    """Finds M19 with its second slice, LB1 never; each slice is 20 s of a core."""

    def __init__(self) -> None:
        super().__init__()
        self.slices: list[tuple[str, int]] = []

    def do(self, job: Any) -> object:
        if isinstance(job, SearchJob):
            name = job.subject.name
            self.slices.append((name, job.first))
            row = SearchedRow(key=job.key, subject=name, seed=job.seed, first=job.first)
            row.schedules, row.core_s, row.generator = 10, 20.0, GENERATOR_VERSION
            row.virtual_us = 1_000_000
            if name == "M19" and job.first:
                row.findings = [replace(found(TARGETS["M19"]), number=job.first + 9)]
            return row
        assert isinstance(job, FinishJob)
        finding = replace(job.finding, shrunk=True)
        return FinishedRow(key=job.key, finding=finding, folder="findings/x")


def found(target: SearchTarget) -> Any:
    subject = BugSubject.of(target)
    schedule = subject.draw(0, 0)
    drawn = Drawn("", schedule, run_simulated(schedule, stop_at="never", about=target.breaks))
    return subject.finding(drawn)


def asked(store: Path, **changes: Any) -> BugSearchRequest:
    return BugSearchRequest(**{"only": ("M19", "LB1"), "seeds": 1, "store": store, **changes})


def find(store: Path, pool: LocalPool | None = None, **changes: Any) -> catalogue.SearchedBugs:
    request = asked(store, **{"budget_s": 60.0, **changes})
    with Interrupts() as interrupts, Progress(quiet=True) as progress:
        return catalogue.find(request, interrupts, progress, lambda line: None, pool)


def test_open_searches_go_on_and_the_one_with_least_time_is_next(tmp_path: Path) -> None:
    pool = Canned()
    made = find(tmp_path, pool)
    assert pool.slices == [("M19", 0), ("LB1", 0), ("M19", 10), ("LB1", 10), ("LB1", 20)]
    assert [(one.code, one.found, one.schedules) for one in made.results] == [
        ("M19", True, 20),
        ("LB1", False, 30),
    ]
    assert made.open == ["LB1"]
    assert [round(one.seconds, -1) for one in made.results] == [40, 60]
    (folder,) = (tmp_path / "findings").iterdir()
    assert findings.load(folder).shrunk
    assert load(folder / SCHEDULE).name == "m19-reads-below-hw"
    text = table.as_text(entries(asked(tmp_path)), made.results)
    assert "1 of 2 found by blind search; open: LB1." in text

    # Nothing is left to do, and an open search goes on only with more time.
    again = Canned()
    assert find(tmp_path, again) == made
    assert again.jobs == []
    more = Canned()
    assert find(tmp_path, more, budget_s=70.0).open == ["LB1"]
    assert more.slices == [("LB1", 30)]


def test_a_search_that_loses_its_jobs_ends_and_hides_no_other(tmp_path: Path) -> None:
    class Losing(Canned):
        def ended(self, within_s: float) -> list[EndedJob]:
            return [
                ended._replace(row=None, sentence="it died")
                if ended.job.subject.name == "LB1"  # type: ignore[attr-defined]
                else ended
                for ended in super().ended(within_s)
            ]

    made = find(tmp_path, Losing())
    assert [(one.code, one.found, one.state) for one in made.results] == [
        ("M19", True, "finished"),
        ("LB1", False, "stopped"),
    ]
    assert find(tmp_path, Canned()).results[1].state == "finished"


@pytest.mark.integration
def test_a_known_bug_is_found_shrunk_and_explained(tmp_path: Path) -> None:
    target = TARGETS["M19"]
    job = SearchJob(
        key="M19/0/0", subject=BugSubject.of(target), seed=0, first=0, count=100, seconds=0.0
    )
    (finding,) = job.do().findings
    done = FinishJob(
        key="M19/0/finding",
        subject=BugSubject.of(target),
        finding=finding,
        tries=60,
        place=RunFolders(str(tmp_path)),
        form=False,
    ).do()
    schedule = load(tmp_path / done.folder)
    assert "reads-below-hw" in run_simulated(schedule, stop_at="never").broken
    assert schedule.expectation.property == "reads-below-hw"
    assert (tmp_path / done.folder / "explain.json").is_file()


def test_every_bug_and_every_broken_promise_is_searched_for() -> None:
    made = list(known_bugs.search_targets())
    assert len({target.code for target in made}) == len(made)
    assert [e.breaks for e in made if e.protocol == "kip-101" and not e.bug] == [
        "no-lost-acknowledged-write",
        "committed-prefix-agreement",
        "offsets-and-order",
        "log-and-metadata",
        "liveness",
    ]
    assert known_bugs.correct_protocols() == ["kip-279", "kafka", "quorum", "quorum-push"]


@pytest.mark.parametrize("breaks", ["liveness", "log-and-metadata"])
def test_a_search_for_liveness_or_metadata_ends_no_run_worse(breaks: str) -> None:
    """The very schedule that a search for lost records would go on from."""
    schedule = ready_made.load("kip-101-scenario-1")
    assert BugSubject.of(AT_FAULT).judge(schedule).internal_violation == "candidate-completeness"
    other = replace(AT_FAULT, breaks=breaks)
    assert BugSubject.of(other).judge(schedule).internal_violation == ""


@pytest.mark.integration
def test_a_failure_that_needs_no_bug_does_not_count_for_the_bug() -> None:
    bug = "keep-elr-at-min-isr"
    losing = ready_made.load("kip-101-scenario-1")
    with_bug = replace(losing, cluster=replace(losing.cluster, bugs=(bug,)))
    assert BugSubject.of(AT_FAULT).run(with_bug, RunFolders()).failed
    assert not BugSubject.of(replace(AT_FAULT, bug=bug)).run(with_bug, RunFolders()).failed
