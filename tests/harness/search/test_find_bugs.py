"""`floodmark bugs find`: the known bugs are searched for, kept, and shown in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harness.formats.finding import SCHEDULE
from harness.formats.journal import Finished, Searched
from harness.runs import run_folder
from harness.runs.interrupts import Interrupts
from harness.runs.progress import Progress
from harness.search import findings
from harness.search.catalogue import known_bugs, known_bugs_table
from harness.search.catalogue.find_bugs import RealReplayed, RealReplayJob, find_bugs
from harness.search.catalogue.known_bugs import SearchTarget
from harness.search.draw.generator import GENERATOR_VERSION
from harness.search.loop import Drawn, FinishJob, SearchJob
from harness.search.requests import BugSearchRequest
from harness.search.worlds.attempt import attempt
from harness.search.worlds.bug_world import BugSubject, BugWorld, drawn_schedule
from nemesis import ready_made
from nemesis.formats.schedule import load
from tests.support.local_pool import LocalPool

TARGETS = {target.code: target for target in known_bugs.search_targets()}
AT_FAULT = SearchTarget(
    code="x", name="x", source="", protocol="high-watermark", breaks="no-lost-acknowledged-write"
)
"""The protocol itself loses the write."""


class Canned(LocalPool):
    """Finds M19 with its second slice, LB1 never; a replay fails every other time."""

    def __init__(self) -> None:
        super().__init__()
        self.slices: list[tuple[str, int]] = []

    def do(self, job: Any) -> object:
        match job:
            case SearchJob(subject=BugSubject(target=target)):
                self.slices.append((target.code, job.first))
                row = Searched(key=job.key, protocol=target.code, seed=job.seed, first=job.first)
                row.schedules, row.core_s, row.generator = 10, 20.0, GENERATOR_VERSION
                if target.code == "M19" and job.first:
                    row.findings = [found(target)]
                return row
            case FinishJob():
                worlds = 28 if job.form_runs else 0
                finding = replace(job.finding, shrunk=True, stability=20, failing_worlds=worlds)
                return Finished(key=job.key, finding=finding, folder="findings/x")
            case RealReplayJob():
                return RealReplayed(
                    key=job.key,
                    finding=Path(job.folder).name,
                    failed=job.number % 2 == 1,
                    verdict="invalid",
                    sentence="lost",
                )
        return job.do()


def found(target: SearchTarget) -> Any:
    schedule = drawn_schedule(target, 0, 0)
    drawn = Drawn("", schedule, attempt(schedule, stop_at="never", about=target.breaks))
    return BugWorld(target).found(drawn)


def find(store: Path, pool: LocalPool, **changes: Any) -> list[known_bugs_table.Row]:
    request = BugSearchRequest(only=("M19", "LB1"), seeds=1, budget_s=60.0, store=store, **changes)
    with Interrupts() as interrupts, Progress(quiet=True) as progress:
        return find_bugs(request, interrupts, progress, lambda line: None, pool).rows


def test_open_searches_go_on_and_the_one_with_least_time_is_next(tmp_path: Path) -> None:
    pool = Canned()
    rows = find(tmp_path, pool, page=tmp_path / "page.md")
    assert pool.slices == [("M19", 0), ("LB1", 0), ("M19", 10), ("LB1", 10), ("LB1", 20)]
    assert [(row.target.code, row.found, row.schedules, row.seconds) for row in rows] == [
        ("M19", 1, 20, 40.0),
        ("LB1", 0, 30, 60.0),
    ]
    page = (tmp_path / "page.md").read_text()
    assert "1 of 2 rows found by blind search; open: LB1." in page
    (folder,) = (tmp_path / "findings").iterdir()
    assert findings.load(folder).shrunk
    assert load(folder / SCHEDULE).name == "m19-reads-below-hw"

    # Nothing is left to do, and an open search goes on only with more time.
    again = Canned()
    assert find(tmp_path, again) == rows
    assert again.jobs == []


def test_replays_on_real_processes_go_on_where_they_stopped(tmp_path: Path) -> None:
    find(tmp_path, Canned())
    pool = Canned()
    (row, _) = find(tmp_path, pool, real=2)
    assert [type(job) for job in pool.jobs] == [FinishJob, RealReplayJob, RealReplayJob]
    assert row.real == "1 of 2"
    pool = Canned()
    (row, _) = find(tmp_path, pool, real=4)
    assert [job.number for job in pool.jobs if isinstance(job, RealReplayJob)] == [2, 3]
    assert row.real == "2 of 4"
    assert find(tmp_path, Canned(), real=4)[0] == row


def test_a_replay_that_was_cut_off_is_removed_with_its_links(tmp_path: Path) -> None:
    folder = run_folder.create(tmp_path / "known-bugs" / "replays", "m19").path
    (folder.parent / "a-link").symlink_to(folder.name)
    find(tmp_path, Canned())
    assert not folder.parent.exists()


@pytest.mark.integration
def test_a_known_bug_is_found_shrunk_and_explained(tmp_path: Path) -> None:
    target = TARGETS["M19"]
    job = SearchJob(
        key="M19/0/0", subject=BugSubject(target=target), seed=0, first=0, count=100, seconds=0.0
    )
    (finding,) = job.do().findings
    done = FinishJob(
        key="M19/0/finding",
        subject=BugSubject(target=target),
        finding=finding,
        tries=60,
        store=str(tmp_path),
        form_runs=0,
    ).do()
    assert done.finding.stability > 0
    schedule = load(tmp_path / done.folder)
    assert "reads-below-hw" in attempt(schedule, stop_at="never").broken
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
    assert known_bugs.correct_protocols() == ["kip-279", "kafka", "quorum"]


@pytest.mark.parametrize("breaks", ["liveness", "log-and-metadata"])
def test_a_search_for_liveness_or_metadata_ends_no_run_worse(breaks: str) -> None:
    """The very schedule that a search for lost records would go on from."""
    schedule = ready_made.load("kip-101-scenario-1")
    assert BugWorld(AT_FAULT).judge(schedule)[0].internal_violation == "candidate-completeness"
    other = replace(AT_FAULT, breaks=breaks)
    assert BugWorld(other).judge(schedule)[0].internal_violation == ""


@pytest.mark.integration
def test_a_failure_that_needs_no_bug_does_not_count_for_the_bug() -> None:
    bug = "keep-elr-at-min-isr"
    losing = ready_made.load("kip-101-scenario-1")
    with_bug = replace(losing, cluster=replace(losing.cluster, bugs=(bug,)))
    assert BugWorld(AT_FAULT).attempt(with_bug).failed
    assert not BugWorld(replace(AT_FAULT, bug=bug)).attempt(with_bug).failed
